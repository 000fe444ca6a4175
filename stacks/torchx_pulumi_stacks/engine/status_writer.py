"""Writer of how runs stand: updates the outputs of a stack under Pulumi's lock, without the engine.

docs/decisions/0012 describes what the engine requires and what is checked before a write.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.model.requested import read_requested, write_requested
from torchx_pulumi.outputs.reader import is_of_later_release
from torchx_pulumi.runs.driver import Recorded, Written
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
from torchx_pulumi.stack_state.stack_locks import Hold, OwnedLocks, retried, stack_lock
from torchx_pulumi.storage.stores import Store, Stored

logger = logging.getLogger(__name__)


def write_status(
    store: Store,
    place: StackRef,
    change: StackChange,
    owned: OwnedLocks,
    *,
    program_stacks: bool = False,
) -> Written:
    """Write what is known of a run to the outputs of its stack and component, as judged under the lock of the stack.

    Args:
        store: The files of the backend.
        place: The stack.
        change: What was read, observed earlier or requested.
        owned: Notes of our own locks on the stack; the lock of a killed process is removed.
        program_stacks: Write also to the stack of a user's own program.
    """
    try:
        written = retried(lambda: _write(store, place, change, owned, program_stacks=program_stacks))
        return written or Written(outcome=Recorded.DEFERRED)
    except PermissionError as error:
        logger.debug("stack %s is not written: %s", place.stack, error)
        return Written(outcome=Recorded.LEFT)
    except OSError as error:
        logger.debug("stack %s is not written yet: %s", place.stack, error)
        return Written(outcome=Recorded.DEFERRED)


def _write(
    store: Store, place: StackRef, change: StackChange, owned: OwnedLocks, *, program_stacks: bool
) -> Written | None:
    """Write once; see `write_status`. None: another process holds the lock, or has changed the state."""
    found = _find(store, place)
    if found is None:
        return Written(outcome=Recorded.LEFT)
    path, before = found
    try:
        # The change is made for the state that is read here, and written only if the state is the same under the lock.
        text, written = changed(decode_checkpoint(before.data, path), change, program_stacks=program_stacks)
        packed = encode_checkpoint(text, path)
    except DAMAGED as error:
        # Cut off, or an old engine is writing it in place.
        logger.debug("checkpoint %s cannot be read: %s", path, error)
        return Written(outcome=Recorded.DEFERRED)
    if written.outcome is not Recorded.WRITTEN:
        return written
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
    logger.debug("stack %s: what is known of its run is written; its lock was held for %.3f s", place.stack, held_s)
    return written


def _too_slow(place: StackRef, hold: Hold) -> Written:
    logger.debug("stack %s is not written yet: one request takes %.3f s", place.stack, hold.request_s)
    return Written(outcome=Recorded.DEFERRED)


def _find(store: Store, place: StackRef) -> tuple[str, Stored] | None:
    """Return path and content of a stack's checkpoint. None: there is none, or it has another format."""
    path = f".pulumi/stacks/{place.project}/{place.stack}.json"
    found = [(name, stored) for name in (path, f"{path}.gz") if (stored := store.read(name)) is not None]
    return found[0] if len(found) == 1 else None


def changed(text: str, change: StackChange, *, program_stacks: bool) -> tuple[str, Written]:
    """Return the text of a checkpoint after a change, and the outcome; the same text unless it is WRITTEN.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    checkpoint = parse_checkpoint(text)
    resources = checkpoint.resources
    if checkpoint.version not in WRITABLE_VERSIONS:
        return text, Written(outcome=Recorded.LEFT)
    if not resources or checkpoint.pending:
        return text, Written(outcome=Recorded.DEFERRED)
    is_app = any(item.get("type") == STASH and str(item.get("urn")).endswith(APP_SUFFIX) for item in resources)
    if not is_app and not program_stacks:
        # The stack of a user's own program, or of an unfinished launch.
        return text, Written(outcome=Recorded.LEFT)
    runs = [
        place
        for place, item in enumerate(resources)
        if item.get("type") in {component_type(name) for name in scheduler_names()}
        and not item.get("delete")
        and (item.get("outputs") or {}).get("uid") == change.uid
    ]
    if len(runs) != 1:
        return text, Written(outcome=Recorded.KNOWN)
    run = resources[runs[0]]["outputs"]
    if SECRET in json.dumps(run):
        return text, Written(outcome=Recorded.LEFT)
    before = Answer.of(run)
    after = change.apply(before)
    values: dict[tuple[str | int, ...], Any] = dict(_values((*RESOURCES_PATH, runs[0], "outputs"), run, after))
    for place, item in enumerate(resources):
        if item.get("type") != STACK or item.get("delete"):
            continue
        outputs, path = item.get("outputs") or {}, (*RESOURCES_PATH, place, "outputs")
        if "torchx" in outputs and SECRET in json.dumps(outputs if is_app else outputs["torchx"]):
            return text, Written(outcome=Recorded.LEFT)
        # A program may export the object of each of its jobs by another name, or something else as `torchx`.
        for name, output in outputs.items():
            if text_at(output, "app", "id") != run["app_id"] or SECRET in json.dumps(output):
                continue
            if is_of_later_release(output):
                return text, Written(outcome=Recorded.LEFT)
            found = _values((*path, name), output, after)
            if found and name == "torchx":
                flat = {key: after.observed.get(key) for key in ("state", "reason")}
                found |= {(*path, key): value for key, value in flat.items() if isinstance(outputs.get(key), str)}
            values |= found
    if not values:
        return text, Written(outcome=Recorded.KNOWN, answer=after)
    return with_values(text, values), Written(outcome=Recorded.WRITTEN, answer=after)


def _values(path: tuple[str | int, ...], outputs: Mapping[str, Any], after: Answer) -> dict[tuple[str | int, ...], Any]:
    """Return the values of an output that differ from what its stack is to say, by their paths."""
    values: dict[str, Any] = {}
    if after.observed and _without_none(outputs.get("observed")) != _without_none(after.observed):
        values["observed"] = _without_none(after.observed)
    if after.requested != read_requested(outputs.get("requested")):
        values["requested"] = _without_none(write_requested(after.requested)) if after.requested else None
    return {(*path, name): value for name, value in values.items()}


def _without_none(value: Any) -> Any:
    """Return a value without None, as Pulumi stores it."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
