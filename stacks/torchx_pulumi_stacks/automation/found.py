"""Apps that somebody launched, read from their stacks: in a folder from the files, elsewhere by one process."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx_pulumi.errors import DeployError
from torchx_pulumi.redaction import without_password
from torchx_pulumi.runs.entry import Place, RunEntry, Stage, read_entry
from torchx_pulumi.runs.files import read_json, write_json
from torchx_pulumi.runs.ready_run import APP_SUFFIX

from torchx_pulumi_stacks.automation.app_stack import NO_STACK
from torchx_pulumi_stacks.automation.backend import file_root, find_cli, place_environment
from torchx_pulumi_stacks.automation.engine import run_cli
from torchx_pulumi_stacks.automation.events import EngineNotes
from torchx_pulumi_stacks.automation.state_file import Checkpoint, FileStack, stack_names
from torchx_pulumi_stacks.automation.workplace import note_of_order, place_key

MIRROR_S = 300.0
"""How long what was read of a backend elsewhere is taken for true."""


def find_entry(place: Place, root: Path) -> RunEntry | None:
    """Return an app's entry from its stack. None: there is no such stack, or no app of ours in it.

    Raises:
        DeployError: The backend cannot be read.
    """
    where = f"stack {place.project}/{place.stack} in {without_password(place.backend)}"
    folder = file_root(place.backend)
    if folder is not None:
        checkpoint = FileStack(folder, place).read()
        if checkpoint is None:
            return None
        note = checkpoint.stash(APP_SUFFIX)
    else:
        note = _mirrored(place, root)
    if note is not None:
        return replace(read_entry(note, where), place=place)
    order = note_of_order(root, place)
    if order is None:
        return None
    # Its launch was begun here and is not whole.
    return replace(read_entry(order, where), place=place, stage=Stage.LAUNCHING)


def list_places(backend: str, project: str) -> list[Place]:
    """Return the stacks of a project.

    Raises:
        DeployError: The backend cannot be read.
    """
    folder = file_root(backend)
    if folder is not None:
        names = stack_names(folder, project)
    else:
        place = Place(backend=backend, project=project, stack="")
        found = json.loads(_ask(place, ["stack", "ls", "--json", "--project", project]) or "[]")
        names = sorted(str(item["name"]).rpartition("/")[2] for item in found)
    return [Place(backend=backend, project=project, stack=name) for name in names]


def _mirrored(place: Place, root: Path) -> Any:
    mirror = root / "mirror" / f"{place_key(place)}.json"
    kept = read_json(mirror)
    if isinstance(kept, dict) and 0 <= time.time() - float(kept.get("read_at", 0)) < MIRROR_S:
        return kept.get("entry")
    text = _ask(place, ["stack", "export", "--stack", place.stack])
    note = None if text is None else Checkpoint(json.loads(text).get("deployment")).stash(APP_SUFFIX)
    write_json(mirror, {"read_at": time.time(), "entry": note})
    return note


def _ask(place: Place, words: list[str]) -> str | None:
    """Return what the CLI answers. None: there is no such stack."""
    with tempfile.TemporaryDirectory(prefix="torchx-pulumi-") as folder:
        (Path(folder) / "Pulumi.yaml").write_text(json.dumps({"name": place.project, "runtime": "python"}))
        ended = run_cli(find_cli(), words, Path(folder), {**os.environ, **place_environment(place)})
    if ended.code == 0:
        return ended.stdout
    if NO_STACK.search(ended.stderr):
        return None
    error = EngineNotes(print).error(place.stack or place.project, "read", ended.stderr)
    raise DeployError(f"the Pulumi backend {without_password(place.backend)} cannot be read: {error}") from error
