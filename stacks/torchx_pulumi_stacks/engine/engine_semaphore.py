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
from types import TracebackType

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.storage.files import make_folder, names_in
from torchx_pulumi.storage.locks import held
from torchx_pulumi.storage.owners import CheckOwner, unowned

from torchx_pulumi_stacks.engine.host_limits import usable_cores, usable_memory_mb

VARIABLE = "TORCHX_PULUMI_MAX_ENGINES"

ENGINE_MB = 250
"""Memory of an engine with its provider."""

PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
"""Pause of the first who waits, and the longest pause: each one ahead adds one of the first."""

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
        """Set the folder; nothing is acquired yet.

        Args:
            folder: Folder of the lock files; hosts that share it have a folder each in it.
            progress: Receives a message while this waits for longer than two seconds.
            check: Renews the lease before and while this waits. It is not called while the slot is held.
        """
        self._folder = folder / socket.gethostname()
        self._progress = progress
        self._check = check
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
        most = max_engines()
        queue = self._folder / "queue"
        make_folder(queue)
        try:
            if names_in(queue) or not self._take(most):
                ticket = _Ticket(queue)
                on_wait()
                self._wait(ticket, most)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _wait(self, ticket: _Ticket, most: int) -> None:
        begun = renewed = time.monotonic()
        tell_at = begun + SILENT_S
        try:
            while (ahead := ticket.ahead()) or not self._take(most):
                now = time.monotonic()
                if now - renewed >= RENEW_S:
                    ticket.renew()
                    self._check()
                    renewed = now
                if now >= tell_at:
                    self._progress(
                        f"waiting for a free engine slot, {ahead} ahead; at most {most} at once on this host "
                        f"({VARIABLE})"
                    )
                    tell_at = now + REPEAT_S
                time.sleep(min(PAUSE_S * (ahead + 1), LONGEST_PAUSE_S))
        except BaseException:
            self.release()
            raise
        finally:
            ticket.remove()

    def _take(self, most: int) -> bool:
        """Acquire one of the locks. False: all are held."""
        for number in range(most):
            with contextlib.ExitStack() as one:
                if one.enter_context(held(self._folder / str(number), wait=False)):
                    self._held = one.pop_all()
                    return True
        return False


class _Ticket:
    """The place of a waiting launch: a file whose name has the time of arrival."""

    def __init__(self, queue: Path) -> None:
        self._path = queue / f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self.renew()

    def ahead(self) -> int:
        """Return how many arrived earlier and wait."""
        return sum(name < self._path.name for name in names_in(self._path.parent))

    def renew(self) -> None:
        """Set the time of the file, and remove the tickets of processes that have not done so for long."""
        self._path.touch()
        # Both times are of the same file system. One of the future is from before its clock was set back.
        now = self._path.stat().st_mtime
        for path in self._path.parent.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if abs(path.stat().st_mtime - now) > STALE_S:
                    path.unlink()

    def remove(self) -> None:
        """Give up the place."""
        self._path.unlink(missing_ok=True)
