"""The stacks of a fleet that is watched: only what has changed is read again, and a failure loses nothing."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.fleet.collect.fleet_stacks import LOCAL_EVERY_S, FleetStacks
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.stacks import StackName, StoredStacks
from torchx_pulumi.storage.stores import FolderStore

from .states import checkpoint, output, write_stack

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


class Reads(StoredStacks):
    """The stacks of a folder, with the names of those that were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"file://{folder}", FolderStore(folder))
        self.read_names: list[str] = []

    def read(self, name: StackName) -> str | None:
        self.read_names.append(name.stack)
        return super().read(name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("a", "b"):
        write_stack(tmp_path, name, checkpoint(output(name)))
    write_stack(tmp_path, "empty", checkpoint())
    return tmp_path


def names(changed: set[StackName]) -> set[str]:
    return {name.stack for name in changed}


def states(source: FleetStacks) -> dict[str, str]:
    return {name.stack: row.state.value for name, row in source.rows(NOW).items()}


def test_only_stacks_that_changed_are_read_again(folder: Path) -> None:
    reads = Reads(folder)
    source = FleetStacks(f"file://{folder}", stacks=reads, observations=lambda _: None)
    assert names(source.refresh()) == {"a", "b", "empty"}
    assert source.has_versions
    assert source.refresh() == set()
    assert sorted(reads.read_names) == ["a", "b", "empty"]
    write_stack(folder, "a", checkpoint(output("a", observed={"state": "FAILED"})))
    write_stack(folder, "c", checkpoint(output("c")))
    (folder / ".pulumi/stacks/torchx/b.json").unlink()
    assert names(source.refresh()) == {"a", "b", "c"}
    assert states(source) == {"a": "FAILED", "c": "RUNNING"}
    assert sorted(reads.read_names[3:]) == ["a", "c"]


def test_a_lock_that_comes_or_goes_is_a_change(folder: Path) -> None:
    source = FleetStacks(f"file://{folder}", observations=lambda _: None)
    source.refresh()
    lock = folder / ".pulumi/locks/organization/torchx/a/1.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    assert names(source.refresh()) == {"a"}
    assert [row.updating for row in source.rows(NOW).values()] == [True, False]
    lock.unlink()
    assert names(source.refresh()) == {"a"}


def test_a_stack_that_cannot_be_read_is_read_again_with_each_listing(folder: Path) -> None:
    write_stack(folder, "a", "cut off")
    reads = Reads(folder)
    source = FleetStacks(f"file://{folder}", stacks=reads, observations=lambda _: None)
    source.refresh()
    assert source.refresh() == set()
    assert reads.read_names.count("a") == 2
    fleet = source.fleet([*source.rows(NOW).values()], NOW, unreachable={})
    assert [(item.stack.stack, "not valid JSON" in item.why) for item in fleet.broken] == [("a", True)]
    assert fleet.others == 1
    write_stack(folder, "a", checkpoint(output("a")))
    assert names(source.refresh()) == {"a"}


def test_a_backend_that_cannot_be_listed_keeps_what_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FleetStacks(f"file://{folder}", observations=lambda _: None)
    source.refresh()

    def fail(_: Any) -> None:
        raise DeployError("the backend is away")

    monkeypatch.setattr(source.stacks, "versions", fail)
    with pytest.raises(DeployError):
        source.refresh()
    assert states(source) == {"a": "RUNNING", "b": "RUNNING"}


def test_what_this_machine_saw_is_read_again_after_a_while(folder: Path) -> None:
    now, seen = [0.0], {}
    source = FleetStacks(f"file://{folder}", observations=lambda name: seen.get(name.stack), clock=lambda: now[0])
    source.refresh()
    seen["a"] = {"state": "FAILED", "reason": "ExitCode", "observed_at": "2026-01-02T11:59:30Z"}
    assert source.refresh() == set()
    now[0] = LOCAL_EVERY_S
    assert names(source.refresh()) == {"a"}
    assert states(source) == {"a": "FAILED", "b": "RUNNING"}
