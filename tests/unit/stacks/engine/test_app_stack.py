"""The stack of one app, removed and forgotten: with a CLI that notes what it is asked for, and no engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.testing import FakeCluster
from torchx_pulumi_stacks.engine.app_stack import NO_STACK, AppStack

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
        self.cli = cli = tmp_path / "bin" / "pulumi"
        cli.parent.mkdir()
        cli.write_text(f'#!/bin/sh\necho "$@" >> "{self._calls}"\n')
        cli.chmod(0o755)
        monkeypatch.setenv("PATH", str(cli.parent), prepend=":")
        self.state = tmp_path / "backend/.pulumi/stacks/torchx/default.train-1.json"
        self.state.parent.mkdir(parents=True)
        self.told: list[str] = []
        self.cluster = FakeCluster()
        self.stack = AppStack(
            make_order().entry, tmp_path / "engine", self.told.append, lambda _config, _context: self.cluster
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


def test_a_deletion_that_meets_one_by_a_colleague_ends_well_once_the_stack_is_gone(lab: Lab) -> None:
    lab.holds(*OURS, OTHERS["bucket"])
    lab.cli.write_text(f'#!/bin/sh\nrm "{lab.state}"\necho "panic: invalid memory address" >&2\nexit 2\n')
    lab.stack.remove()
    lab.holds(*OURS, OTHERS["bucket"])
    lab.cli.write_text("#!/bin/sh\necho 'panic: invalid memory address' >&2\nexit 2\n")
    with pytest.raises(DeployError, match="cannot be deleted"):
        lab.stack.remove()


def test_a_colleague_with_another_passphrase_deletes_the_recorded_object_and_no_other_of_its_name(lab: Lab) -> None:
    lab.cli.write_text("#!/bin/sh\necho 'error: getting secrets manager: incorrect passphrase' >&2\nexit 255\n")
    made = lab.cluster.create(VOLCANO_JOB, "default", {"metadata": {"name": "train-1"}})
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": made["metadata"]}
    kind = "kubernetes:batch.volcano.sh/v1alpha1:Job"
    recorded = {"type": kind, "urn": f"{BASE}{kind}::train-1", "inputs": job, "outputs": job}
    lab.holds(*OURS, recorded, OTHERS["bucket"])
    with pytest.raises(DeployError, match="another passphrase"):
        lab.stack.remove()
    lab.holds(*OURS, recorded)
    lab.stack.remove()
    assert lab.cluster.get(VOLCANO_JOB, "default", "train-1") is None
    assert not lab.state.exists()
    assert any("another passphrase" in line for line in lab.told)


@pytest.mark.parametrize(
    "said",
    [
        "error: no stack named 'default.train-1' found",
        'error: failed to load checkpoint: blob (key ".pulumi/stacks/torchx/a.json") (code=NotFound): operation error '
        "S3: GetObject, https response error StatusCode: 404, RequestID: , HostID: x=, NoSuchKey: ",
    ],
)
def test_a_stack_that_went_while_it_was_read_is_gone(said: str) -> None:
    assert NO_STACK.search(said)
    assert not NO_STACK.search('error: failed to load checkpoint: blob (key "a") (code=PermissionDenied): 403')
