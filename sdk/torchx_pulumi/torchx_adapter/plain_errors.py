"""In the command `torchx`, our errors are one message without a traceback, and so is Ctrl-C."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from torchx.specs import InvalidRunConfigException

from torchx_pulumi.model.errors import TorchxPulumiError


def command_words() -> Sequence[str] | None:
    """Return the arguments of this process if it is the command `torchx`. None: it is another program."""
    program, *words = sys.argv
    return words if Path(program).name in ("torchx", "torchx.exe") else None


def is_launch() -> bool:
    """Return whether this process is `torchx run` without `--dryrun`: a dry run in it is followed by a launch."""
    words = command_words() or ()
    return words[:1] == ["run"] and not any("--dryrun".startswith(word) and len(word) > 2 for word in words)


def show_plainly() -> None:
    """From now on, print our errors and Ctrl-C without a traceback if this process is the command `torchx`.

    Elsewhere the traceback belongs to the program whose author reads it. Exit codes stay: 1 after an
    error, and the end by SIGINT after Ctrl-C.
    """
    if sys.excepthook is not _show and command_words() is not None:
        sys.excepthook = _show
        threading.excepthook = _show_of_thread


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, (TorchxPulumiError, InvalidRunConfigException)):
        # `torchx log` raises the error of a thread again.
        if error not in _shown_of_threads:
            print(f"torchx: {error}", file=sys.stderr)  # noqa: T201
        return
    if isinstance(error, KeyboardInterrupt):
        # What was interrupted has said so.
        return
    sys.__excepthook__(kind, error, traceback)


_shown_of_threads: list[BaseException] = []


def _show_of_thread(given: threading.ExceptHookArgs) -> None:
    """Print an error of ours, each text once: all replicas of `torchx log` may fail for the same reason."""
    error = given.exc_value
    if not isinstance(error, TorchxPulumiError):
        threading.__excepthook__(given)
        return
    if str(error) not in map(str, _shown_of_threads):
        print(f"torchx: {error}", file=sys.stderr)  # noqa: T201
    _shown_of_threads.append(error)
