"""What a deletion and a recovery do where the state or the kubeconfig leads to another cluster, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.kube.kubeconfig import api_server, find_access
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry, Stage
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.runs.registration import plan_registration
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.stacks import FolderStack
from torchx_pulumi_stacks import forks
from torchx_pulumi_stacks.engine.app_stack import AppStack
from torchx_pulumi_stacks.engine.driver import AutomationDriver

from tests.fakes import FakeCluster

HERE = "https://here.example.com"
PROVIDER = "urn:pulumi:default.train-1::torchx::pulumi:providers:kubernetes::default_4_0"
COMPONENT = "urn:pulumi:default.train-1::torchx::torchx:index:VolcanoTrainingJob"
JOB_URN = f"{COMPONENT}$kubernetes:batch.volcano.sh/v1alpha1:Job::train"


class World:
    """A cluster with a job, and the state of its stack in a folder; no Pulumi is on PATH."""

    def __init__(self, order: Any, folder: Path) -> None:
        self.cluster = FakeCluster(api_server=HERE)
        made = self.cluster.create(
            VOLCANO_JOB,
            "default",
            {
                "apiVersion": VOLCANO_JOB.api_version,
                "kind": VOLCANO_JOB.kind,
                "metadata": {"name": "train-1", "labels": {labels.LAUNCH: order.entry.launch}},
            },
        )
        self.entry: RunEntry = replace(
            order.entry,
            uid=made["metadata"]["uid"],
            cluster=self.cluster.identify().key,
            cluster_identity=self.cluster.identify(),
            stage=Stage.LAUNCHED,
        )
        self.folder = folder
        self.order = order
        self.job = made
        self.files = FolderStack(folder / "backend", order.entry.place)
        # A backend that is not there at all would not be taken for one whose stack is lost.
        (folder / "backend" / ".pulumi").mkdir(parents=True)

    def kubeconfig(self, name: str, *contexts: str, server: str = HERE) -> str:
        """Write a kubeconfig whose contexts lead to one address; the first is the current one."""
        path = self.folder / name
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "contexts": [{"name": context, "context": {"cluster": "c"}} for context in contexts],
            "current-context": contexts[0],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def write_state(self, *more: dict[str, Any], **provider: str) -> None:
        """Write the state as the engine leaves it, with these inputs of the provider."""
        made = {**self.job, "apiVersion": VOLCANO_JOB.api_version, "kind": VOLCANO_JOB.kind}
        resources = [
            {"urn": PROVIDER, "type": "pulumi:providers:kubernetes", "inputs": provider},
            {"urn": JOB_URN, "type": "kubernetes:batch.volcano.sh/v1alpha1:Job", "provider": f"{PROVIDER}::id",
             "inputs": made, "outputs": made},
            *more,
        ]  # fmt: skip
        self.files.path.parent.mkdir(parents=True, exist_ok=True)
        self.files.path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": resources}}}))

    def connect(self, kubeconfig: str | None, context: str | None) -> FakeCluster:
        address = api_server(find_access(kubeconfig, context))
        return self.cluster if address == self.cluster.api_server else FakeCluster(api_server=address)

    def remove(self, entry: RunEntry) -> None:
        AppStack(entry, self.folder / "engine", print, self.connect).remove()

    @property
    def present(self) -> bool:
        return self.cluster.get(VOLCANO_JOB, "default", "train-1") is not None


@pytest.fixture
def world(make_order: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("PATH", str(tmp_path))
    return World(make_order(), tmp_path)


@pytest.mark.parametrize("way", ["context", "kubeconfig"])
def test_a_colleague_deletes_by_own_access_where_the_state_names_the_launchers(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    theirs = str(world.folder / "alice" / "config")
    world.write_state(**({"context": "alice@lab"} if way == "context" else {"kubeconfig": theirs}))
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("bob", "bob@lab"))
    world.remove(replace(world.entry, ambient_kubeconfig=theirs, ambient_context="alice@lab"))
    assert not world.present
    assert not world.files.exists()


def test_a_context_of_the_same_name_that_leads_elsewhere_is_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_state(context="lab")
    mine = json.loads(Path(world.kubeconfig("bob", "mine", "lab")).read_text())
    mine["clusters"].append({"name": "other", "cluster": {"server": "https://other.example.com"}})
    mine["contexts"][1]["context"]["cluster"] = "other"
    (world.folder / "bob").write_text(json.dumps(mine))
    monkeypatch.setenv("KUBECONFIG", str(world.folder / "bob"))
    world.remove(replace(world.entry, ambient_kubeconfig="/no/such/config", ambient_context="lab"))
    assert not world.present


def test_where_the_providers_lead_to_the_cluster_the_engine_deletes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_state(context="lab")
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("bob", "lab"))
    with pytest.raises(DeployError, match="pulumi` is not on PATH"):
        world.remove(world.entry)
    assert world.present


def test_without_the_engine_only_the_recorded_objects_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.cluster.create(POD, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    gone = {**other, "metadata": {**other["metadata"], "uid": "of-a-pod-before"}}
    pod = {"type": "kubernetes:core/v1:Pod", "urn": f"{COMPONENT}$kubernetes:core/v1:Pod::p", "outputs": gone}
    world.write_state({**pod, "inputs": gone}, context="alice@lab")
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("bob", "bob@lab"))
    world.remove(world.entry)
    assert not world.present
    assert world.cluster.get(POD, "default", "p") is not None


def test_a_stack_that_holds_more_than_the_app_is_left_to_its_program(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = {"type": "aws:s3:Bucket", "urn": "urn:pulumi:default.train-1::torchx::aws:s3:Bucket::b"}
    world.write_state(bucket, context="alice@lab")
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("bob", "bob@lab"))
    with pytest.raises(DeployError, match="also holds aws:s3:Bucket"):
        world.remove(world.entry)
    assert world.present


@pytest.mark.parametrize("state", ["whole", "lost", "of a launch that was interrupted"])
def test_no_branch_of_a_deletion_acts_in_another_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    if state != "lost":
        world.write_state()
    entry = world.entry if state != "of a launch that was interrupted" else replace(world.entry, uid=None)
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("mine", "lab", server="https://other.example.com"))
    with pytest.raises(ClusterError, match="is another one"):
        world.remove(entry)
    assert world.files.exists() is (state != "lost")
    AutomationDriver(world.folder / "engine", connect=world.connect).destroy(entry, print, forget_unreachable=True)
    assert not world.files.exists()
    assert world.present


def test_a_launch_that_was_interrupted_is_not_finished_in_another_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_state()
    entry = replace(world.entry, stage=Stage.LAUNCHING, uid=None)
    AppStack(entry, world.folder / "engine", print).work_dir.write_request(plan_registration(world.order))
    monkeypatch.setenv("KUBECONFIG", world.kubeconfig("mine", "lab", server="https://other.example.com"))
    driver = AutomationDriver(world.folder / "engine", connect=world.connect)
    with pytest.raises(ClusterError, match="is another one"):
        driver.recover(entry, print)
    assert world.files.exists()


def test_a_process_that_cannot_launch_leaves_an_interrupted_launch_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_state()
    entry = replace(world.entry, stage=Stage.LAUNCHING, uid=None)
    AppStack(entry, world.folder / "engine", print).work_dir.write_request(plan_registration(world.order))
    monkeypatch.setattr(forks, "_forked", True)
    with pytest.raises(DeployError, match="forked after gRPC was loaded"):
        AutomationDriver(world.folder / "engine", connect=world.connect).recover(entry, print)
    assert (world.present, world.files.exists()) == (True, True)
