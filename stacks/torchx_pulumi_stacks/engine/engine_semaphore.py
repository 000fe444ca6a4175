"""How many engines run at once on this machine, whatever threads and processes ask for them."""

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


def slot_count() -> int:
    """Return how many engines may run at once: two a core, for each waits about as long as it works."""
    given = os.environ.get(VARIABLE, "")
    return max(int(given), 1) if given.isdigit() else 2 * max(os.cpu_count() or 1, 2)


@contextlib.contextmanager
def slot(folder: Path, check: CheckOwner = unowned) -> Iterator[None]:
    """Hold one of the slots; wait until one is free. A process that dies gives its own back.

    Args:
        folder: Where the slots lie.
        check: Renews the lease while this waits.

    Raises:
        TakenOverError: Another process took over the app that the slot is for.
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
    """Take a slot until a stack is closed. False: none is free."""
    for number in range(slot_count()):
        with contextlib.ExitStack() as one:
            if one.enter_context(held(folder / str(number), wait=False, per_host=True)):
                stack.enter_context(one.pop_all())
                return True
    return False
