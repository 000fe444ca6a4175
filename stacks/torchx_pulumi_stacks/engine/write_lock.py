"""Pulumi's lock on a stack, taken without the engine while files of the stack are changed.

docs/decisions/0012 describes what the engine requires.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from getpass import getuser
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, is_of_ended_container, lock_of
from torchx_pulumi.storage.owners import container, this_process
from torchx_pulumi.storage.stores import Store

HOLD_S = 1.0
"""Maximum time for which a writer of a status holds the lock."""

_own = uuid.uuid4().hex[:8]
"""Beginning of the names of this process' locks."""

_held: set[str] = set()
"""Names of the locks that this process holds now."""


def _begin_in_child() -> None:
    """Begin without locks in a forked child: those of its parent are the locks of another process."""
    global _own
    _own = uuid.uuid4().hex[:8]
    _held.clear()


os.register_at_fork(after_in_child=_begin_in_child)

RETRY_PAUSES_S = (0.02, 0.05, 0.1)
"""Pauses between attempts while another process holds the lock."""


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


@contextmanager
def stack_lock(store: Store, place: StackRef, owned: OwnedLocks, *, limit_s: float = HOLD_S) -> Iterator[Hold | None]:
    """Acquire the lock of a stack in Pulumi's format. None: another process holds it.

    The lock is not checked for a second holder where one request takes longer than half of the limit: the caller asks
    `Hold.has_time` before it changes anything.
    """
    folder, name, owner = lock_folder(place), f"{_own}{str(uuid.uuid4())[len(_own) :]}.json", this_process()
    if _locks(store, folder, owned):
        yield None
        return
    note = owned.note(owner.pid, engine=False)
    content: dict[str, Any] = {"pid": owner.pid, "username": _user(), "hostname": owner.host, "timestamp": _now()}
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
        if name in _held:
            # If the lock cannot be removed, its note stays.
            try:
                store.remove(f"{folder}/{name}")
            finally:
                _held.discard(name)
            owned.forget(note)


def clear_dead_locks(store: Store, backend: str, owned: Callable[[StackRef], OwnedLocks]) -> None:
    """Remove our own locks that are not held any more from all stacks of a backend.

    Args:
        store: Its files.
        backend: Its URL.
        owned: Returns the notes of our own locks on a stack.
    """
    root = f".pulumi/locks/{ORGANIZATION}"
    for folder in sorted({path.rpartition("/")[0] for path in store.paths(root)}):
        project, _, stack = folder.rpartition("/")
        _locks(store, f"{root}/{folder}", owned(StackRef(backend=backend, project=project, stack=stack)))


def lock_folder(place: StackRef) -> str:
    """Return the folder in which Pulumi keeps the locks of a stack."""
    return f".pulumi/locks/{ORGANIZATION}/{place.project}/{place.stack}"


def _locks(store: Store, folder: str, owned: OwnedLocks) -> list[str]:
    """Remove our own locks that are not held any more, and return the names of the other locks."""
    stay = []
    for name in store.names(folder):
        found = store.read(f"{folder}/{name}")
        if found is None:
            continue
        value = _json(found.data)
        if _is_left(name) or is_of_ended_container(value) or owned.is_dead(lock_of(value)):
            store.remove(f"{folder}/{name}")
        else:
            stay.append(name)
    return stay


def _is_left(name: str) -> bool:
    """Return whether this process took a lock and could not remove it: the store did not answer, or was not mounted."""
    return name.startswith(_own) and name not in _held


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):
        # A container may run as a user id without a name.
        return str(os.getuid())


def _now() -> str:
    return datetime.now().astimezone().isoformat()
