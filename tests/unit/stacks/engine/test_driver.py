"""What the driver concludes from the files of a backend, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage, write_entry
from torchx_pulumi.model.errors import BackendAbsentError, DeployError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.checkpoint import Checkpoint
from torchx_pulumi.stack_state.stacks import FolderStack
from torchx_pulumi_stacks.engine import AutomationDriver
from torchx_pulumi_stacks.engine.recovery import is_whole
from torchx_pulumi_stacks.engine.work_dir import place_key

from tests.fakes import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def driver(cluster: FakeCluster) -> AutomationDriver:
    return AutomationDriver(connect=lambda *_: cluster)


@pytest.fixture
def entry(make_order: Callable[..., Any], cluster: FakeCluster) -> RunEntry:
    """An app that was launched: its object is in the cluster."""
    launched: RunEntry = replace(make_order().entry, stage=Stage.LAUNCHED)
    metadata = {"name": "train-1", "namespace": "default", "labels": {labels.LAUNCH: launched.launch}}
    manifest = {"apiVersion": VOLCANO_JOB.api_version, "kind": VOLCANO_JOB.kind, "metadata": metadata}
    cluster.create(VOLCANO_JOB, "default", manifest)
    return launched


def write_stack(root: Path, entry: RunEntry, stack: str) -> Path:
    """Write the stack of an app whose objects are not in the state, as `forget_unreachable` may leave one."""
    stash = {
        "type": "pulumi:index:Stash",
        "urn": "urn:pulumi:s::torchx::torchx:index:VolcanoTrainingJob$pulumi:index:Stash::train-app",
        "outputs": {"input": write_entry(entry)},
    }
    path = root / ".pulumi/stacks" / entry.place.project / f"{stack}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": [stash]}}}))
    return path


@pytest.mark.parametrize("mounted", [False, True])
def test_with_a_shared_folder_that_is_not_mounted_nothing_is_concluded(
    driver: AutomationDriver, entry: RunEntry, cluster: FakeCluster, tmp_path: Path, mounted: bool
) -> None:
    if mounted:
        (tmp_path / "backend").mkdir()
    deleting = replace(entry, stage=Stage.DELETING)
    for call in (
        lambda: driver.destroy(deleting, print),
        lambda: driver.destroy(deleting, print, forget_unreachable=True),
        lambda: driver.recover(deleting, print),
        lambda: driver.recover(replace(entry, stage=Stage.LAUNCHING), print),
        lambda: driver.find(entry.place),
        lambda: driver.places(entry.place.backend, "torchx"),
    ):
        with pytest.raises(BackendAbsentError, match="Mount it"):
            call()
    assert cluster.get(VOLCANO_JOB, "default", "train-1") is not None
    assert list(tmp_path.glob("backend/*")) == []


def test_a_stack_that_is_gone_from_its_folder_is_said_and_its_job_deleted(
    driver: AutomationDriver, entry: RunEntry, cluster: FakeCluster, tmp_path: Path
) -> None:
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    told: list[str] = []
    driver.destroy(replace(entry, stage=Stage.DELETING), told.append)
    assert cluster.get(VOLCANO_JOB, "default", "train-1") is None
    assert "its stack torchx/default.train-1 is gone from" in told[0]


def test_a_launch_that_was_begun_here_is_known_without_its_folder(
    driver: AutomationDriver, entry: RunEntry, own_state: Path
) -> None:
    order = own_state / "engine/work" / place_key(entry.place) / "order.json"
    order.parent.mkdir(parents=True)
    order.write_text(json.dumps({"entry": write_entry(entry)}))
    found = driver.find(entry.place)
    assert found is not None
    assert (found.app_id, found.stage) == (entry.app_id, Stage.LAUNCHING)


def test_a_renamed_stack_is_deleted_under_its_new_name(
    driver: AutomationDriver, entry: RunEntry, tmp_path: Path
) -> None:
    path = write_stack(tmp_path / "backend", entry, "renamed")
    told: list[str] = []
    now = driver.recover(entry, told.append)
    assert now is not None
    assert now.place == replace(entry.place, stack="renamed")
    assert told == ["default:train-1: its stack torchx/default.train-1 is torchx/renamed now"]
    driver.destroy(replace(entry, stage=Stage.DELETING), print)
    assert not path.exists()


def test_a_launch_into_a_folder_of_the_old_layout_is_refused_before_anything_is_made(
    driver: AutomationDriver, make_order: Callable[..., Any], tmp_path: Path, own_state: Path
) -> None:
    stacks = tmp_path / "backend/.pulumi/stacks"
    stacks.mkdir(parents=True)
    (stacks / "mine.json").write_text("{}")
    order = make_order()
    with pytest.raises(DeployError, match="old layout"):
        driver.launch(order, print)
    assert [path.name for path in stacks.parent.rglob("*")] == ["stacks", "mine.json"]
    assert not (own_state / "engine/work" / place_key(order.entry.place)).exists()
    assert not FolderStack(tmp_path / "backend", order.entry.place).exists()


def test_a_launch_is_whole_once_its_note_and_its_record_are_in_the_state() -> None:
    note = {"type": "pulumi:index:Stash", "urn": "a::train-app", "outputs": {"input": {"uid": "u"}}}
    component = {"type": "torchx:index:VolcanoTrainingJob", "urn": "a::train"}
    noted = {**component, "outputs": {"record": {"uid": "u"}}}
    found = [is_whole(Checkpoint({"resources": each})) for each in ([note], [note, component], [noted], [noted, note])]
    assert found == [False, False, False, True]
