"""Pulumi's locks on stacks, and notes that identify our own locks.

A lock names a host and a process id, which are not unique: containers share host names and count processes from 1.
Before an engine starts or a lock is written, a note stores the boot, the PID namespace and the start of the process. A
lock is removed only if it matches a note of this boot and namespace whose process has ended. A lock that is written in
a pod also names its container: the next container of the same pod removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import Owner
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.storage.files import read_json, remove_file, write_json
from torchx_pulumi.storage.owners import container, is_here, lives, started, started_at, this_process

CLOCK_SLACK_S = 5.0
"""Tolerance for clocks that are set, and for boot times in whole seconds."""

LOCKED = "is currently locked by"
"""Message of the CLI about a lock."""

LOCK_RETRY_PAUSES_S = (0.1, 0.3, 0.6)
"""Pauses before the CLI is started again after that message."""

LOCK_WITHIN_S = 300.0
"""Longest time between a note and its lock: an engine acquires its lock when it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock on a stack, from its file or from a message of the CLI."""

    path: Path | None
    """The lock's file. None: a message of the CLI named it."""
    host: str
    pid: int
    user: str
    timestamp: str
    """Time of acquisition, RFC 3339."""

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, since {self.timestamp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNote:
    """A process that may hold a lock on a stack."""

    by: Owner
    """The process that wrote the note, at `seen_at`."""
    pid: int | None = None
    """The process that acquires the lock. None: it was not started yet."""
    started: str = ""
    """Start of that process (`owner.started`). Empty: not known."""
    engine: bool = True
    """True: an engine process. False: a status writer."""

    @property
    def is_here(self) -> bool:
        """Return whether its process can be looked up from here."""
        return is_here(self.by.boot_id, self.by.pid_namespace)

    @property
    def running(self) -> int | None:
        """Return the process id of an engine that still runs here. None: it has ended, or runs elsewhere."""
        if not self.engine or self.pid is None or not self.is_here or not lives(self.pid, self.started):
            return None
        return self.pid

    def is_dead(self, lock: Lock) -> bool:
        """Return whether this process took a lock and has ended."""
        taken, noted = _seconds(lock.timestamp), self.by.seen_at
        if not self.is_here or lock.host != self.by.host or taken is None or noted is None:
            return False
        if not noted - CLOCK_SLACK_S <= taken <= noted + LOCK_WITHIN_S:
            return False
        if self.pid is not None:
            return lock.pid == self.pid and not lives(self.pid, self.started)
        # The writer was killed after it started the engine and before it noted the process id.
        return not lives(self.by.pid, self.by.started) and is_over(lock)


class OwnedLocks:
    """The notes of one stack, in its work folder."""

    def __init__(self, folder: Path) -> None:
        """Take the work folder; nothing is read or created yet."""
        self._folder = folder / "locks"

    def note(self, pid: int | None = None, *, engine: bool = True) -> Path:
        """Write the note of a process before it acquires a lock, and return the note's file.

        Args:
            pid: The process. None: an engine that is not started yet; `note_pid` adds its process id.
            engine: It is an engine process, which a recovery may end.

        Raises:
            DeployError: The note cannot be written.
        """
        path = self._folder / f"{secrets.token_hex(8)}.json"
        since = "" if pid is None else started(pid)
        write_json(path, dataclasses.asdict(LockNote(by=this_process(), pid=pid, started=since, engine=engine)))
        return path

    def note_pid(self, note: Path, pid: int) -> None:
        """Add the process id of the started engine to its note.

        Raises:
            DeployError: The note cannot be written.
        """
        found = _read(note) or LockNote(by=this_process())
        write_json(note, dataclasses.asdict(dataclasses.replace(found, pid=pid, started=started(pid))))

    def forget(self, note: Path) -> None:
        """Remove the note of a process that has released its lock.

        Raises:
            DeployError: It cannot be removed.
        """
        remove_file(note)
        with contextlib.suppress(OSError):  # other notes remain
            self._folder.rmdir()

    def notes(self) -> list[LockNote]:
        """Return all notes; unreadable ones are skipped."""
        return [note for path in sorted(self._folder.glob("*.json")) if (note := _read(path)) is not None]

    def is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is our own and its process has ended."""
        return any(note.is_dead(lock) for note in self.notes())


def is_of_ended_container(value: Any) -> bool:
    """Return whether a lock, in JSON, is of an earlier container of this container's pod."""
    own, holder = container(), value.get("container") if isinstance(value, dict) else None
    if own is None or not isinstance(holder, dict) or holder.get("pod_uid") != own["pod_uid"]:
        return False
    return isinstance(holder.get("started"), str) and holder["started"] != own["started"]


def is_over(lock: Lock) -> bool:
    """Return whether the process of a lock does not run in this PID namespace, or started after the lock.

    The result is meaningless for a lock of another PID namespace.
    """
    if lock.pid <= 0:
        return False
    if not lives(lock.pid):
        return True
    taken, since = _seconds(lock.timestamp), started_at(lock.pid)
    return taken is not None and since is not None and since > taken + CLOCK_SLACK_S


def read_locked_message(text: str) -> list[Lock]:
    """Return the locks in a message of the CLI. Empty: it names none, or not all of them can be parsed.

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
    """Return the lock in a file. None: the file does not exist.

    An incomplete file gives a lock with process id 0, which is treated as held: its process may still be writing it.
    """
    try:
        value = read_json(path)
    except DeployError:
        return lock_of(None, path)
    return None if value is None else lock_of(value, path)


def lock_of(value: Any, path: Path | None = None) -> Lock:
    """Return the lock in Pulumi's JSON; with process id 0 for a value of another shape."""
    try:
        pid, host = int(value["pid"]), str(value["hostname"])
    except (KeyError, TypeError, ValueError):
        return Lock(path=path, host="an unknown machine", pid=0, user="an unknown user", timestamp="an unknown time")
    return Lock(path=path, host=host, pid=pid, user=str(value.get("username")), timestamp=str(value.get("timestamp")))


def _read(path: Path) -> LockNote | None:
    try:
        value: Any = read_json(path)
        return None if value is None else LockNote(**{**value, "by": Owner(**value["by"])})
    except (DeployError, KeyError, TypeError):
        return None


def _seconds(timestamp: str) -> float | None:
    """Return an RFC 3339 time in seconds since 1970. None: the text is not a time."""
    taken = parse_time(timestamp)
    return None if taken is None else taken.timestamp()
