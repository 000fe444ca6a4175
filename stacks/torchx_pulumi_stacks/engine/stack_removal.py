"""Removal of a stack without the engine, under Pulumi's lock: what `pulumi stack rm --remove-backups` does."""

from __future__ import annotations

import logging
from collections.abc import Callable

from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.stack_state.checkpoint import UnreadableStateError, decode_checkpoint
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, lock_folder, retried, stack_lock
from torchx_pulumi.stack_state.stacks import STACKS, SUFFIXES
from torchx_pulumi.storage.stores import Store

logger = logging.getLogger(__name__)

LIMIT_S = 60.0
"""Time within which a removal must begin, because the decision under the lock asks a cluster."""

OTHER_STATES = (".json.zst", ".yaml", ".yaml.gz", ".yaml.zst")
"""Suffixes of states that Pulumi can write and this package cannot read: a stack with one of them stays."""


def remove_stack(store: Store, place: StackRef, owned: OwnedLocks, may_go: Callable[[str], bool]) -> Forgotten:
    """Remove a stack.

    Args:
        store: The files of the backend.
        place: The stack.
        owned: Notes of our own locks on the stack; the lock of a killed process is removed.
        may_go: Called under the lock with the text of the state; returns whether the stack is removed.
    """
    try:
        outcome = retried(lambda: _remove(store, place, owned, may_go))
        if outcome is Forgotten.REMOVED:
            store.remove_if_empty(lock_folder(place))
    except PermissionError as error:
        logger.debug("stack %s is not removed: %s", place.stack, error)
        return Forgotten.LEFT
    except (OSError, UnreadableStateError) as error:
        logger.debug("stack %s is not removed yet: %s", place.stack, error)
        return Forgotten.DEFERRED
    return outcome or Forgotten.DEFERRED


def _remove(store: Store, place: StackRef, owned: OwnedLocks, may_go: Callable[[str], bool]) -> Forgotten | None:
    """Remove a stack once. None: another process holds its lock."""
    if place.organization != ORGANIZATION:
        return Forgotten.LEFT
    start = f"{STACKS}/{place.project}/{place.stack}"
    if _state(store, start) is None:
        # A lock without a state is useless, and would make an unmounted folder look like a backend.
        return _left_or_kept(store, start)
    with stack_lock(store, place, owned, limit_s=LIMIT_S) as has_time:
        if has_time is None:
            return None
        found = _state(store, start)
        if found is None:
            return _left_or_kept(store, start)
        suffix, text = found
        if not may_go(text):
            return Forgotten.KEPT
        if not has_time(1):
            logger.debug("stack %s is not removed yet: the decision took too long", place.stack)
            return Forgotten.DEFERRED
        for folder in ("history", "backups"):
            store.remove_below(f".pulumi/{folder}/{place.project}/{place.stack}")
        # The state last: while it exists, a removal that was interrupted is repeated.
        for name in (".json.bak", ".json.gz.bak", ".pulumi-tags", suffix):
            # Pulumi keeps attributes of the files of a folder next to them.
            if store.keeps_backups:
                store.remove(f"{start}{name}.attrs")
            store.remove(f"{start}{name}")
    return Forgotten.REMOVED


def _state(store: Store, start: str) -> tuple[str, str] | None:
    """Return suffix and text of a stack's only state. None: none, several, or an unreadable one."""
    if any(store.read_bytes(f"{start}{suffix}") is not None for suffix in OTHER_STATES):
        return None
    found = [(suffix, data) for suffix in SUFFIXES if (data := store.read_bytes(f"{start}{suffix}")) is not None]
    if len(found) != 1:
        return None
    suffix, data = found[0]
    return suffix, decode_checkpoint(data, suffix)


def _left_or_kept(store: Store, start: str) -> Forgotten:
    """Return why a stack without a readable state stays: it has another form of state, or does not exist."""
    exists = any(store.read_bytes(f"{start}{suffix}") is not None for suffix in (*SUFFIXES, *OTHER_STATES))
    return Forgotten.LEFT if exists else Forgotten.KEPT
