"""Pulumi's locks on stacks: read, taken without the engine, and removed if they are our own and their owner has ended.

A lock names a host and a process id, which are not unique: containers share host names and count processes from 1. So a
lock that is written here also has its owner, with boot, PID namespace and start of the process. Before an engine
starts, a note stores its owner: a lock of the engine is removed only if it matches a note of this boot and namespace
whose process has ended. docs/decisions/0012 describes what the engine requires of a lock.
"""

from __future__ import annotations

import contextlib
import getpass
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
from torchx_pulumi.model.codec import from_json, to_json
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.stack_state.checkpoint import DAMAGED
from torchx_pulumi.storage.files import read_json, write_json
from torchx_pulumi.storage.owners import (
    Life,
    holding,
    is_here,
    life_of,
    lives,
    local_process,
    started_at,
    this_process,
)
from torchx_pulumi.storage.stores import Store

T = TypeVar("T")

HasTime = Callable[[int], bool]
"""Returns whether a number of requests, including the release of a lock, end within the time for which it is held."""

LOCKS = f".pulumi/locks/{ORGANIZATION}"

CLOCK_SLACK_S = 5.0
"""Tolerance for clocks that are set, and for boot times in whole seconds."""

LOCK_WITHIN_S = 300.0
"""Longest time between a note and its lock: an engine acquires its lock when it starts."""

HOLD_S = 1.0
"""Maximum time for which a writer of a status holds the lock."""

UNFINISHED_S = 10.0
"""Age of an unfinished file whose engine was killed: writing one takes milliseconds."""

