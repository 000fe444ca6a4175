"""Apps that somebody launched, read from their stacks: in a folder from the files, elsewhere by one process."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx_pulumi.model.app_entry import ORGANIZATION, RunEntry, StackRef, Stage, read_entry
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.model.redaction import without_password
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.runs.driver import Still
from torchx_pulumi.stack_state.backend import find_cli, place_environment
from torchx_pulumi.stack_state.files import read_json, remove_file, write_json
from torchx_pulumi.stack_state.folder_backend import STATES, backend_refused, stack_names
from torchx_pulumi.stack_state.places import backend_folder
from torchx_pulumi.stack_state.presence import names_in
from torchx_pulumi.stack_state.state_file import BROKEN, Checkpoint, FileStack, read_latest

from torchx_pulumi_stacks.engine.app_stack import NO_STACK
from torchx_pulumi_stacks.engine.event_log import EngineNotes
from torchx_pulumi_stacks.engine.process import run_cli
from torchx_pulumi_stacks.engine.work_dir import note_of_order, place_key

MIRROR_S = 300.0
"""How long an entry from a backend that is no folder is remembered, for display only."""


def find_entry(place: StackRef, root: Path, still: Still | None = None) -> RunEntry | None:
    """Return an app's entry from its stack. None: there is no such stack, or no app of ours in it.

    Args:
        place: The stack.
        root: Where the engine works.
        still: See `torchx_pulumi.runs.driver.Driver.find`.

    Raises:
        BackendAbsentError: The folder of the backend is not there, and no launch was begun here.
        DeployError: The backend cannot be read.
    """
    where = f"stack {place.project}/{place.stack} in {without_password(place.backend)}"
    folder = backend_folder(place.backend)
    if folder is not None:
        try:
            checkpoint = FileStack(folder, place).read()
        except BackendAbsentError:
            if note_of_order(root, place) is None:
                raise
            note = None
        else:
            if checkpoint is None:
                return None
            note = checkpoint.stash(APP_SUFFIX)
    else:
        kept = None if still is None else _remembered(place, root, where)
        if kept is not None and still is not None and still(kept):
            return kept
        note = _read_elsewhere(place, root)
    if note is not None:
        return replace(read_entry(note, where), place=place)
    order = note_of_order(root, place)
    if order is None:
        return None
    # Its launch was begun here and is not whole.
    return replace(read_entry(order, where), place=place, stage=Stage.LAUNCHING)


def list_places(backend: str, project: str) -> list[StackRef]:
    """Return the stacks of a project.

    Raises:
        DeployError: The backend cannot be read.
    """
    folder = backend_folder(backend)
    if folder is not None:
        names = stack_names(folder, project, backend)
    else:
        place = StackRef(backend=backend, project=project, stack="")
        found = json.loads(_ask(place, ["stack", "ls", "--json", "--project", project]) or "[]")
        listed = sorted(str(item["name"]) for item in found)
        return [_listed_place(backend, project, name) for name in listed]
    return [StackRef(backend=backend, project=project, stack=name) for name in names]


def _listed_place(backend: str, project: str, name: str) -> StackRef:
    """Return the place of a stack as the CLI lists it in a project of its name: `stack`, with or without its owner."""
    parts = name.split("/")
    organization = parts[0] if len(parts) == 3 or (len(parts) == 2 and parts[0] != project) else ORGANIZATION
    return StackRef(backend=backend, project=project, stack=parts[-1], organization=organization)


def find_moved(root: Path, entry: RunEntry) -> StackRef | None:
    """Return where the stack of an app is now, after `pulumi stack rename`. None: it is not in this folder.

    Every stack of the folder is read; a stack that cannot be read is left out.

    Raises:
        DeployError: The folder cannot be read.
    """
    stacks = root / ".pulumi" / "stacks"
    try:
        paths = [
            stacks / project / name
            for project in names_in(stacks)
            for name in names_in(stacks / project)
            if name.endswith(STATES)
        ]
    except OSError as error:
        raise backend_refused(entry.place.backend, error) from error
    for path in paths:
        try:
            note = Checkpoint(read_latest(path, holds=entry.launch)).stash(APP_SUFFIX) or {}
        except (OSError, *BROKEN):
            continue
        if (note.get("app_id"), note.get("launch")) == (entry.app_id, entry.launch):
            stack = path.name.removesuffix(".gz").removesuffix(".json")
            return replace(entry.place, project=path.parent.name, stack=stack)
    return None


def drop_remembered(place: StackRef, root: Path) -> None:
    """Drop what is remembered of a stack, because it is about to change or has changed.

    Raises:
        DeployError: The file cannot be removed.
    """
    remove_file(_mirror(place, root))


def _mirror(place: StackRef, root: Path) -> Path:
    return root / "mirror" / f"{place_key(place)}.json"


def _remembered(place: StackRef, root: Path, where: str) -> RunEntry | None:
    kept = read_json(_mirror(place, root))
    # 0.1.0 also kept that there was no entry.
    if not isinstance(kept, dict) or not kept.get("entry"):
        return None
    if not 0 <= time.time() - float(kept.get("read_at", 0)) < MIRROR_S:
        return None
    return replace(read_entry(kept["entry"], where), place=place)


def _read_elsewhere(place: StackRef, root: Path) -> Any:
    """Read a stack by one process, and remember its entry. That there is none is not remembered."""
    text = _ask(place, ["stack", "export", "--stack", place.cli_name])
    note = None if text is None else Checkpoint(json.loads(text).get("deployment")).stash(APP_SUFFIX)
    if note is None:
        drop_remembered(place, root)
    else:
        write_json(_mirror(place, root), {"read_at": time.time(), "entry": note})
    return note


def _ask(place: StackRef, words: list[str]) -> str | None:
    """Return what the CLI answers. None: there is no such stack."""
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-") as folder:
        (Path(folder) / "Pulumi.yaml").write_text(json.dumps({"name": place.project, "runtime": "python"}))
        ended = run_cli(find_cli(), words, Path(folder), place_environment(place))
    if ended.code == 0:
        return ended.stdout
    if NO_STACK.search(ended.stderr):
        return None
    error = EngineNotes(print).error(place.stack or place.project, "read", ended.stderr, code=ended.code)
    raise DeployError(f"the Pulumi backend {without_password(place.backend)} cannot be read: {error}") from error
