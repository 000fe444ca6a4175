"""In the command `torchx`, our errors are one message: its user has no use for the lines of our code."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

from torchx.specs import InvalidRunConfigException

from torchx_pulumi.errors import TorchxPulumiError


def show_plainly() -> None:
    """From now on, print our errors without a traceback, where this process is the command `torchx`.

    Elsewhere the traceback belongs to the program whose author reads it. TorchX ends with exit code 1 as before.
    """
    if sys.excepthook is not _show and Path(sys.argv[0]).name in ("torchx", "torchx.exe"):
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, (TorchxPulumiError, InvalidRunConfigException)):
        print(f"torchx: {error}", file=sys.stderr)  # noqa: T201
        return
    sys.__excepthook__(kind, error, traceback)
