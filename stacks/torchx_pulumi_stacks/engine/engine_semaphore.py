"""Semaphore that limits the engines on this host, across threads and processes, and is acquired in order of arrival.

A slot is a lock file, which the end of a process releases. Who finds all slots held, or others waiting, writes a ticket
and tries again when no earlier ticket is there. Tickets only set the order; the locks alone limit the engines.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.storage.files import make_folder, names_in
from torchx_pulumi.storage.owners import CheckOwner, held, unowned

from torchx_pulumi_stacks.engine.host_limits import usable_cores, usable_memory_mb

VARIABLE = "TORCHX_PULUMI_MAX_ENGINES"

ENGINE_MB = 250
"""Memory of an engine with its provider."""

PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
"""Pauses between two attempts: the first in line waits `PAUSE_S`, each one ahead adds as much, up to the longest."""

RENEW_S = 1.0
"""Time after which a waiting launch renews its ticket and its lease."""

STALE_S = 5.0
"""Age at which a ticket has no effect: its process was killed or is suspended."""

SILENT_S = 2.0
REPEAT_S = 10.0
"""Time after which a waiting launch is reported, and the time between two such messages."""


def max_engines() -> int:
    """Return the maximum number of engines on this host.

    TORCHX_PULUMI_MAX_ENGINES, at least 1. Without it, two per usable core, as each waits about as long as it computes,
    and at least four, but no more than fit in half of the usable memory.
    """
    given = os.environ.get(VARIABLE, "")
    if given.isdecimal():
        return max(int(given), 1)
    return max(int(min(2 * max(usable_cores(), 2), usable_memory_mb() / 2 / ENGINE_MB)), 1)


class EngineSlot:
    """A slot for one engine. As a context manager, it is held until the block ends, or until `release`."""

    def __init__(self, folder: Path, progress: ProgressCallback, check: CheckOwner = unowned) -> None:
        """Set the folder. `acquire` takes a slot.

        Args:
            folder: Folder of the lock files; hosts that share it have a folder each in it.
            progress: Receives a message while this waits for longer than two seconds.
            check: Renews the lease before and while this waits. It is not called while the slot is held.
        """
        self._folder = folder / socket.gethostname()
        self._queue = self._folder / "queue"
        self._progress = progress
        self._check = check
        self._most = 0
        self._held: contextlib.ExitStack | None = None

    def acquire(self, on_wait: Callable[[], None] = lambda: None) -> None:
        """Wait until an engine may start. Does nothing if the slot is held.

        Args:
            on_wait: Called once if this has to wait. It must not wait itself.

        Raises:
            TakenOverError: Another process took over the app.
            DeployError: The folder cannot be written.
        """
        if self._held is not None:
            return
        self._check()
        self._most = max_engines()
        make_folder(self._queue)
        try:
            if names_in(self._queue) or not self._take():
                ticket = self._queue / f"{time.time_ns():020d}-{secrets.token_hex(4)}"
                self._renew(ticket)
                try:
                    on_wait()
                    self._wait(ticket)
                except BaseException:
                    self.release()
                    raise
                finally:
                    ticket.unlink(missing_ok=True)
        except OSError as error:
            raise DeployError(
                f"{self._folder} cannot be written: {error.strerror}; set XDG_STATE_HOME to another folder"
            ) from error

    def release(self) -> None:
        """Let the next engine start; may be called again."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def __enter__(self) -> EngineSlot:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _wait(self, ticket: Path) -> None:
        """Wait until no earlier ticket is there and a lock is acquired."""
        renewed = time.monotonic()
        tell_at = renewed + SILENT_S
        while (ahead := sum(name < ticket.name for name in names_in(self._queue))) or not self._take():
            now = time.monotonic()
            if now - renewed >= RENEW_S:
                self._renew(ticket)
                self._check()
                renewed = now
            if now >= tell_at:
                self._progress(
                    f"waiting for a free engine slot, {ahead} ahead; at most {self._most} at once on this host "
                    f"({VARIABLE})"
                )
                tell_at = now + REPEAT_S
            time.sleep(min(PAUSE_S * (ahead + 1), LONGEST_PAUSE_S))

    def _renew(self, ticket: Path) -> None:
        """Set the time of a ticket, and remove those of processes that have not done so for long."""
        ticket.touch()
        # Both times are of the same file system. One of the future is from before its clock was set back.
        now = ticket.stat().st_mtime
        for other in self._queue.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if abs(other.stat().st_mtime - now) > STALE_S:
                    other.unlink()

    def _take(self) -> bool:
        """Acquire one of the locks. False: all are held."""
        for number in range(self._most):
            with contextlib.ExitStack() as one:
                if one.enter_context(held(self._folder / str(number), wait=False)):
                    self._held = one.pop_all()
                    return True
        return False
