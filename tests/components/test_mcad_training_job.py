"""What MCADTrainingJob asks the engine for, without an engine."""

from __future__ import annotations

import copy
from typing import Any

import pulumi
import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.labels import LAUNCH, RUN
from torchx_pulumi.runs.identity import digest
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER,
    APP_WRAPPER_V1BETA2,
    SIGS_POD_GROUP,
    X_K8S_POD_GROUP,
)
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, stack_outputs

from tests.fakes import KNOWN, FakeCluster

V1BETA1 = "kubernetes:workload.codeflare.dev/v1beta1:AppWrapper"
V1BETA2 = "kubernetes:workload.codeflare.dev/v1beta2:AppWrapper"
STASH = "pulumi:index:Stash"
PREFIX = "urn:pulumi:dev::proj::torchx:index:MCADTrainingJob"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}


def args(**changes: Any) -> Any:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "args": ["-m", "train"]}
    return {"roles": [{**role, **changes.pop("role", {})}], **changes}


def cluster(*objects: Any, without: tuple[kinds.Kind, ...] = ()) -> Any:
    return FakeCluster([NAMESPACE, *objects], served=[kind for kind in KNOWN if kind not in without])


def make(engine: Any, seen: Any = None, *, name: str = "train", preview: bool = False, **given: Any) -> Any:
    """Run a program that makes the job, with a cluster to look at or without one."""

    def program() -> Any:
        if seen is None:
            return MCADTrainingJob(name, args(**given))
        with cluster_for_tests(seen):
            return MCADTrainingJob(name, args(**given))

    return engine.run(program, preview=preview)


def refusal(engine: Any, seen: Any = None, **given: Any) -> str:
    with pytest.raises(pulumi.RunError) as caught:
        make(engine, seen, **given)
    assert not engine.mocks.resources
    return str(caught.value)


def remember(engine: Any, token: str = V1BETA1, **status: Any) -> Any:
    """Put what the last program registered into the state, and return its AppWrapper as the cluster has it."""
    stashes = {item.name: item.inputs["input"] for item in engine.mocks.of_type(STASH)}
    engine.mocks.state = {f"{PREFIX}${STASH}::{name}": {"input": value} for name, value in stashes.items()}
    engine.mocks.state |= engine.records()
    live: Any = copy.deepcopy(engine.mocks.one(token).inputs)
    live["metadata"] |= {"uid": "uid-of-train", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**live, "status": status}


def pods(app_wrapper: Any) -> list[Any]:
    items = app_wrapper["spec"]["resources"]["GenericItems"]
    return [item["generictemplate"] for item in items if item["generictemplate"]["kind"] == "Pod"]


def test_one_app_wrapper_its_roles_and_its_record_are_children(engine: Any) -> None:
    job = make(engine, role={"num_replicas": 2}, coscheduler_name="coscheduler")
    wrapper = engine.mocks.one(V1BETA1).inputs
    name = wrapper["metadata"]["name"]
    assert name.startswith("train-")
    assert wrapper["metadata"]["labels"].keys() == {LAUNCH}
    assert RUN in wrapper["metadata"]["annotations"]
    assert "torchx-pulumi" not in repr(wrapper["spec"])
    names = [f"{name}-trainer-0", f"{name}-trainer-1"]
    assert [pod["metadata"]["name"] for pod in pods(wrapper)] == names
    assert engine.value(job.pod_names) == names
    assert engine.value(job.pod_groups) == [f"{name}-pg0"]
    assert engine.value(job.service) == name
    assert engine.value(job.rank0_host) == f"{names[0]}.{name}"
    assert engine.value(job.app_handle) == f"pulumi_mcad://torchx/default:{name}"
    assert engine.value(job.uid) == "uid-of-train"
    assert engine.value(job.observed)["state"] == "SUBMITTED"
    assert [item.name for item in engine.mocks.of_type(STASH)] == ["train-intent"]


@pytest.mark.parametrize("given", [{}, {"api_version": "v1beta2", "local_queue": "team"}])
def test_a_program_exports_the_local_queue_as_queue(engine: Any, given: dict[str, str]) -> None:
    exported = engine.value(stack_outputs(make(engine, **given))["torchx"])
    assert exported["app"]["queue"] == given.get("local_queue")


def test_a_launch_logs_no_warning(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: said.append(text))
    make(engine, role={"num_replicas": 2}, coscheduler_name="coscheduler")
    assert said == []


