"""Semaphore that limits the engines on this machine, across threads and processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.file_lock import held
from torchx_pulumi.stack_state.files import make_folder
from torchx_pulumi.stack_state.owner import CheckOwner, unowned

PAUSE_S = 0.05
VARIABLE = "TORCHX_PULUMI_MAX_ENGINES"


def max_engines() -> int:
    """Return the maximum number of engines: two per core, as each waits about as long as it computes."""
    given = os.environ.get(VARIABLE, "")
    return max(int(given), 1) if given.isdigit() else 2 * max(os.cpu_count() or 1, 2)


@contextlib.contextmanager
def engine_slot(folder: Path, check: CheckOwner = unowned) -> Iterator[None]:
    """Acquire the semaphore, and wait until an engine may start; the end of the process releases it.

    Args:
        folder: Folder of the lock files, one for each engine.
        check: Renews the lease while this waits.

    Raises:
        TakenOverError: Another process took over the app.
        DeployError: The folder cannot be written.
    """
    make_folder(folder)
    with contextlib.ExitStack() as stack:
        try:
            while not _take(folder, stack):
                check()
                time.sleep(PAUSE_S)
        except OSError as error:
            raise DeployError(
                f"{folder} cannot be written: {error.strerror}; set XDG_STATE_HOME to another folder"
            ) from error
        yield


def _take(folder: Path, stack: contextlib.ExitStack) -> bool:
    """Acquire one of the locks until `stack` closes. False: all are held."""
    for number in range(max_engines()):
        with contextlib.ExitStack() as one:
            if one.enter_context(held(folder / str(number), wait=False, per_host=True)):
                stack.enter_context(one.pop_all())
                return True
    return False
