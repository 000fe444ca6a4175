from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import RunEntry, StackRef, Stage, write_entry
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.fakes import FakeCluster

PLACE = StackRef(backend="postgres://db/state", project="torchx", stack="default.train-1")

CLI = """#!/bin/sh
folder=$(dirname "$0")
echo "$@" >> "$folder/calls"
case "$*" in
  *"stack export"*) cat "$folder/state.json" 2> /dev/null && exit 0 ;;
  *destroy*) rm -f "$folder/state.json"; exit 0 ;;
  *"stack init"*) [ -e "$folder/state.json" ] && { echo "error: stack 'x' already exists" >&2; exit 1; } ;;
esac
echo "error: no stack named 'default.train-1' found" >&2
exit 1
"""


class Database:
    """A backend that only the CLI reads."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        (folder / "pulumi").write_text(CLI)
        (folder / "pulumi").chmod(0o755)

    def hold(self, entry: RunEntry) -> None:
        stash = {"type": "pulumi:index:Stash", "urn": "urn::train-app", "inputs": {"input": write_entry(entry)}}
        (self._folder / "state.json").write_text(json.dumps({"version": 3, "deployment": {"resources": [stash]}}))

    def clear(self) -> None:
        (self._folder / "state.json").unlink()

    @property
    def reads(self) -> int:
        calls = self._folder / "calls"
        return calls.read_text().count("stack export") if calls.exists() else 0


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return made


@pytest.fixture
def entry(make_order: Callable[..., Any]) -> RunEntry:
    made: RunEntry = make_order(place=PLACE, stage=Stage.LAUNCHED, uid="uid-1", cluster=FakeCluster().identity).entry
    return made


def test_an_entry_is_remembered_for_display_only_and_while_it_holds(store: Database, entry: RunEntry) -> None:
    driver = AutomationDriver()
    store.hold(entry)
    assert driver.find(PLACE) == entry
    assert driver.find(PLACE, lambda kept: kept.uid == "uid-1") == entry
    assert store.reads == 1
    store.hold(replace(entry, uid="uid-2"))
    found = driver.find(PLACE, lambda kept: kept.uid == "uid-2")
    assert found is not None
    assert (found.uid, store.reads) == ("uid-2", 2)


def test_without_a_check_the_stack_itself_is_read(store: Database, entry: RunEntry) -> None:
    driver = AutomationDriver()
    store.hold(entry)
    driver.find(PLACE)
    store.hold(replace(entry, uid="uid-2"))
    found = driver.find(PLACE)
    assert found is not None
    assert found.uid == "uid-2"
    store.clear()
    assert driver.find(PLACE) is None


def test_the_absence_of_a_stack_is_not_remembered(store: Database, entry: RunEntry) -> None:
    driver = AutomationDriver()
    assert driver.find(PLACE, lambda _: True) is None
    store.hold(entry)
    assert driver.find(PLACE, lambda _: True) == entry


def test_the_absence_that_an_earlier_release_remembered_is_not_believed(
    store: Database, entry: RunEntry, own_state: Path
) -> None:
    mirror = own_state / "engine" / "mirror" / f"{place_key(PLACE)}.json"
    mirror.parent.mkdir(parents=True)
    mirror.write_text(json.dumps({"read_at": 9e9, "entry": None}))
    store.hold(entry)
    assert AutomationDriver().find(PLACE, lambda _: True) == entry


def test_after_a_deletion_nothing_is_remembered(store: Database, entry: RunEntry) -> None:
    driver = AutomationDriver(connect=lambda *_: FakeCluster())
    store.hold(entry)
    assert driver.find(PLACE) == entry
    driver.destroy(entry, print)
    assert driver.find(PLACE, lambda _: True) is None


def test_a_launch_drops_what_was_remembered(store: Database, entry: RunEntry, make_order: Callable[..., Any]) -> None:
    driver = AutomationDriver(connect=lambda *_: FakeCluster())
    store.hold(entry)
    driver.find(PLACE)
    with pytest.raises(DeployError, match="already"):
        driver.launch(make_order(place=PLACE), print)
    reads = store.reads
    assert driver.find(PLACE, lambda _: True) == entry
    assert store.reads == reads + 1


def test_an_app_that_is_known_is_read_from_its_renamed_stack(entry: RunEntry, tmp_path: Path) -> None:
    place = replace(PLACE, backend=f"file://{tmp_path}")
    known = replace(entry, place=place)
    stacks = tmp_path / ".pulumi" / "stacks" / "torchx"
    stacks.mkdir(parents=True)
    note = {"type": "pulumi:index:Stash", "urn": "urn::train-app", "outputs": {"input": write_entry(known)}}
    (stacks / "renamed.json").write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": [note]}}}))
    driver = AutomationDriver()
    assert driver.find(place) is None
    assert driver.find(place, known=known) == replace(known, place=replace(place, stack="renamed"))
    assert driver.find(place, known=replace(known, launch="another")) is None
