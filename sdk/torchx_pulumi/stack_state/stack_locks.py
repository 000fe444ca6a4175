"""Which of Pulumi's locks are our own: every engine that we start, and every lock that we write, is noted first.

A lock names a host and a process id, and both exist more than once: containers share host names and number their
processes from 1. A note has the boot, the PID namespace and the start of the process too. Only a lock that fits a note
of this boot and namespace, whose process has ended, is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import Owner
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.stack_state.files import read_json, remove_file, write_json
from torchx_pulumi.stack_state.owner import is_here, lives, started, started_at, this_process

CLOCK_SLACK_S = 5.0
"""Clocks are set, and boot times are in whole seconds."""

LOCKED = "is currently locked by"
"""What the CLI says where it meets a lock."""

LOCK_RETRY_PAUSES_S = (0.1, 0.3, 0.6)
"""Pauses before the CLI is started again then."""

LOCK_WITHIN_S = 300.0
"""An engine takes its lock when it starts: the lock of a later one is another engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock on a stack, as its file or the CLI describes it."""

    path: Path | None
    """The lock's file. None: the CLI told of it."""
    host: str
    pid: int
    user: str
    timestamp: str
    """When it was taken, RFC 3339."""

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, since {self.timestamp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNote:
    """One process that may hold a lock on a stack."""

    by: Owner
    """The process that wrote the note; `seen_at` is when."""
    pid: int | None = None
    """The process that takes the lock. None: it was about to be started."""
    started: str = ""
    """When that process started (`owner.started`). Empty: not known."""
    engine: bool = True
    """It is a process of the engine, and no status writer."""

    @property
    def is_here(self) -> bool:
        """Return whether its process can be seen from here."""
        return is_here(self.by.boot_id, self.by.pid_namespace)

    @property
    def running(self) -> int | None:
        """Return the process id of an engine that still runs here. None: it does not, or is not of this place."""
        if not self.engine or self.pid is None or not self.is_here or not lives(self.pid, self.started):
            return None
        return self.pid

    def is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is of this process, and the process is known to have ended."""
        taken, noted = _seconds(lock.timestamp), self.by.seen_at
        if not self.is_here or lock.host != self.by.host or taken is None or noted is None:
            return False
        if not noted - CLOCK_SLACK_S <= taken <= noted + LOCK_WITHIN_S:
            return False
        if self.pid is not None:
            return lock.pid == self.pid and not lives(self.pid, self.started)
        # Killed after it started the engine and before it noted its process id.
        return not lives(self.by.pid, self.by.started) and is_over(lock)


class OwnedLocks:
    """The notes of one stack, in the folder where the engine works on it."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is read or made yet."""
        self._folder = folder / "locks"

    def note(self, pid: int | None = None, *, engine: bool = True) -> Path:
        """Note a process before it takes a lock, and return the note's file.

        Args:
            pid: The process. None: an engine that is about to be started; `note_pid` adds its number.
            engine: It is a process of the engine, which a recovery may end.

        Raises:
            DeployError: The note cannot be written.
        """
        path = self._folder / f"{secrets.token_hex(8)}.json"
        since = "" if pid is None else started(pid)
        write_json(path, dataclasses.asdict(LockNote(by=this_process(), pid=pid, started=since, engine=engine)))
        return path

    def note_pid(self, note: Path, pid: int) -> None:
        """Add the process id of an engine that was just started.

        Raises:
            DeployError: The note cannot be written.
        """
        found = _read(note) or LockNote(by=this_process())
        write_json(note, dataclasses.asdict(dataclasses.replace(found, pid=pid, started=started(pid))))

    def forget(self, note: Path) -> None:
        """Remove a note whose process holds no lock any more.

        Raises:
            DeployError: It cannot be removed.
        """
        remove_file(note)
        with contextlib.suppress(OSError):  # other notes are in it
            self._folder.rmdir()

    def notes(self) -> list[LockNote]:
        """Return all notes; one that is no note is left out."""
        return [note for path in sorted(self._folder.glob("*.json")) if (note := _read(path)) is not None]

    def is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is one of our own, and its process is known to have ended."""
        return any(note.is_dead(lock) for note in self.notes())


def is_over(lock: Lock) -> bool:
    """Return whether the process that a lock names does not run in this PID namespace, or started after the lock.

    This says nothing of a lock that was taken in another PID namespace.
    """
    if lock.pid <= 0:
        return False
    if not lives(lock.pid):
        return True
    taken, since = _seconds(lock.timestamp), started_at(lock.pid)
    return taken is not None and since is not None and since > taken + CLOCK_SLACK_S


def is_over_of_0_1_0(lock: Lock) -> bool:
    """Return whether the process of a lock has ended, as far as what 0.1.0 noted tells: the name of its host."""
    return lock.host == socket.gethostname() and is_over(lock)


def read_locked_message(text: str) -> list[Lock]:
    """Return the locks that the CLI names. Empty: it names none, or not all of them could be read.

    >>> text = '''error: the stack is currently locked by 1 lock(s). Either wait ...
    ...   s3://b/.pulumi/locks/x.json: created by Jane Doe@laptop (pid 12) at 2026-01-01T00:00:00Z'''
    >>> [str(lock) for lock in read_locked_message(text)]
    ['Jane Doe@laptop, process 12, since 2026-01-01T00:00:00Z']
    """
    count = re.search(r"currently locked by (\d+) lock", text)
    named = re.finditer(
        r"created by (?P<user>.*?)@(?P<host>[^@\s]*) \(pid (?P<pid>\d+)\) at (?P<when>\S+)", text, re.MULTILINE
    )
    found = [
        Lock(path=None, host=item["host"], pid=int(item["pid"]), user=item["user"], timestamp=item["when"])
        for item in named
    ]
    return found if count is not None and len(found) == int(count[1]) else []


def read_lock(path: Path) -> Lock | None:
    """Return the lock of a file. None: it is gone.

    A half-written one has process 0: its process died, or is about to write the rest, and it is taken to live.
    """
    try:
        value = read_json(path)
    except DeployError:
        return lock_of(None, path)
    return None if value is None else lock_of(value, path)


def lock_of(value: Any, path: Path | None = None) -> Lock:
    """Return a lock from the JSON value that Pulumi writes; of another value one with process 0."""
    try:
        pid, host = int(value["pid"]), str(value["hostname"])
    except (KeyError, TypeError, ValueError):
        return Lock(path=path, host="an unknown machine", pid=0, user="somebody", timestamp="an unknown time")
    return Lock(path=path, host=host, pid=pid, user=str(value.get("username")), timestamp=str(value.get("timestamp")))


def _read(path: Path) -> LockNote | None:
    try:
        value: Any = read_json(path)
        return None if value is None else LockNote(**{**value, "by": Owner(**value["by"])})
    except (DeployError, KeyError, TypeError):
        return None


def _seconds(timestamp: str) -> float | None:
    """Return a time of Go's in seconds since 1970. None: it is no time."""
    taken = parse_time(timestamp)
    return None if taken is None else taken.timestamp()
