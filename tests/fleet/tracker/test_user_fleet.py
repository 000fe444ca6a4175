"""The apps of a backend for a user: only what has changed is read again, and a failure loses nothing."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.apps.app import AppKey
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.checkpoint import SECRET
from torchx_pulumi.stack_state.stacks import StackName, StoredStacks
from torchx_pulumi_fleet import read_fleet
from torchx_pulumi_fleet.tracker.user_fleet import LOCAL_EVERY_S, UserFleet
from torchx_pulumi_fleet.views.html import to_html

from .states import checkpoint, noted, output, saw, write_stack

NOW = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("a", "b"):
        write_stack(tmp_path, name, checkpoint(output(name), entry=noted(name)))
    write_stack(tmp_path, "empty", checkpoint())
    return tmp_path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the stacks that were read."""
    names: list[str] = []
    read = StoredStacks.read

    def note(self: StoredStacks, name: StackName) -> str | None:
        names.append(name.stack)
        return read(self, name)

    monkeypatch.setattr(StoredStacks, "read", note)
    return names


def names(changed: set[AppKey]) -> set[str]:
    return {name.stack for _, name, _ in changed}


def states(fleet: UserFleet) -> dict[str, str]:
    return {row.stack.stack: row.state.value for row in fleet.rows(NOW)}


def test_only_stacks_that_changed_are_read_again(folder: Path, reads: list[str]) -> None:
    source = UserFleet(f"file://{folder}")
    assert names(source.refresh()) == {"a", "b"}
    assert source.tracked.has_versions
    assert source.refresh() == set()
    assert sorted(reads) == ["a", "b", "empty"]
    write_stack(folder, "a", checkpoint(output("a", observed={"state": "FAILED"})))
    write_stack(folder, "c", checkpoint(output("c")))
    (folder / ".pulumi/stacks/torchx/b.json").unlink()
    assert names(source.refresh()) == {"a", "b", "c"}
    assert states(source) == {"a": "FAILED", "c": "RUNNING"}
    assert sorted(reads[3:]) == ["a", "c"]


def test_a_lock_that_comes_or_goes_is_a_change(folder: Path) -> None:
    source = UserFleet(f"file://{folder}")
    source.refresh()
    lock = folder / ".pulumi/locks/organization/torchx/a/1.json"
    lock.parent.mkdir(parents=True)
    lock.write_text("{}")
    assert names(source.refresh()) == {"a"}
    assert {row.stack.stack: row.updating for row in source.rows(NOW)} == {"a": True, "b": False}
    lock.unlink()
    assert names(source.refresh()) == {"a"}


def test_a_stack_that_cannot_be_read_is_read_again_with_each_listing(folder: Path, reads: list[str]) -> None:
    write_stack(folder, "a", "cut off")
    source = UserFleet(f"file://{folder}")
    source.refresh()
    assert source.refresh() == set()
    assert reads.count("a") == 2
    fleet = source.fleet(source.rows(NOW), NOW, unreachable={})
    assert [(item.stack.stack, "not valid JSON" in item.why) for item in fleet.broken] == [("a", True)]
    assert fleet.others == 1
    write_stack(folder, "a", checkpoint(output("a")))
    assert names(source.refresh()) == {"a"}
    assert not source.tracked.broken
    # What was read of it before stays.
    write_stack(folder, "a", "cut off")
    source.refresh()
    assert states(source) == {"a": "RUNNING", "b": "RUNNING"}
    assert [name.stack for _, name in source.tracked.broken] == ["a"]


def test_a_backend_that_cannot_be_listed_keeps_what_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = UserFleet(f"file://{folder}")
    source.refresh()

    def fail(*_: Any) -> None:
        raise DeployError("the backend is away")

    with monkeypatch.context() as patched:
        patched.setattr(StoredStacks, "versions", fail)
        with pytest.raises(DeployError):
            source.refresh()
    assert states(source) == {"a": "RUNNING", "b": "RUNNING"}
    # What was read before the locks could not be listed is not lost.
    write_stack(folder, "b", checkpoint(output("b", observed={"state": "FAILED"})))
    with monkeypatch.context() as patched:
        patched.setattr(StoredStacks, "updating", fail)
        with pytest.raises(DeployError):
            source.refresh()
    assert names(source.refresh()) == {"b"}


def test_what_this_machine_saw_is_read_again_after_a_while(folder: Path) -> None:
    now = [0.0]
    source = UserFleet(f"file://{folder}", clock=lambda: now[0])
    source.refresh()
    saw(noted("a"), {"state": "FAILED", "reason": "ExitCode", "observed_at": "2026-01-02T11:59:30Z"})
    assert source.refresh() == set()
    now[0] = LOCAL_EVERY_S
    assert names(source.refresh()) == {"a"}
    assert states(source) == {"a": "FAILED", "b": "RUNNING"}


def test_each_job_of_a_program_is_an_app_whatever_the_program_exports(folder: Path) -> None:
    whole = checkpoint(output("c"))
    stack, component = whole["checkpoint"]["latest"]["resources"]
    second = json.loads(json.dumps(component).replace("::train", "::other").replace('"c"', '"d"'))
    whole["checkpoint"]["latest"]["resources"].append(second)
    stack["outputs"] = {"url": "x"}
    write_stack(folder, "program", whole, project="mine")
    fleet = read_fleet(f"file://{folder}", now=NOW)
    rows = {row.app_id: row for row in fleet.rows if row.stack.project == "mine"}
    assert {name: (row.state.value, row.user, row.replicas_wanted) for name, row in rows.items()} == {
        "team:c": ("RUNNING", "ada", 2),
        "team:d": ("RUNNING", "ada", 2),
    }
    assert fleet.others == 1
    # Each has a place of its own on the page.
    page = to_html(fleet)
    assert all(f'"id":"{place}"' in page for place in ("torchx/a", "mine/program/team:c", "mine/program/team:d"))


def test_an_app_of_a_later_release_is_named_and_its_row_is_left_out(folder: Path) -> None:
    write_stack(folder, "a", checkpoint({**output("a"), "schema_version": 2}))
    fleet = read_fleet(f"file://{folder}", now=NOW)
    assert [row.stack.stack for row in fleet.rows] == ["b"]
    assert [(item.stack.stack, "schema version 2" in item.why) for item in fleet.broken] == [("a", True)]


def test_an_app_whose_exports_are_secret_is_named_and_shown_as_its_component_says(folder: Path) -> None:
    whole = checkpoint(output("a"))
    sealed = {SECRET: "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "sealed"}
    whole["checkpoint"]["latest"]["resources"][0]["outputs"]["torchx"] = sealed
    write_stack(folder, "a", whole)
    fleet = read_fleet(f"file://{folder}", now=NOW)
    assert {row.stack.stack: row.state.value for row in fleet.rows} == {"a": "RUNNING", "b": "RUNNING"}
    assert [(item.stack.stack, "secret as a whole" in item.why) for item in fleet.broken] == [("a", True)]
