"""Writer of observed final states: updates the outputs of a stack under Pulumi's lock, without the engine.

docs/decisions/0012 describes what the engine requires and what is checked before a write.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.outputs.newer import is_newer, standing
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.schedulers.registry import component_type, scheduler_names
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    RESOURCES_PATH,
    SECRET,
    STACK,
    STASH,
    WRITABLE_VERSIONS,
    decode_checkpoint,
    encode_checkpoint,
    parse_checkpoint,
    with_values,
)
from torchx_pulumi.stack_state.stack_locks import OwnedLocks
from torchx_pulumi.stack_state.store import StackStore, Stored

from torchx_pulumi_stacks.engine.write_lock import RETRY_PAUSES_S, Hold, stack_lock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """An observation to write, and the conditions of the write."""

    observed: Mapping[str, Any]
    """In the shape of the output `torchx.observed`, with the `uid` of the observed object."""
    program_stacks: bool = False
    """Write also to the stack of a user's own program."""
    replaces: Mapping[str, Any] | None = None
    """The observation that the caller read in the stack: another one there is kept. None: an older one is replaced."""


def write_status(
    store: StackStore,
    place: StackRef,
    observed: Mapping[str, Any],
    owned: OwnedLocks,
    *,
    program_stacks: bool = False,
    replaces: Mapping[str, Any] | None = None,
) -> Recorded:
    """Write an observation to the outputs of a stack and its component, unless they have a newer one.

    Args:
        store: The files of the backend.
        place: The stack.
        observed: See `StatusChange`.
        owned: Notes of our own locks on the stack; the lock of a killed process is removed.
        program_stacks: See `StatusChange`.
        replaces: See `StatusChange`.
    """
    wanted = StatusChange(observed=observed, program_stacks=program_stacks, replaces=replaces)
    try:
        for pause_s in (*RETRY_PAUSES_S, None):
            outcome = _write(store, place, wanted, owned)
            if outcome is not None:
                return outcome
            if pause_s is not None:
                # Two writers that gave way to each other must not retry at the same moment.
                time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311
        return Recorded.DEFERRED
    except PermissionError as error:
        logger.debug("stack %s is not written: %s", place.stack, error)
        return Recorded.LEFT
    except OSError as error:
        logger.debug("stack %s is not written yet: %s", place.stack, error)
        return Recorded.DEFERRED


def _write(store: StackStore, place: StackRef, wanted: StatusChange, owned: OwnedLocks) -> Recorded | None:
    """Write once; see `write_status`. None: another process holds the lock, or has changed the state."""
    judged = _judge(_find(store, place), wanted)
    if isinstance(judged, Recorded):
        return judged
    path, before, packed = judged
    # The check, the write and the release.
    requests = 4 if store.keeps_backups else 3
    with stack_lock(store, place, owned) as hold:
        if hold is None:
            return None
        if not hold.has_time(requests):
            return _too_slow(place, hold)
        # Another process may have written since.
        if not store.is_unchanged(path, before):
            return None
        if store.keeps_backups:
            if not hold.has_time(3):
                return _too_slow(place, hold)
            store.write(f"{path}.bak", before.data)
        if not hold.has_time(2):
            return _too_slow(place, hold)
        store.write(path, packed, replaces=before)
        held_s = time.monotonic() - hold.since
    logger.debug("stack %s: the end is written; its lock was held for %.3f s", place.stack, held_s)
    return Recorded.WRITTEN


def _too_slow(place: StackRef, hold: Hold) -> Recorded:
    logger.debug("stack %s is not written yet: one request takes %.3f s", place.stack, hold.request_s)
    return Recorded.DEFERRED


def _find(store: StackStore, place: StackRef) -> tuple[str, Stored] | None:
    """Return path and content of a stack's checkpoint. None: there is none, or it has another format."""
    path = f".pulumi/stacks/{place.project}/{place.stack}.json"
    found = [(name, stored) for name in (path, f"{path}.gz") if (stored := store.read(name)) is not None]
    return found[0] if len(found) == 1 else None


def _judge(found: tuple[str, Stored] | None, wanted: StatusChange) -> Recorded | tuple[str, Stored, bytes]:
    """Return path, current content and new content, or why nothing is written."""
    if found is None:
        return Recorded.LEFT
    path, stored = found
    try:
        changed = change(decode_checkpoint(stored.data, path), wanted)
        return changed if isinstance(changed, Recorded) else (path, stored, encode_checkpoint(changed, path))
    except DAMAGED as error:
        # Cut off, or an old engine is writing it in place.
        logger.debug("checkpoint %s cannot be read: %s", path, error)
        return Recorded.DEFERRED


def change(text: str, wanted: StatusChange) -> str | Recorded:
    """Return the text of a checkpoint with an observation, or why it stays unchanged.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    checkpoint, observed = parse_checkpoint(text), wanted.observed
    resources = checkpoint.resources
    if checkpoint.version not in WRITABLE_VERSIONS:
        return Recorded.LEFT
    if not resources or checkpoint.pending:
        return Recorded.DEFERRED
    is_app = any(item.get("type") == STASH and str(item.get("urn")).endswith(APP_SUFFIX) for item in resources)
    if not is_app and not wanted.program_stacks:
        # The stack of a user's own program, or of an unfinished launch.
        return Recorded.LEFT
    uid = observed.get("uid")
    runs = [
        place
        for place, item in enumerate(resources)
        if item.get("type") in {component_type(name) for name in scheduler_names()}
        and not item.get("delete")
        and uid
        and (item.get("outputs") or {}).get("uid") == uid
    ]
    if len(runs) != 1:
        return Recorded.KNOWN
    run, value = resources[runs[0]]["outputs"], _without_none(observed)
    changes: dict[tuple[str | int, ...], Any] = {}
    if SECRET in json.dumps(run):
        return Recorded.LEFT
    if wanted.replaces is not None and standing(run["observed"]) != standing(wanted.replaces):
        return Recorded.KNOWN
    if is_newer(observed, run["observed"]):
        changes |= {(*RESOURCES_PATH, runs[0], "outputs", "observed"): value}
    for place, item in enumerate(resources):
        if item.get("type") != STACK or item.get("delete"):
            continue
        outputs, path = item.get("outputs") or {}, (*RESOURCES_PATH, place, "outputs")
        if "torchx" in outputs and SECRET in json.dumps(outputs if is_app else outputs["torchx"]):
            return Recorded.LEFT
        # A program may export the object of each of its jobs by another name, or something else as `torchx`.
        for name, output in outputs.items():
            if text_at(output, "app", "id") != run["app_id"] or SECRET in json.dumps(output):
                continue
            if is_newer(observed, output["observed"]):
                changes |= {(*path, name, "observed"): value}
                flat = ("state", "reason") if name == "torchx" else ()
                changes |= {(*path, key): value[key] for key in flat if isinstance(outputs.get(key), str)}
    return with_values(text, changes) if changes else Recorded.KNOWN


def _without_none(value: Any) -> Any:
    """Return a value without None, as Pulumi stores it."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
