"""In the command `torchx`, our errors are one message, and Ctrl-C prints no traceback: its user has no use for code."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import TracebackType

from torchx.specs import InvalidRunConfigException

from torchx_pulumi.model.errors import TorchxPulumiError


def is_command() -> bool:
    """Return whether this process is the command `torchx`."""
    return Path(sys.argv[0]).name in ("torchx", "torchx.exe")


def show_plainly() -> None:
    """From now on, print our errors and Ctrl-C without a traceback, where this process is the command `torchx`.

    Elsewhere the traceback belongs to the program whose author reads it. Exit codes stay: 1 after an
    error, and the end by SIGINT after Ctrl-C.
    """
    if sys.excepthook is not _show and is_command():
        sys.excepthook = _show
        threading.excepthook = _Threads().show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, (TorchxPulumiError, InvalidRunConfigException)):
        print(f"torchx: {error}", file=sys.stderr)  # noqa: T201
        return
    if isinstance(error, KeyboardInterrupt):
        # What was interrupted has said so.
        return
    sys.__excepthook__(kind, error, traceback)


class _Threads:
    """Shows the errors of threads: `torchx log` has one for each replica, and all may fail for the same reason."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, given: threading.ExceptHookArgs) -> None:
        """Print an error of ours, each text once; others as Python does."""
        if not isinstance(given.exc_value, TorchxPulumiError):
            threading.__excepthook__(given)
        elif str(given.exc_value) not in self._shown:
            self._shown.add(str(given.exc_value))
            print(f"torchx: {given.exc_value}", file=sys.stderr)  # noqa: T201
