"""The stack of one app, removed and forgotten: with a CLI that notes what it is asked for, and no engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.errors import DeployError
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi_stacks.automation.app_stack import AppStack

BASE = "urn:pulumi:default.train-1::torchx::"
COMPONENT = "torchx:index:VolcanoTrainingJob"
OURS: list[dict[str, Any]] = [
    {"type": "pulumi:pulumi:Stack", "urn": f"{BASE}pulumi:pulumi:Stack::torchx-default.train-1"},
    {"type": COMPONENT, "urn": f"{BASE}{COMPONENT}::train"},
    {"type": "torchx:index:TrainingRole", "urn": f"{BASE}{COMPONENT}$torchx:index:TrainingRole::train-trainer"},
    *(
        {"type": "pulumi:index:Stash", "urn": f"{BASE}{COMPONENT}$pulumi:index:Stash::train-{note}"}
        for note in ("intent", "record", "app")
    ),
    {"type": "pulumi:providers:kubernetes", "urn": f"{BASE}pulumi:providers:kubernetes::default_4_34_2"},
    # Of the stashes.
    {"type": "pulumi:providers:pulumi", "urn": f"{BASE}pulumi:providers:pulumi::default"},
]
OTHERS = {
    "random": {"type": "random:index/randomPet:RandomPet", "urn": f"{BASE}random:index/randomPet:RandomPet::pet"},
    "bucket": {"type": "aws:s3/bucketV2:BucketV2", "urn": f"{BASE}aws:s3/bucketV2:BucketV2::data"},
    "command": {"type": "command:local:Command", "urn": f"{BASE}command:local:Command::train-record"},
    "stash": {"type": "pulumi:index:Stash", "urn": f"{BASE}pulumi:index:Stash::best-record"},
    "child stash": {"type": "pulumi:index:Stash", "urn": f"{BASE}{COMPONENT}$pulumi:index:Stash::train-metrics"},
    "component": {"type": "acme:index:Cluster", "urn": f"{BASE}acme:index:Cluster::acme"},
}


class Lab:
    """An app's stack in a folder, and a CLI that succeeds in everything."""

    def __init__(self, make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._calls = tmp_path / "calls"
        cli = tmp_path / "bin" / "pulumi"
        cli.parent.mkdir()
        cli.write_text(f'#!/bin/sh\necho "$@" >> "{self._calls}"\n')
        cli.chmod(0o755)
        monkeypatch.setenv("PATH", str(cli.parent), prepend=":")
        self.state = tmp_path / "backend/.pulumi/stacks/torchx/default.train-1.json"
        self.state.parent.mkdir(parents=True)
        self.told: list[str] = []
        self.stack = AppStack(
            make_order().entry, tmp_path / "engine", self.told.append, lambda _config, _context: FakeCluster()
        )

    def holds(self, *resources: dict[str, Any], begun: dict[str, Any] | None = None) -> None:
        pending = [{"resource": begun, "type": "creating"}] if begun else []
        latest = {"resources": list(resources), "pending_operations": pending}
        self.state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))

    @property
    def destroyed(self) -> bool:
        return self._calls.exists() and "destroy" in self._calls.read_text()


@pytest.fixture
def lab(make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(make_order, tmp_path, monkeypatch)


def test_a_state_of_our_own_without_objects_is_swept_without_an_engine(lab: Lab) -> None:
    lab.holds(*OURS)
    lab.stack.remove()
    assert not lab.destroyed
    assert not lab.state.exists()


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_what_a_program_has_put_into_the_stack_is_destroyed_and_not_forgotten(lab: Lab, other: dict[str, Any]) -> None:
    lab.holds(*OURS, other)
    lab.stack.remove()
    assert lab.destroyed


def test_a_creation_that_was_begun_counts_as_well(lab: Lab) -> None:
    lab.holds(*OURS, begun=OTHERS["bucket"])
    lab.stack.remove()
    assert lab.destroyed


def test_a_stack_with_resources_of_a_program_is_not_forgotten_and_they_are_named(lab: Lab) -> None:
    lab.holds(*OURS, OTHERS["bucket"], OTHERS["random"])
    with pytest.raises(DeployError) as caught:
        lab.stack.forget()
    assert "also holds aws:s3/bucketV2:BucketV2 'data', random:index/randomPet:RandomPet 'pet'" in str(caught.value)
    assert "pulumi destroy" in str(caught.value)
    assert lab.state.exists()
    lab.holds(*OURS, {"type": "kubernetes:batch.volcano.sh/v1alpha1:Job", "urn": f"{BASE}x::train"})
    lab.stack.forget()
    assert not lab.state.exists()