def test_both_doors_make_the_same_job(engine: Any) -> None:
    specs = pytest.importorskip("torchx.specs")
    role = specs.Role(name="trainer", image="app:1", entrypoint="python", args=["-m", "train"], num_replicas=2)
    app = specs.AppDef(name="train", roles=[role])
    engine.run(lambda: MCADTrainingJob.from_app("train", app, priority=3))
    by_app = engine.mocks.one(V1BETA1).inputs
    make(engine, role={"num_replicas": 2}, priority=3)
    assert engine.mocks.one(V1BETA1).inputs == by_app
    engine.run(lambda: MCADTrainingJob.from_app("train", app, app_id="mine"))
    assert engine.mocks.one(V1BETA1).inputs["metadata"]["name"] == "mine"


def test_a_role_lists_its_own_pod_group_only(engine: Any) -> None:
    role = {"image": "app:1", "entrypoint": "e"}
    given: Any = {"roles": [{"name": name, **role} for name in ("a", "b")], "coscheduler_name": "coscheduler"}
    job = engine.run(lambda: MCADTrainingJob("train", given))
    name = engine.value(job.job_name)
    assert engine.value(job.pod_groups) == [f"{name}-pg0", f"{name}-pg1"]
    groups = [role["pod_groups"] for role in engine.mocks.outputs[f"{PREFIX}::train"]["roles"]]
    assert groups == [[{"kind": "PodGroup", "name": f"{name}-pg{index}"}] for index in range(2)]


def test_the_successor_has_an_app_wrapper_of_its_own_version(engine: Any) -> None:
    make(engine, api_version="v1beta2", suspend=True)
    wrapper = engine.mocks.one(V1BETA2).inputs
    assert wrapper["spec"]["suspend"] is True
    assert not engine.mocks.of_type(V1BETA1)


def test_what_only_volcano_can_do_is_refused_with_what_to_do_instead(engine: Any) -> None:
    text = refusal(
        engine,
        queue="default",
        gang="pods",
        plugins={},
        networkTopology={"mode": "hard"},
        role={"num_replicas": 3, "min_replicas": 2},
    )
    for part in ("queue: is an option of Volcano", "gang: is an option of Volcano", "plugins: is an option of Volcano",
                 "networkTopology: is an option of Volcano"):  # fmt: skip
        assert part in text, part
    assert "roles[0].min_replicas" in refusal(engine, role={"num_replicas": 3, "min_replicas": 2})


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"priority": "high"}, "priority: must be a whole number"),
        ({"priority": 2.5}, "priority: must be a whole number"),
        ({"api_version": "v2"}, "api_version: must be one of v1beta1, v1beta2"),
        ({"pod_group_api": "x"}, "pod_group_api: must be one of"),
        ({"suspend": True}, "suspend: must be false with api_version=v1beta1"),
        ({"priority": 1, "api_version": "v1beta2"}, "priority: must be unset with api_version=v1beta2"),
        ({"suspend": True, "api_version": "v1beta2", "wait_for": "running"}, "wait_for: must be created"),
        ({"priority_class_name": "high"}, "did you mean 'priority_class'?"),
    ],
)
def test_what_cannot_be_meant_is_refused(engine: Any, given: Any, part: str) -> None:
    assert part in refusal(engine, **given)


def test_retries_are_warned_of_loudly(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: said.append(text))
    make(engine, role={"max_retries": 2})
    assert any("MCAD does not keep to a limit" in text for text in said)