RETRY_PAUSES_S = (0.02, 0.05, 0.1)
"""Pauses between attempts while another process holds the lock."""


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
    owner: Owner | None = None
    """The process that wrote it. None: an engine did."""

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, since {self.timestamp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockNote:
    """An engine that may hold a lock on a stack, or the process that starts it."""

    holder: Owner
    """The process, as it was noted at `seen_at`."""
    starts: bool = False
    """It starts the engine that acquires the lock, whose process id is not noted yet."""

    @property
    def running(self) -> int | None:
        """Return the process id of an engine that still runs here, or None if it has ended or runs elsewhere."""
        is_engine = not self.starts and is_here(self.holder)
        return self.holder.pid if is_engine and lives(self.holder.pid, self.holder.started) else None

    def is_dead(self, lock: Lock) -> bool:
        """Return whether this process took a lock and has ended."""
        holder, taken = self.holder, parse_time(lock.timestamp)
        if not is_here(holder) or lock.host != holder.host or taken is None or holder.seen_at is None:
            return False
        if not -CLOCK_SLACK_S <= taken.timestamp() - holder.seen_at <= LOCK_WITHIN_S:
            return False
        if lives(holder.pid, holder.started) or lock.pid <= 0:
            return False
        if not self.starts:
            return lock.pid == holder.pid
        # It was killed after it started the engine and before it noted the process id.
        since = started_at(lock.pid)
        return not lives(lock.pid) or (since is not None and since > taken.timestamp() + CLOCK_SLACK_S)


class OwnedLocks:
    """The notes of one stack, in its work folder."""

    def __init__(self, folder: Path) -> None:
        """Take the work folder; nothing is read or created yet."""
        self._folder = folder / "locks"

    def note(self, pid: int | None = None, *, replaces: Path | None = None) -> Path:
        """Write the note of an engine before it acquires a lock, and return the note's file.

        Args:
            pid: The engine. None: this process starts it next; a second note has its process id.
            replaces: The note before this one, if any.

        Raises:
            DeployError: The note cannot be written.
        """
        path = replaces or self._folder / f"{secrets.token_hex(8)}.json"
        holder = local_process(os.getpid() if pid is None else pid)
        write_json(path, to_json(LockNote(holder=holder, starts=pid is None)))
        return path

    def notes(self) -> list[LockNote]:
        """Return all notes; unreadable ones are skipped."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(DeployError, ValueError):
                found.append(from_json(LockNote, read_json(path)))
        return found

    def is_dead(self, lock: Lock) -> bool:
        """Return whether a lock is our own, and its process has ended or could not remove it."""
        if lock.owner is not None:
            return lock.user == _user() and life_of(lock.owner) is Life.ENDED
        return any(note.is_dead(lock) for note in self.notes())


@contextlib.contextmanager
def stack_lock(store: Store, place: StackRef, owned: OwnedLocks) -> Iterator[HasTime | None]:
    """Acquire the lock of a stack in Pulumi's format, and yield None if another process holds it.

    The lock is not checked for a second holder if one request takes longer than half of the limit: the caller asks
    the yielded function before it changes anything.
    """
    folder, name, owner = lock_folder(place), f"{uuid.uuid4()}.json", this_process()
    if clear_locks(store, folder, owned.is_dead):
        yield None
        return
    # Pulumi ignores fields that it does not know.
    content: dict[str, Any] = {
        "pid": owner.pid,
        "username": _user(),
        "hostname": owner.host,
        "timestamp": datetime.now().astimezone().isoformat(),
        "owner": to_json(owner),
    }
    begun = time.monotonic()
    with holding(owner):
        try:
            store.lock(f"{folder}/{name}", json.dumps(content, separators=(",", ":")).encode())
            # The other requests are assumed to take as long, and the lock to be there since the middle of this one.
            request_s = time.monotonic() - begun

            def has_time(requests: int) -> bool:
                return time.monotonic() - begun + (requests - 0.5) * request_s <= HOLD_S

            # Of two concurrent writers, at least one sees the other's lock and gives way.
            # Without time for one more request, the caller checks that itself.
            yield has_time if not has_time(2) or _is_alone(store, folder, name) else None
        finally:
            # A child that was forked in the block leaves the lock to its parent.
            if os.getpid() == owner.pid:
                store.remove(f"{folder}/{name}")


def retried(attempt: Callable[[], T | None]) -> T | None:
    """Return the result of an attempt. While that is None, another process has the lock, and it is repeated 3 times."""
    for pause_s in RETRY_PAUSES_S:
        result = attempt()
        if result is not None:
            return result
        # Two writers that gave way to each other must not retry at the same moment.
        time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311
    return attempt()


def _is_alone(store: Store, folder: str, name: str) -> bool:
    # A killed engine may have left the attributes of a lock, which Pulumi does not take for one.
    return [path for path in store.paths(folder) if not path.endswith(".attrs")] == [name]


def lock_folder(place: StackRef) -> str:
    """Return the folder in which Pulumi keeps the locks of a stack."""
    return f"{LOCKS}/{place.project}/{place.stack}"


def read_locks(store: Store, folder: str) -> list[Lock]:
    """Return the locks in a folder of locks.

    Raises:
        OSError: They cannot be read.
    """
    paths = [f"{folder}/{name}" for name in store.paths(folder) if name.endswith(".json")]
    return [_lock_of(data, path) for path in paths if (data := store.read_bytes(path)) is not None]


def clear_locks(store: Store, folder: str, is_dead: Callable[[Lock], bool]) -> list[Lock]:
    """Remove the dead locks in a folder of locks, and return the others.

    Removed as well are unfinished files of killed engines: Pulumi cannot read them, and then refuses every command.

    Raises:
        OSError: They cannot be read or removed.
    """
    for path, version in store.versions(folder).items() if store.keeps_backups else ():
        if path.endswith(".tmp") and time.time() - int(version.partition(".")[0]) / 1e9 > UNFINISHED_S:
            store.remove(f"{folder}/{path}")
    stay = []
    for lock in read_locks(store, folder):
        if is_dead(lock):
            store.remove(f"{lock.path}")
            if store.keeps_backups:
                store.remove(f"{lock.path}.attrs")
        else:
            stay.append(lock)
    return stay


def clear_dead_locks(
    store: Store, backend: str, owned: Callable[[StackRef], OwnedLocks], only: StackRef | None = None
) -> None:
    """Remove our own locks that are not held any more from the stacks of a backend, or from one of its stacks.

    `owned` returns the notes of our own locks on a stack.
    """
    if only is not None:
        places = [only]
    else:
        folders = sorted({path.rpartition("/")[0] for path in store.paths(LOCKS)})
        names = (folder.rpartition("/") for folder in folders)
        places = [StackRef(backend=backend, project=project, stack=stack) for project, _, stack in names]
    for place in places:
        clear_locks(store, lock_folder(place), owned(place).is_dead)


def read_locked_message(text: str) -> list[Lock]:
    """Return the locks in a message of the CLI; empty if it names none or one of them cannot be parsed.

    >>> text = '''error: the stack is currently locked by 1 lock(s). Either wait ...
    ...   s3://b/.pulumi/locks/x.json: created by Jane Doe@laptop (pid 12) at 2026-01-01T00:00:00Z'''
    >>> [str(lock) for lock in read_locked_message(text)]
    ['Jane Doe@laptop, process 12, since 2026-01-01T00:00:00Z']
    """
    count = re.search(r"currently locked by (\d+) lock", text)
    named = re.findall(r"created by (.*?)@([^@\s]*) \(pid (\d+)\) at (\S+)", text)
    found = [Lock(path=None, host=host, pid=int(pid), user=user, timestamp=when) for user, host, pid, when in named]
    return found if count is not None and len(found) == int(count[1]) else []


def _lock_of(data: bytes, path: str) -> Lock:
    """Return the lock in a file. One that is cut off, or whose owner is not valid, has the process id 0."""
    try:
        value: Any = json.loads(data)
        return Lock(
            path=path,
            host=str(value["hostname"]),
            pid=int(value["pid"]),
            user=str(value.get("username")),
            timestamp=str(value.get("timestamp")),
            owner=from_json(Owner, value["owner"]) if "owner" in value else None,
        )
    except DAMAGED:
        return Lock(path=path, host="an unknown machine", pid=0, user="an unknown user", timestamp="an unknown time")


def _user() -> str:
    """Return the name of this user, as the locks of this process have it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user id without a name.
        return str(os.getuid())
