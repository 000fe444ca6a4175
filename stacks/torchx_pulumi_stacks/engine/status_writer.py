"""Writer of how runs stand: updates the outputs of a stack under Pulumi's lock, without the engine.

docs/decisions/0012 describes what the engine requires and what is checked before a write.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from torchx_pulumi.apps.answer import Answer, StackChange, stored_value, without_words
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.model.object_fields import at, text_at
from torchx_pulumi.model.registration_plan import APP_SUFFIX, RECORD
from torchx_pulumi.model.requested import read_requested, write_requested
from torchx_pulumi.outputs.reader import is_of_later_release
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.stack_state.checkpoint import (
    DAMAGED,
    SECRET,
    STACK,
    WRITABLE_VERSIONS,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
    parse_checkpoint,
    runs_in,
)
from torchx_pulumi.stack_state.stack_locks import OwnedLocks, retried, stack_lock
from torchx_pulumi.stack_state.stacks import STACKS, SUFFIXES
from torchx_pulumi.storage.stores import Store

logger = logging.getLogger(__name__)


def write_status(
    store: Store,
    place: StackRef,
    change: StackChange,
    owned: OwnedLocks,
    *,
    also: Callable[[], Sequence[StackChange]] = tuple,
    program_stacks: bool = False,
) -> Written:
    """Write what is known of a run to the outputs of its stack and component, as judged under the lock of the stack.

    Args:
        store: The files of the backend.
        place: The stack.
        change: What was read, observed earlier or requested.
        owned: Notes of our own locks on the stack; the lock of a killed process is removed.
        also: Returns what is known of other runs in the stack; called only if the change can be written, and written
            with it.
        program_stacks: Write also to the stack of a user's own program.
    """
    try:
        written = retried(lambda: _write(store, place, change, owned, also, program_stacks=program_stacks))
        return written or Written(outcome=Recorded.DEFERRED)
    except PermissionError as error:
        logger.debug("stack %s is not written: %s", place.stack, error)
        return Written(outcome=Recorded.LEFT)
    except OSError as error:
        logger.debug("stack %s is not written yet: %s", place.stack, error)
        return Written(outcome=Recorded.DEFERRED)


def _write(
    store: Store,
    place: StackRef,
    change: StackChange,
    owned: OwnedLocks,
    also: Callable[[], Sequence[StackChange]],
    *,
    program_stacks: bool,
) -> Written | None:
    """Write once; see `write_status`. None: another process holds the lock, or has changed the state."""
    paths = (f"{STACKS}/{place.project}/{place.stack}{suffix}" for suffix in SUFFIXES)
    found = [(path, stored) for path in paths if (stored := store.read(path)) is not None]
    if len(found) != 1:
        # There is no checkpoint, or it has another format.
        return Written(outcome=Recorded.LEFT)
    path, before = found[0]
    try:
        # The change is made for the state that is read here, and written only if the state is the same under the lock.
        checkpoint = parse_checkpoint(decode_checkpoint(before.data, path))
        written = changed(checkpoint, change, program_stacks=program_stacks)
    except DAMAGED as error:
        return _damaged(path, error)
    if written.outcome is not Recorded.WRITTEN:
        return written
    more = also()
    try:
        others = {one.uid: changed(checkpoint, one, program_stacks=program_stacks).answer for one in more}
        written = replace(written, also={uid: answer for uid, answer in others.items() if answer is not None})
        packed = encode_checkpoint(checkpoint, path)
    except DAMAGED as error:
        return _damaged(path, error)
    # The check, the write and the release.
    requests = 4 if store.keeps_backups else 3
    with stack_lock(store, place, owned) as has_time:
        if has_time is None:
            return None
        if not has_time(requests):
            return _too_slow(place)
        # Another process may have written since.
        if not store.is_unchanged(path, before):
            return None
        if store.keeps_backups:
            if not has_time(3):
                return _too_slow(place)
            store.write(f"{path}.bak", before.data)
        if not has_time(2):
            return _too_slow(place)
        store.write(path, packed, replaces=before)
    logger.debug("stack %s: what is known of its run is written", place.stack)
    return written


def _damaged(path: str, error: Exception) -> Written:
    # Cut off, or an old engine is writing it in place.
    logger.debug("checkpoint %s cannot be read: %s", path, error)
    return Written(outcome=Recorded.DEFERRED)


def _too_slow(place: StackRef) -> Written:
    logger.debug("stack %s is not written yet: requests take too long", place.stack)
    return Written(outcome=Recorded.DEFERRED)


def changed(checkpoint: Checkpoint, change: StackChange, *, program_stacks: bool) -> Written:
    """Apply a change to the resources of a checkpoint, which are to be written if the outcome is WRITTEN."""
    resources = checkpoint.resources
    if checkpoint.version not in WRITABLE_VERSIONS:
        return Written(outcome=Recorded.LEFT)
    if not resources or checkpoint.pending:
        return Written(outcome=Recorded.DEFERRED)
    is_app = any(name.endswith(APP_SUFFIX) for name, _ in checkpoint.notes())
    if not is_app and not program_stacks:
        # The stack of a user's own program, or of an unfinished launch.
        return Written(outcome=Recorded.LEFT)
    present = [item for item in resources if not item.get("delete")]
    runs = runs_in(checkpoint, change.uid)
    if len(runs) != 1:
        return Written(outcome=Recorded.KNOWN)
    run = runs[0]
    if SECRET in json.dumps(run):
        return Written(outcome=Recorded.LEFT)
    before = Answer.of(run)
    after = change.apply(before)
    if after.observed is not before.observed and at(run, RECORD, "quotes_secrets"):
        after = replace(after, observed=without_words(after.observed))
    exports: list[tuple[dict[str, Any], str]] = []
    for outputs in (item["outputs"] for item in present if item.get("type") == STACK and item.get("outputs")):
        if "torchx" in outputs and SECRET in json.dumps(outputs if is_app else outputs["torchx"]):
            return Written(outcome=Recorded.LEFT)
        # A program may export the object of each of its jobs by another name, or something else as `torchx`.
        for name, output in outputs.items():
            if text_at(output, "app", "id") != run["app_id"] or SECRET in json.dumps(output):
                continue
            if is_of_later_release(output):
                return Written(outcome=Recorded.LEFT)
            exports.append((outputs, name))
    # All or nothing: the checkpoint may be written with the changes of other runs.
    is_new = _take(run, after)
    for outputs, name in exports:
        if not _take(outputs[name], after):
            continue
        is_new = True
        if name == "torchx":
            flat = {key: after.observed.get(key) for key in ("state", "reason")}
            outputs |= {key: value for key, value in flat.items() if isinstance(outputs.get(key), str)}
    return Written(outcome=Recorded.WRITTEN if is_new else Recorded.KNOWN, answer=after)


def _take(outputs: dict[str, Any], after: Answer) -> bool:
    """Put into an output what its stack is to say. False: the output says it already."""
    is_new = False
    if after.observed and stored_value(outputs.get("observed")) != stored_value(after.observed):
        outputs["observed"], is_new = stored_value(after.observed), True
    if after.requested != read_requested(outputs.get("requested")):
        outputs["requested"] = stored_value(write_requested(after.requested)) if after.requested else None
        is_new = True
    return is_new
