"""Lookup of an app's entry in its stack, with a short cache for backends that are not folders."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage, read_entry
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.runs.driver import Still
from torchx_pulumi.stack_state.backend import backend_folder
from torchx_pulumi.stack_state.checkpoint import DAMAGED, parse_checkpoint
from torchx_pulumi.stack_state.stacks import StoredStacks, read_checkpoint
from torchx_pulumi.storage.files import read_json, remove_file, write_json
from torchx_pulumi.storage.stores import FolderStore

from torchx_pulumi_stacks.engine.work_dir import place_key, requested_entry

CACHE_S = 300.0
"""Lifetime of a cached entry, which is used for display only."""


def find_entry(ref: StackRef, root: Path, still: Still | None = None) -> RunEntry | None:
    """Return an app's entry from its stack. None: the stack does not exist, or holds no app of ours.

    Args:
        ref: The stack.
        root: Work folder of the engine.
        still: See `torchx_pulumi.runs.driver.Driver.find`.

    Raises:
        BackendAbsentError: The folder of the backend is absent, and no launch was started from here.
        DeployError: The backend cannot be read.
    """
    where = f"stack {ref.project}/{ref.stack} in {without_password(ref.backend)}"
    is_folder = backend_folder(ref.backend) is not None
    cached = None if is_folder or still is None else _cached(ref, root, where)
    if cached is not None and still is not None and still(cached):
        return cached
    try:
        checkpoint = read_checkpoint(ref)
    except BackendAbsentError:
        if requested_entry(root, ref) is None:
            raise
        note = None
    else:
        note = None if checkpoint is None else checkpoint.stash(APP_SUFFIX)
        if is_folder and checkpoint is None:
            return None
    if not is_folder and note is None:
        # The absence of an entry is not cached.
        drop_cached(ref, root)
    elif not is_folder:
        write_json(_cache_file(ref, root), {"read_at": time.time(), "entry": note})
    if note is not None:
        return replace(read_entry(note, where), place=ref)
    requested = requested_entry(root, ref)
    # The launch started here and has not finished.
    return None if requested is None else replace(read_entry(requested, where), place=ref, stage=Stage.LAUNCHING)


def find_renamed(root: Path, entry: RunEntry) -> StackRef | None:
    """Return the place of an app's stack after `pulumi stack rename`. None: not in this folder.

    Every stack of a project in the folder is read; unreadable ones are skipped.

    Raises:
        DeployError: The folder cannot be read.
    """
    stacks = StoredStacks(entry.place.backend, FolderStore(root))
    for name in stacks.versions():
        # The engine does not see a stack without a project.
        if name.project:
            with contextlib.suppress(DeployError, *DAMAGED):
                text = stacks.read(name) or ""
                note = (parse_checkpoint(text).stash(APP_SUFFIX) or {}) if entry.launch in text else {}
                if (note.get("app_id"), note.get("launch")) == (entry.app_id, entry.launch):
                    return replace(entry.place, project=name.project, stack=name.stack)
    return None


def drop_cached(ref: StackRef, root: Path) -> None:
    """Remove the cached entry of a stack that changes.

    Raises:
        DeployError: The file cannot be removed.
    """
    remove_file(_cache_file(ref, root))


def _cache_file(ref: StackRef, root: Path) -> Path:
    return root / "mirror" / f"{place_key(ref)}.json"


def _cached(ref: StackRef, root: Path, where: str) -> RunEntry | None:
    kept = read_json(_cache_file(ref, root))
    if not isinstance(kept, dict) or not kept.get("entry"):
        return None
    if not 0 <= time.time() - float(kept.get("read_at", 0)) < CACHE_S:
        return None
    return replace(read_entry(kept["entry"], where), place=ref)
