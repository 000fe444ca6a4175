"""Pulumi's locks on stacks: read, taken without the engine, and removed if they are our own and have no owner any more.

A lock names a host and a process id, which are not unique: containers share host names and count processes from 1.
Before an engine starts or a lock is written, a note stores the boot, the PID namespace and the start of the process. A
lock is removed only if it matches a note of this boot and namespace whose process has ended. A lock that is written in
a pod also names its container: the next container of the same pod removes it. docs/decisions/0012 describes what the
engine requires of a lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import hashlib
import json
import os
import random
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from torchx_pulumi.model.app_entry import ORGANIZATION, Owner, StackRef
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.stack_state.checkpoint import DAMAGED
from torchx_pulumi.storage.files import read_json, remove_file, write_json
from torchx_pulumi.storage.owners import container, is_here, lives, started, started_at, this_process
from torchx_pulumi.storage.stores import Store

T = TypeVar("T")

LOCKS = f".pulumi/locks/{ORGANIZATION}"

CLOCK_SLACK_S = 5.0
"""Tolerance for clocks that are set, and for boot times in whole seconds."""

LOCK_WITHIN_S = 300.0
"""Longest time between a note and its lock: an engine acquires its lock when it starts."""

HOLD_S = 1.0
"""Maximum time for which a writer of a status holds the lock."""

RETRY_PAUSES_S = (0.02, 0.05, 0.1)
"""Pauses between attempts while another process holds the lock."""

_seed = uuid.uuid4().hex

_held: set[str] = set()
"""Names of the locks that this process holds now. A forked child has a copy, and begins its own names otherwise."""


def _own() -> str:
    """Return the beginning of the names of this process' locks."""
    return hashlib.sha256(f"{_seed} {os.getpid()}".encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """A lock on a stack, from its file or from a message of the CLI."""

    path: str | None
    """Path of its file in the backend. None: a message of the CLI named it."""
    host: str
    pid: int
    """0: the file is incomplete. Its process may still be writing it, so it counts as held."""
    user: str
    timestamp: str
    """Time of acquisition, RFC 3339."""
    container: Any = None
    """What it says of its container, in the form of `owners.container`; not checked. None: nothing."""

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
    """Start of that process (`owners.started`). Empty: not known."""
    engine: bool = True
    """True: an engine process. False: a status writer."""

    @property
    def running(self) -> int | None:
        """Return the process id of an engine that still runs here. None: it has ended, or runs elsewhere."""
        return self.pid if self.engine and self.pid and is_here(self.by) and lives(self.pid, self.started) else None

    def is_dead(self, lock: Lock) -> bool:
        """Return whether this process took a lock and has ended."""
        taken, noted = _seconds(lock.timestamp), self.by.seen_at
        if not is_here(self.by) or lock.host != self.by.host or taken is None or noted is None:
            return False
        if not noted - CLOCK_SLACK_S <= taken <= noted + LOCK_WITHIN_S:
            return False
        if self.pid is not None:
            return lock.pid == self.pid and not lives(self.pid, self.started)
        # The writer was killed after it started the engine and before it noted the process id.
        if lives(self.by.pid, self.by.started) or lock.pid <= 0:
            return False
        since = started_at(lock.pid)
        return not lives(lock.pid) or (since is not None and since > taken + CLOCK_SLACK_S)


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
        found = _read_note(note) or LockNote(by=this_process())
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
        return [note for path in sorted(self._folder.glob("*.json")) if (note := _read_note(path)) is not None]

    def is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is our own, and its process has ended or could not remove it."""
        name, own, holder = (lock.path or "").rpartition("/")[2], container(), lock.container
        is_left = name.startswith(_own()) and name not in _held
        # Another start within the pod is that of an earlier container.
        is_earlier = (
            own is not None
            and isinstance(holder, dict)
            and holder.get("pod_uid") == own["pod_uid"]
            and isinstance(holder.get("started"), str)
            and holder["started"] != own["started"]
        )
        return is_left or is_earlier or any(note.is_dead(lock) for note in self.notes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """An acquired lock."""

    since: float
    """Time of acquisition: the middle of the request that wrote it, by the monotonic clock."""
    request_s: float
    """Duration of that request; the other requests are assumed to take as long."""
    limit_s: float = HOLD_S
    """Maximum time for which it is held."""

    def has_time(self, requests: int) -> bool:
        """Return whether a number of requests, including the release, end within the limit."""
        return time.monotonic() - self.since + requests * self.request_s <= self.limit_s


@contextlib.contextmanager
def stack_lock(store: Store, place: StackRef, owned: OwnedLocks, *, limit_s: float = HOLD_S) -> Iterator[Hold | None]:
    """Acquire the lock of a stack in Pulumi's format. None: another process holds it.

    The lock is not checked for a second holder where one request takes longer than half of the limit: the caller asks
    `Hold.has_time` before it changes anything.
    """
    folder, name, owner = lock_folder(place), f"{_own()}{str(uuid.uuid4())[8:]}.json", this_process()
    if clear_locks(store, folder, owned.is_dead):
        yield None
        return
    note = owned.note(owner.pid, engine=False)
    now = datetime.now().astimezone().isoformat()
    content: dict[str, Any] = {"pid": owner.pid, "username": _user(), "hostname": owner.host, "timestamp": now}
    # Pulumi ignores a field that it does not know.
    content |= {} if (own := container()) is None else {"container": own}
    begun = time.monotonic()
    _held.add(name)
    try:
        store.lock(f"{folder}/{name}", json.dumps(content, separators=(",", ":")).encode())
        request_s = time.monotonic() - begun
        hold = Hold(since=begun + request_s / 2, request_s=request_s, limit_s=limit_s)
        # Of two concurrent writers, at least one sees the other's lock and gives way.
        # Without time for one more request, the caller checks that itself.
        yield hold if not hold.has_time(2) or store.names(folder) == [name] else None
    finally:
        # A child that was forked in the block leaves the lock to its parent.
        if os.getpid() == owner.pid:
            # If the lock cannot be removed, its note stays.
            try:
                store.remove(f"{folder}/{name}")
            finally:
                _held.discard(name)
            owned.forget(note)


def retried(attempt: Callable[[], T | None]) -> T | None:
    """Return the result of an attempt. While that is None, another process has the lock, and it is repeated 3 times."""
    for pause_s in RETRY_PAUSES_S:
        result = attempt()
        if result is not None:
            return result
        # Two writers that gave way to each other must not retry at the same moment.
        time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311
    return attempt()


def lock_folder(place: StackRef) -> str:
    """Return the folder in which Pulumi keeps the locks of a stack."""
    return f"{LOCKS}/{place.project}/{place.stack}"


def read_locks(store: Store, folder: str) -> list[Lock]:
    """Return the locks in a folder of locks.

    Raises:
        OSError: They cannot be read.
    """
    paths = [f"{folder}/{name}" for name in store.names(folder) if name.endswith(".json")]
    return [_lock_of(data, path) for path in paths if (data := store.read_bytes(path)) is not None]


def clear_locks(store: Store, folder: str, is_dead: Callable[[Lock], bool]) -> list[Lock]:
    """Remove the dead locks in a folder of locks, and return the others.

    Raises:
        OSError: They cannot be read or removed.
    """
    stay = []
    for lock in read_locks(store, folder):
        if is_dead(lock):
            store.remove(f"{lock.path}")
            if store.keeps_backups:
                store.remove(f"{lock.path}.attrs")
        else:
            stay.append(lock)
    return stay


def clear_dead_locks(store: Store, backend: str, owned: Callable[[StackRef], OwnedLocks]) -> None:
    """Remove our own locks that are not held any more from all stacks of a backend.

    Args:
        store: Its files.
        backend: Its URL.
        owned: Returns the notes of our own locks on a stack.
    """
    for folder in sorted({path.rpartition("/")[0] for path in store.paths(LOCKS)}):
        project, _, stack = folder.rpartition("/")
        notes = owned(StackRef(backend=backend, project=project, stack=stack))
        clear_locks(store, f"{LOCKS}/{folder}", notes.is_dead)


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


def _lock_of(data: bytes, path: str) -> Lock:
    lock = Lock(path=path, host="an unknown machine", pid=0, user="an unknown user", timestamp="an unknown time")
    try:
        value: Any = json.loads(data)
        lock = dataclasses.replace(lock, container=value.get("container"))
        user, timestamp = str(value.get("username")), str(value.get("timestamp"))
        return dataclasses.replace(
            lock, host=str(value["hostname"]), pid=int(value["pid"]), user=user, timestamp=timestamp
        )
    except DAMAGED:
        return lock


def _read_note(path: Path) -> LockNote | None:
    try:
        value: Any = read_json(path)
        return None if value is None else LockNote(**{**value, "by": Owner(**value["by"])})
    except (DeployError, KeyError, TypeError):
        return None


def _seconds(timestamp: str) -> float | None:
    """Return an RFC 3339 time in seconds since 1970. None: the text is not a time."""
    taken = parse_time(timestamp)
    return None if taken is None else taken.timestamp()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user id without a name.
        return str(os.getuid())
