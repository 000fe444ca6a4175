"""A component whose access names another cluster than the one of its run, or another way to that one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob

from tests.fakes import FakeCluster

from .test_volcano_training_job import JOB, PREFIX, args, queue, remember, stashed


def cluster(*objects: Any, **options: Any) -> FakeCluster:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    return FakeCluster([space, queue(), *objects], **options)


@pytest.fixture
def up(engine: Any) -> Callable[..., Any]:
    """Run a program of one job in a cluster; a refusal is raised."""

    def run(where: FakeCluster, *, preview: bool = False, **changes: Any) -> Any:
        with cluster_for_tests(where):
            return engine.run(lambda: VolcanoTrainingJob("train", args(**changes)), preview=preview)

    return run


@pytest.fixture
def launched(engine: Any, up: Callable[..., Any]) -> tuple[FakeCluster, Any]:
    """A run in a cluster: the cluster with its object, and the object; the state remembers it."""
    here = cluster(uid="here")
    up(here)
    job = remember(engine)
    engine.mocks.state[f"{PREFIX}$kubernetes:batch.volcano.sh/v1alpha1:Job::train"] = job
    here.put(job)
    return here, job


def refused(up: Callable[..., Any], where: FakeCluster, **options: Any) -> str:
    with pytest.raises(pulumi.RunError) as caught:
        up(where, **options)
    return str(caught.value)


def test_a_record_names_the_cluster_and_stays_as_it_is(
    engine: Any, up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    here, _ = launched
    intent, record = stashed(engine, "-intent"), engine.record()
    assert record["cluster"] == intent["cluster"]
    assert record["cluster"]["uid"] == "here"
    # Less is known now, and by another address: the record of a run that is kept does not change.
    here.uid, here.api_server = "", "https://tunnel.example.com"
    up(here, preview=True)
    assert (stashed(engine, "-intent"), engine.record()) == (intent, record)


def test_the_cluster_is_no_part_of_the_runs_identity(engine: Any, up: Callable[..., Any]) -> None:
    hashes = set()
    for uid in ("one", "two", ""):
        up(cluster(uid=uid))
        hashes.add((engine.record()["hash"], engine.mocks.one(JOB).inputs["metadata"]["name"]))
    assert len(hashes) == 1


@pytest.mark.parametrize("policy", ["fail", "replace", "ignore"])
@pytest.mark.parametrize("edit", [{}, {"role": {"image": "app:2"}}, {"kube_context": "other"}])
@pytest.mark.parametrize("preview", [True, False])
def test_another_cluster_is_refused_by_name(
    engine: Any,
    up: Callable[..., Any],
    launched: tuple[FakeCluster, Any],
    policy: str,
    edit: dict[str, Any],
    preview: bool,
) -> None:
    where = cluster(uid="there", api_server="https://there.example.com")
    text = refused(up, where, preview=preview, on_running_change=policy, **edit)
    assert "was launched in the cluster at https://fake.example.com (uid here)" in text
    assert "the cluster at https://there.example.com (uid there) is another one. Nothing was changed" in text
    assert "kube_context name the cluster of the launch" in text
    assert f"`pulumi state delete --target-dependents '{PREFIX}::train'`" in text
    assert engine.mocks.resources == []


def test_another_object_of_the_name_does_not_make_another_cluster_the_right_one(
    up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    _, job = launched
    twin = {**job, "metadata": {**job["metadata"], "uid": "another"}}
    assert "is another one" in refused(up, cluster(twin, uid="there"))


def test_where_the_cluster_is_not_known_nothing_is_concluded(
    up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    where = cluster(uid="", api_server="https://there.example.com")
    assert "is that one is not known" in refused(up, where, role={"image": "app:2"})


def test_the_job_itself_proves_the_cluster_without_a_request(
    engine: Any, up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    _, job = launched
    there = cluster(job, api_server="https://there.example.com")
    there.identify = None  # type: ignore[assignment, method-assign]  # nobody asks
    up(there)
    assert engine.record()["cluster"]["uid"] == "here"


def test_a_finished_and_removed_run_is_over_in_its_cluster_only(
    engine: Any, up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    up(cluster(uid="here", api_server="https://tunnel.example.com"))
    assert engine.mocks.of_type(JOB) == []
    assert "is another one" in refused(up, cluster(uid="there"))


def test_a_launch_begun_in_another_cluster_is_not_begun_again_here(engine: Any, up: Callable[..., Any]) -> None:
    up(cluster(uid="here"))
    remember(engine, intent_only=True)
    assert "is another one" in refused(up, cluster(uid="there"))
    up(cluster(uid="here"))
    engine.mocks.one(JOB)


def without_cluster(engine: Any) -> None:
    """Make the state that of a launch that could read no cluster."""
    engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-intent"]["input"].pop("cluster")
    engine.mocks.state[f"{PREFIX}::train"]["record"].pop("cluster")


def test_a_run_that_names_no_cluster_gets_it_without_a_change_of_its_record(
    engine: Any, up: Callable[..., Any], launched: tuple[FakeCluster, Any]
) -> None:
    here, _ = launched
    without_cluster(engine)
    before = json.loads(json.dumps(engine.mocks.state))
    job = up(here)
    assert stashed(engine, "-intent") == before[f"{PREFIX}$pulumi:index:Stash::train-intent"]["input"]
    assert engine.record() == before[f"{PREFIX}::train"]["record"]
    noted = job.made.outputs["cluster"]
    assert noted["uid"] == "here"
    engine.mocks.state[f"{PREFIX}::train"] |= {"cluster": noted}
    assert "is another one" in refused(up, cluster(uid="there"))
    # Where the record is written anyway, it is in there from then on.
    up(here, labels={"team": "a"})
    assert engine.record()["cluster"] == noted


def test_without_the_permission_to_know_the_uid_a_launch_goes_on(engine: Any, up: Callable[..., Any]) -> None:
    up(cluster(denied=[("get", NAMESPACE)]))
    assert "uid" not in engine.record()["cluster"]


CONFIG = {"kubernetes:kubeconfig": "/config.yaml", "kubernetes:context": "config"}
ACCESS = {"kubeconfig": "/given.yaml", "kube_context": "given"}


@pytest.mark.parametrize("config", [(), ("kubernetes:kubeconfig",), ("kubernetes:context",), tuple(CONFIG)])
@pytest.mark.parametrize("given", [(), ("kubeconfig",), ("kube_context",), tuple(ACCESS)])
@pytest.mark.parametrize("empty", [False, True])
def test_the_cluster_that_is_read_is_the_one_of_the_provider(
    engine: Any, monkeypatch: pytest.MonkeyPatch, config: tuple[str, ...], given: tuple[str, ...], empty: bool
) -> None:
    asked: list[Any] = []
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("torchx_pulumi_components.pulumi_runtime.is_mocked", lambda: False)

    def connect(*access: str | None) -> FakeCluster:
        asked.append(access)
        return cluster()

    monkeypatch.setattr("torchx_pulumi_components.cluster_access.KubernetesCluster.connect", connect)
    # An Output without a value, for example that of another stack, is the same as no argument.
    access = {name: ACCESS[name] if name in given else pulumi.Output.from_input(None) for name in ACCESS}
    chosen = {name: value for name, value in access.items() if empty or name in given}

    def program() -> None:
        pulumi.runtime.set_all_config({key: CONFIG[key] for key in config}, [])
        VolcanoTrainingJob("train", args(**chosen))

    try:
        engine.run(program)
    finally:
        pulumi.runtime.set_all_config({}, [])
    providers = [item.inputs for item in engine.mocks.of_type("pulumi:providers:kubernetes")]
    # The engine gives the configuration to the default provider, and to no other one.
    default = {key.partition(":")[2]: CONFIG[key] for key in config}
    (inputs,) = providers or [default]
    # The kubeconfig of a provider is secret.
    written = {key: value["value"] if isinstance(value, dict) else value for key, value in inputs.items()}
    assert bool(providers) is bool(given)
    assert asked == [(written.get("kubeconfig"), written.get("context"))]