@pytest.mark.parametrize(
    ("given", "absent", "part"),
    [
        ({}, (APP_WRAPPER, APP_WRAPPER_V1BETA2), "MCAD is not installed"),
        ({}, (APP_WRAPPER,), "set api_version to v1beta2, which it serves"),
        ({"api_version": "v1beta2"}, (APP_WRAPPER_V1BETA2,), "set api_version to v1beta1, which it serves"),
        ({"coscheduler_name": "c"}, (X_K8S_POD_GROUP, SIGS_POD_GROUP), "no such coscheduler is installed"),
        (
            {"coscheduler_name": "c", "pod_group_api": "scheduling.x-k8s.io/v1alpha1"},
            (X_K8S_POD_GROUP,),
            "set pod_group_api to scheduling.sigs.k8s.io/v1alpha1, which it serves",
        ),
        ({"priority_class": "high"}, (), "priority_class: 'high' is not in the cluster"),
        ({"service_account": "sa"}, (), "service_account: 'sa' is not in the cluster"),
        ({"image_secret": "pull"}, (), "image_secret: 'pull' is not in namespace 'default'"),
        ({"namespace": "other"}, (), "namespace: 'other' is not in the cluster"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_before_launch(
    engine: Any, given: Any, absent: tuple[kinds.Kind, ...], part: str
) -> None:
    assert part in refusal(engine, cluster(without=absent), **given)


USUAL, OLDER = "scheduling.x-k8s.io/v1alpha1", "scheduling.sigs.k8s.io/v1alpha1"


def api_of_pod_groups(wrapper: Any) -> Any:
    return wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]["apiVersion"]


@pytest.mark.parametrize(
    ("given", "without", "api"),
    [
        ({}, (), USUAL),
        ({}, (X_K8S_POD_GROUP,), OLDER),
        ({"pod_group_api": USUAL}, (), USUAL),
        ({"pod_group_api": OLDER}, (), OLDER),
    ],
)
def test_the_pod_groups_api_is_the_given_one_or_found_on_the_cluster_and_is_recorded(
    engine: Any, given: Any, without: tuple[kinds.Kind, ...], api: str
) -> None:
    make(engine, cluster(without=without), coscheduler_name="c", **given)
    assert api_of_pod_groups(engine.mocks.one(V1BETA1).inputs) == api
    # The usual one is the default, and defaults are in no record.
    assert engine.record()["digests"].get("pod_group_api") == (None if api == USUAL else digest(api))


@pytest.mark.parametrize("then", [{}, {"pod_group_api": OLDER}])
def test_a_running_job_is_kept_whichever_pod_groups_the_cluster_serves_later(engine: Any, then: Any) -> None:
    make(engine, cluster(without=(X_K8S_POD_GROUP,)), coscheduler_name="c")
    live = remember(engine, state="Running")
    make(engine, cluster(live), coscheduler_name="c", **then)
    assert engine.mocks.one(V1BETA1).inputs["metadata"]["name"] == live["metadata"]["name"]


def test_another_pod_groups_api_on_purpose_is_a_change(engine: Any) -> None:
    make(engine, cluster(), coscheduler_name="c")
    live = remember(engine, state="Running")
    said = refusal(engine, cluster(live), coscheduler_name="c", pod_group_api=OLDER)
    assert "changing pod_group_api would relaunch" in said


def test_without_a_coscheduler_the_pod_groups_api_is_no_change(engine: Any) -> None:
    make(engine, cluster())
    live = remember(engine, state="Running")
    make(engine, cluster(live), pod_group_api=OLDER)
    assert engine.mocks.one(V1BETA1).inputs["metadata"]["name"] == live["metadata"]["name"]


def test_a_running_job_is_kept_and_its_end_is_read_from_its_pods(engine: Any) -> None:
    make(engine)
    live = remember(engine, state="Running")
    (pod,) = pods(live)
    name = live["metadata"]["name"]
    terminated = {"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": {"exitCode": 3}}}
    ended = {**pod, "status": {"phase": "Failed", "containerStatuses": [terminated]}}
    stranger = copy.deepcopy(ended)
    stranger["metadata"]["name"] = "somebody-elses"
    job = make(engine, cluster(live, ended, stranger))
    observed = engine.value(job.observed)
    assert observed["state"] == "FAILED"
    assert "exited with code 3" in observed["message"]
    assert [replica["exit_code"] for replica in observed["roles"][0]["replicas"]] == [3]
    assert engine.mocks.one(V1BETA1).inputs["metadata"]["name"] == name
    assert engine.value(job.uid) == "uid-of-train"


@pytest.mark.parametrize("preview", [True, False])
def test_a_pod_that_the_deletion_of_its_job_ends_is_no_end_of_it(engine: Any, preview: bool) -> None:
    make(engine)
    live = remember(engine, state="Running")
    engine.mocks.state[f"{PREFIX}${V1BETA1}::train"] = copy.deepcopy(live)
    (pod,) = pods(live)
    killed = {
        "name": pod["spec"]["containers"][0]["name"],
        "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}},
    }
    pod = copy.deepcopy(pod)
    for found in (live, pod):
        found["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    ended = {**pod, "status": {"phase": "Failed", "containerStatuses": [killed]}}
    observed = engine.value(make(engine, cluster(live, ended), preview=preview).observed)
    assert observed["state"] == "RUNNING"
    if not preview:
        with pytest.raises(pulumi.RunError, match=r"is RUNNING \(Stopping: .* not completed within 1 s"):
            make(engine, cluster(live, ended), wait_for="completed", timeout_s=1)
    engine.mocks.state[f"{PREFIX}::train"] |= {"uid": "uid-of-train", "observed": observed}
    observed = engine.value(make(engine, cluster(), preview=preview).observed)
    assert (observed["state"], observed["reason"]) == ("UNKNOWN", "NotFound")


def test_events_and_pod_groups_say_why_a_job_waits(engine: Any) -> None:
    make(engine, coscheduler_name="c")
    live = remember(engine, state="Running")
    (pod,) = pods(live)
    group = live["spec"]["resources"]["GenericItems"][0]["generictemplate"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "no node has room",
        "involvedObject": {"name": pod["metadata"]["name"]},
    }
    strange = {
        **event,
        "metadata": {"name": "f", "namespace": "default"},
        "message": "another's",
        "involvedObject": {"name": "x"},
    }
    waiting = {**pod, "status": {"phase": "Pending"}}
    job = make(engine, cluster(live, waiting, {**group, "status": {}}, event, strange), coscheduler_name="c")
    observed = engine.value(job.observed)
    assert observed["state"] == "PENDING"
    assert "no node has room" in observed["message"]
    assert "another's" not in observed["message"]


@pytest.mark.parametrize("given", [{"priority": 7}, {"labels": {"team": "a"}}, {"annotations": {"note": "b"}}])
def test_what_may_change_in_place_does(engine: Any, given: Any) -> None:
    make(engine)
    live = remember(engine, state="Running")
    make(engine, cluster(live), **given)
    assert engine.mocks.one(V1BETA1).inputs["metadata"]["name"] == live["metadata"]["name"]


def test_suspend_changes_in_place(engine: Any) -> None:
    make(engine, api_version="v1beta2")
    live = remember(engine, V1BETA2, phase="Running")
    make(engine, cluster(live), api_version="v1beta2", suspend=True)
    kept = engine.mocks.one(V1BETA2).inputs
    assert (kept["metadata"]["name"], kept["spec"]["suspend"]) == (live["metadata"]["name"], True)


@pytest.mark.parametrize("replicas", [1, 3])
def test_another_number_of_replicas_is_another_run(engine: Any, replicas: int) -> None:
    make(engine, role={"num_replicas": 2})
    live = remember(engine, state="Running")
    text = refusal(engine, cluster(live), role={"num_replicas": replicas})
    assert "changing roles[trainer].num_replicas would relaunch run" in text
    make(engine, cluster(live), role={"num_replicas": replicas}, on_running_change="replace")
    wrapper = engine.mocks.one(V1BETA1).inputs
    assert wrapper["metadata"]["name"] != live["metadata"]["name"]
    assert len(pods(wrapper)) == replicas


def test_the_version_of_a_running_job_cannot_change(engine: Any) -> None:
    make(engine)
    live = remember(engine, state="Running")
    text = refusal(engine, cluster(live), api_version="v1beta2", on_running_change="replace")
    assert "api_version cannot change from v1beta1 to v1beta2" in text


@pytest.mark.parametrize(
    ("first", "token", "then"),
    [
        ({"role": {"max_retries": 1}, "requeuing_time_s": 60, "priority": 3}, V1BETA1, "v1beta2"),
        ({"api_version": "v1beta2", "local_queue": "team"}, V1BETA2, "v1beta1"),
    ],
    ids=["to the operator", "back to MCAD"],
)
def test_a_finished_job_is_not_run_again_by_another_controller(
    engine: Any, first: dict[str, Any], token: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_: said.append(text))
    names = ("app_id", "app_handle", "pod_names", "declared", "uid", "observed")
    make(engine, **first)
    live = remember(engine, token, state="Completed", phase="Succeeded", Succeeded=1)
    job = make(engine, cluster(live), **first)
    outputs = {name: engine.value(getattr(job, name)) for name in names}
    assert outputs["observed"]["state"] == "SUCCEEDED"
    remember(engine, token)
    engine.mocks.state[f"{PREFIX}::train"] |= outputs
    engine.mocks.state[f"{PREFIX}${token}::train"] = live
    queue = {"local_queue": "team"} if then == "v1beta2" else {}
    after = {"role": first.get("role", {}), "api_version": then, **queue}

    # Its object is there.
    job = make(engine, cluster(live), **after)
    kept = engine.mocks.one(token).inputs
    assert (kept["metadata"]["name"], kept["spec"]) == (live["metadata"]["name"], {})
    assert {name: engine.value(getattr(job, name)) for name in outputs} == outputs
    assert any("is kept as it is. To run it again, set `rerun`" in text for text in said)

    # Its object is gone with the definition of its version.
    gone = cluster(without=(APP_WRAPPER if token == V1BETA1 else APP_WRAPPER_V1BETA2,))
    make(engine, gone, preview=True, **after)
    assert engine.mocks.one(token).inputs["metadata"]["name"] == live["metadata"]["name"]
    for _ in range(2):
        job = make(engine, gone, **after)
        assert not engine.mocks.of_type(V1BETA1) + engine.mocks.of_type(V1BETA2)
        shown = {name: engine.value(getattr(job, name)) for name in outputs if name != "observed"}
        assert shown == {name: value for name, value in outputs.items() if name != "observed"}
        assert engine.value(job.observed)["state"] == "SUCCEEDED"
        engine.mocks.state.pop(f"{PREFIX}${token}::train", None)

    # This cluster has no Kueue.
    after.pop("local_queue", None)
    make(engine, gone, rerun="again", **after)
    assert len(engine.mocks.of_type(V1BETA2 if then == "v1beta2" else V1BETA1)) == 1


def test_a_finished_job_that_is_gone_is_not_run_again(engine: Any) -> None:
    make(engine)
    live = remember(engine, state="Completed", Succeeded=1)
    job = make(engine, cluster(live))
    assert engine.value(job.observed)["state"] == "SUCCEEDED"
    outputs = {"uid": engine.value(job.uid), "observed": engine.value(job.observed)}
    remember(engine, state="Completed")
    engine.mocks.state[f"{PREFIX}::train"] |= outputs
    job = make(engine, cluster())
    assert not engine.mocks.of_type(V1BETA1)
    assert (engine.value(job.observed)["state"], engine.value(job.observed)["source"]) == ("SUCCEEDED", "record")


def test_a_job_of_somebody_else_is_left_alone(engine: Any) -> None:
    make(engine, job_name="mine")
    live = remember(engine, state="Running")
    engine.mocks.state = {}
    live["metadata"]["labels"] = {}
    assert "AppWrapper 'mine' in namespace 'default' exists and was not created by this stack" in refusal(
        engine, cluster(live), job_name="mine"
    )


def test_a_job_from_another_language_is_made(engine: Any, plugin: Any) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "numReplicas": 2.0}
    inputs = {"priority": 5.0, "apiVersion": "v1beta1", "onRunningChange": "replace", "roles": [role]}
    result = engine.run(lambda: plugin.construct("train", "torchx:index:MCADTrainingJob", inputs))
    wrapper = engine.mocks.one(V1BETA1).inputs
    assert (wrapper["spec"]["priority"], len(pods(wrapper))) == (5, 2)
    assert result.state.keys() >= {"appId", "jobName", "rank0Host", "podNames", "declared", "observed"}


@pytest.mark.parametrize(("api_version", "token"), [("v1beta1", V1BETA1), ("v1beta2", V1BETA2)])
@pytest.mark.parametrize(
    "change",
    [
        {"roles": [{"name": "worker", "image": "app:1", "entrypoint": "python", "num_replicas": 3}]},
        {"namespace": "ml"},
        {"coscheduler_name": "coscheduler"},
        {"labels": {"team": "a"}},
    ],
    ids=["another role", "another namespace", "another coscheduler", "another label"],
)
def test_under_ignore_the_whole_run_is_kept_as_it_was_launched(
    engine: Any, api_version: str, token: str, change: Any
) -> None:
    names = ("app_id", "app_handle", "namespace", "service", "pod_groups", "pod_names", "images", "declared", "uid")
    first = {**args(role={"num_replicas": 2}), "api_version": api_version, "on_running_change": "ignore"}
    job = engine.run(lambda: MCADTrainingJob("train", first))
    outputs = {name: engine.value(getattr(job, name)) for name in names}
    metadata = engine.mocks.one(token).inputs["metadata"]
    live = remember(engine, token, state="Running", phase="Running")
    engine.mocks.state[f"{PREFIX}::train"] |= outputs
    engine.mocks.state[f"{PREFIX}${token}::train"] = live
    # The image changes as well: by itself, a label changes in place.
    roles = change.get("roles", [{**first["roles"][0], "image": "app:2"}])
    with cluster_for_tests(cluster({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}, live)):
        job = engine.run(lambda: MCADTrainingJob("train", {**first, **change, "roles": roles}))
    where = {key: engine.mocks.one(token).inputs["metadata"][key] for key in ("name", "namespace")}
    assert where == {key: metadata[key] for key in ("name", "namespace")}
    assert {name: engine.value(getattr(job, name)) for name in names} == outputs
