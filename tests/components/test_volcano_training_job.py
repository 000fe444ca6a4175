"""What the component asks the engine for, without an engine."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi.model.labels import LAUNCH, RUN
from torchx_pulumi.runs import deletion
from torchx_pulumi.stack_state import cli
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob, failures_deferred
from torchx_pulumi_components.resources import STORED_POD_FIELDS
from torchx_pulumi_components.run_objects import refreshes_first

from tests.doc_blocks import block

JOB = "kubernetes:batch.volcano.sh/v1alpha1:Job"
POD_GROUP = "kubernetes:scheduling.volcano.sh/v1beta1:PodGroup"
POD = "kubernetes:core/v1:Pod"
STASH = "pulumi:index:Stash"

PREFIX = "urn:pulumi:dev::proj::torchx:index:VolcanoTrainingJob"


def args(**changes: Any) -> Any:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "args": ["-m", "train"]}
    return {"queue": "default", "roles": [{**role, **changes.pop("role", {})}], **changes}


def queue(name: str = "default", state: str = "Open") -> Any:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "status": {"state": state},
    }


NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
ML = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}


def cluster(*objects: Any) -> Any:
    return FakeCluster([NAMESPACE, queue(), *objects])


def launch(engine: Any, *live: Any, opts: Any = None, preview: bool = False, **given: Any) -> Any:
    """Deploy a program with the job to a cluster that has some objects, and return the job."""
    with cluster_for_tests(cluster(*live)):
        return engine.run(lambda: VolcanoTrainingJob("train", args(**given), opts), preview=preview)


def stashed(engine: Any, suffix: str) -> Any:
    (stash,) = [item for item in engine.mocks.of_type(STASH) if item.name.endswith(suffix)]
    return stash.inputs["input"]


def remember(engine: Any, name: str = "train", *, intent_only: bool = False) -> Any:
    """Put what the last program registered into the state, as a successful deployment does."""
    engine.mocks.state = {f"{PREFIX}$pulumi:index:Stash::{name}-intent": {"input": stashed(engine, "-intent")}}
    if not intent_only:
        engine.mocks.state |= engine.records()
    jobs = engine.mocks.of_type(JOB)
    if not jobs:
        return None
    live: Any = copy.deepcopy(jobs[0].inputs)
    live["metadata"] |= {"uid": f"uid-of-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    live["status"] = {"state": {"phase": "Running"}}
    return live


def test_a_job_is_a_child_and_the_component_has_its_record(engine: Any) -> None:
    job = engine.run(lambda: VolcanoTrainingJob("train", args(role={"num_replicas": 2})))
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    assert name.startswith("train-")
    assert [role["name"] for role in engine.mocks.outputs[f"{PREFIX}::train"]["roles"]] == ["trainer"]
    assert engine.value(job.job_name) == name
    assert engine.value(job.app_id) == f"default:{name}"
    assert engine.value(job.uid) == "uid-of-train"
    assert engine.value(job.pod_groups) == [f"{name}-uid-of-train"]
    assert engine.value(job.pod_names) == [f"{name}-trainer-0-0", f"{name}-trainer-1-0"]
    assert engine.value(job.rank0_host) == f"{name}-trainer-0-0.{name}"
    assert engine.value(job.images) == {"trainer": "app:1"}
    assert engine.value(job.observed)["state"] == "SUBMITTED"
    assert engine.record()["uid"] == "uid-of-train"
    assert engine.record()["job_name"] == name


def test_both_doors_make_the_same_job(engine: Any) -> None:
    specs = pytest.importorskip("torchx.specs")
    role = specs.Role(
        name="trainer",
        image="app:1",
        entrypoint="python",
        args=["-m", "train"],
        num_replicas=1,
        resource=specs.Resource(cpu=1, gpu=0, memMB=1000),
    )
    app = specs.AppDef(name="train", roles=[role])
    before = copy.deepcopy(app)
    engine.run(lambda: VolcanoTrainingJob.from_app("train", app, queue="default"))
    by_app = engine.mocks.one(JOB).inputs
    resource = {"cpu": 1, "memory_mb": 1000}
    engine.run(lambda: VolcanoTrainingJob("train", args(role={"resource": resource})))
    assert engine.mocks.one(JOB).inputs == by_app
    assert app == before


def test_an_app_id_is_taken_as_it_is(engine: Any) -> None:
    specs = pytest.importorskip("torchx.specs")
    role = specs.Role(name="trainer", image="app:1", entrypoint="python", num_replicas=1)
    app = specs.AppDef(name="train", roles=[role])
    engine.run(lambda: VolcanoTrainingJob.from_app("train", app, app_id="mine-x1", queue="default"))
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == "mine-x1"


def test_labels_of_ours_are_on_the_job_and_not_in_its_pods(engine: Any) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", args(labels={"team": "a"})))
    job = engine.mocks.one(JOB).inputs
    assert job["metadata"]["labels"].keys() == {"team", LAUNCH}
    assert RUN in job["metadata"]["annotations"]
    assert "torchx-pulumi" not in repr(job["spec"])


def test_what_other_languages_send_is_taken_for_what_was_meant(engine: Any) -> None:
    plain = args(
        role={
            "num_replicas": 2,
            "min_replicas": 1,
            "env": {"A": "1", "B": "true", "C": "0.5"},
            "args": ["3"],
            "port_map": {"http": 80},
            "resource": {"gpu": 1, "memory_mb": 2000},
        }
    )
    odd = args(
        role={
            "numReplicas": 2.0,
            "minReplicas": 1.0,
            "env": {"A": 1.0, "B": True, "C": 0.5},
            "args": [3.0],
            "portMap": {"http": 80.0},
            "resource": {"gpu": 1.0, "memoryMb": 2000.0},
        }
    )
    engine.run(lambda: VolcanoTrainingJob("train", plain))
    expected = engine.mocks.one(JOB).inputs
    engine.run(lambda: VolcanoTrainingJob("train", odd))
    assert engine.mocks.one(JOB).inputs == expected


def test_all_problems_are_in_one_message_with_their_paths(engine: Any) -> None:
    bad = {
        "queue": "no queue",
        "colour": "blue",
        "gang": "both",
        "roles": [
            {"name": "a", "image": "i", "entrypoint": "e", "num_replicas": 2.5, "resource": {}},
            {"image": "i", "entrypoint": "e", "num_replicas": 2, "min_replicas": 3, "mounts": [{"kind": "tape"}]},
            {},
        ],
    }
    with pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: VolcanoTrainingJob("train", bad))  # type: ignore[arg-type]
    text = str(caught.value)
    for path in (
        "queue:",
        "colour: is unknown",
        "gang: must be one of job, pods",
        "roles[0].num_replicas: must be a whole number, found float '2.5'",
        "roles[0].resource: is empty",
        "roles[1].name: is missing",
        "roles[1].min_replicas:",
        "roles[1].mounts[0].kind: must be one of",
        "roles[1].mounts[0].src: is missing",
        "roles[2]: is empty",
    ):
        assert path in text, path
    assert not engine.mocks.resources


def test_known_outputs_are_leaves_like_any_other(engine: Any) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", args()))
    plain = engine.mocks.one(JOB).inputs
    engine.run(lambda: VolcanoTrainingJob("train", args(role={"image": pulumi.Output.from_input("app:1")})))
    assert engine.mocks.one(JOB).inputs == plain


def test_a_secret_leaf_stays_secret_and_out_of_the_record(engine: Any) -> None:
    token = pulumi.Output.secret("hunter22")
    job = engine.run(lambda: VolcanoTrainingJob("train", args(role={"env": {"TOKEN": token}})))
    assert pulumi.runtime.rpc._special_secret_sig in repr(engine.mocks.one(JOB).inputs["spec"])
    assert "hunter22" not in repr([item.inputs for item in engine.mocks.of_type(STASH)])
    assert "hunter22" not in repr(engine.value(job.declared))


def test_a_structure_that_is_not_known_in_preview_is_refused(engine: Any) -> None:
    unknown = pulumi.Output.from_input(pulumi.output.UNKNOWN)
    with pytest.raises(pulumi.RunError, match=r"roles\[0\]\.num_replicas: .* found an output that is not known yet"):
        engine.run(lambda: VolcanoTrainingJob("train", args(role={"num_replicas": unknown})), preview=True)


def test_a_leaf_that_is_not_known_in_preview_leaves_the_name_open(engine: Any) -> None:
    def program() -> Any:
        return VolcanoTrainingJob("train", args(role={"image": pulumi.Output.from_input(pulumi.output.UNKNOWN)}))

    job = engine.run(program, preview=True)
    assert engine.loop.run_until_complete(job.job_name.is_known()) is False
    assert "unknown-leaf" not in repr(engine.mocks.one(JOB).inputs)


def test_a_uid_is_not_known_in_the_preview_of_a_new_object(engine: Any) -> None:
    job = launch(engine, preview=True)
    assert engine.loop.run_until_complete(job.uid.is_known()) is False
    assert engine.value(launch(engine).uid) == "uid-of-train"
    live = remember(engine)
    kept = launch(engine, live, preview=True)
    assert engine.value(kept.uid) == live["metadata"]["uid"]


def test_an_unchanged_job_is_kept_with_its_name(engine: Any) -> None:
    launch(engine)
    first, intent, record = engine.mocks.one(JOB).inputs, stashed(engine, "-intent"), engine.record()
    live = remember(engine)
    job = launch(engine, live)
    assert engine.mocks.one(JOB).inputs == first
    assert (stashed(engine, "-intent"), engine.record()) == (intent, record)
    assert engine.value(job.observed)["state"] == "RUNNING"


def test_fewer_replicas_are_the_same_run(engine: Any) -> None:
    launch(engine, role={"num_replicas": 3})
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    live = remember(engine)
    launch(engine, live, role={"num_replicas": 2})
    job = engine.mocks.one(JOB).inputs
    assert job["metadata"]["name"] == name
    assert [task["replicas"] for task in job["spec"]["tasks"]] == [1, 1, 0]
    assert engine.record()["replicas"] == {"trainer": 2}
    assert engine.record()["launched"] == {"trainer": 3}


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_a_new_run_after_a_shrink_is_the_same_as_the_job_from_scratch(engine: Any, gang: str) -> None:
    def launched(replicas: int, *live: Any, **given: Any) -> dict[str, Any]:
        launch(engine, *live, role={"num_replicas": replicas}, gang=gang, **given)
        objects = (JOB, POD_GROUP, POD, "kubernetes:core/v1:Service")
        return {item.name: item.inputs for token in objects for item in engine.mocks.of_type(token)}

    scratch = launched(2, rerun="again")
    record = engine.record()
    launched(3)
    live = remember(engine)
    ended = [] if live is None else [{**live, "status": {"state": {"phase": "Completed"}}}]
    assert launched(2, *ended, rerun="again") == scratch
    new = engine.record()
    assert new["attempt"] == 2
    same = ("job_name", "hash", "digests", "launched", "replicas")
    assert {key: new[key] for key in same} == {key: record[key] for key in same}


@pytest.mark.parametrize(
    "change",
    [
        {"retry_policy": "REPLICA"},
        {"resource": {"capabilities": {"kinds": ["a"]}}},
        {"mounts": ()},
    ],
)
def test_a_change_of_which_nothing_is_rendered_keeps_the_run(engine: Any, change: Any) -> None:
    launch(engine)
    before = engine.mocks.one(JOB).inputs
    live = remember(engine)
    launch(engine, live, role=change)
    assert engine.mocks.one(JOB).inputs == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"env": {"A": "1", "B": "2"}}, {"env": {"B": "2", "A": "1"}}),
        (
            {"pod_overlay": {"spec": {"volumes": [{"name": "a"}]}}},
            {"pod_overlay": {"spec": {"volumes": ({"name": "a"},)}}},
        ),
    ],
)
def test_order_and_form_that_are_rendered_are_a_change(engine: Any, one: Any, other: Any) -> None:
    launch(engine, role=one)
    live = remember(engine)
    (path,) = one
    with pytest.raises(pulumi.RunError, match=rf"changing roles\[trainer\].{path} would relaunch"):
        launch(engine, live, role=other)


@pytest.mark.parametrize("change", [{"image": "app:2"}, {"num_replicas": 2}])
def test_a_change_of_a_running_job_is_refused(engine: Any, change: Any) -> None:
    launch(engine)
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    live = remember(engine)
    with pytest.raises(pulumi.RunError) as caught:
        launch(engine, live, role=change, preview=True)
    assert f"changing roles[trainer].{next(iter(change))} would relaunch run {name}" in str(caught.value)
    assert "on_running_change" in str(caught.value)
    assert not engine.mocks.resources


def test_a_change_of_a_running_job_is_made_when_asked_for(engine: Any) -> None:
    launch(engine)
    first = engine.mocks.one(JOB).inputs["metadata"]["name"]
    live = remember(engine)
    launch(engine, live, role={"image": "app:2"}, on_running_change="replace")
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] != first
    assert engine.record()["attempt"] == 2


OUTPUTS = (
    "app_id", "app_handle", "job_name", "namespace", "uid", "service", "pod_groups", "pod_names", "rank0_host",
    "images", "declared",
)  # fmt: skip


def shown(engine: Any, job: Any) -> dict[str, Any]:
    return {name: engine.value(getattr(job, name)) for name in OUTPUTS}


def remember_all(engine: Any, job: Any, phase: str = "Running") -> list[Any]:
    """Put all of a deployment into the state, and return its objects as they are in the cluster."""
    outputs = {**shown(engine, job), "observed": engine.value(job.observed)}
    engine.mocks.state = {f"{PREFIX}::train": {**engine.mocks.outputs[f"{PREFIX}::train"], **outputs}}
    live = []
    for item in engine.mocks.resources:
        if item.typ.startswith("torchx:index:VolcanoTrainingJob"):
            continue
        stored: Any = copy.deepcopy(item.inputs)
        if "metadata" in stored:
            stored["metadata"] |= {"uid": f"uid-of-{item.name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
            stored["status"] = {"state": {"phase": phase}} if item.typ == JOB else {"phase": phase}
            live.append(stored)
        engine.mocks.state[f"{PREFIX}${item.typ}::{item.name}"] = stored
    return live


ROLES = [
    {"name": "trainer", "image": "app:1", "entrypoint": "python", "num_replicas": 2},
    {"name": "reader", "image": "reader:1", "entrypoint": "python"},
]
IGNORED: dict[str, Any] = {
    "renamed role": {"roles": [{**ROLES[0], "name": "worker"}, ROLES[1]]},
    "removed role": {"roles": [ROLES[0]]},
    "added role": {"roles": [*ROLES, {"name": "eval", "image": "eval:1", "entrypoint": "python"}]},
    "more replicas": {"roles": [{**ROLES[0], "num_replicas": 5}, ROLES[1]]},
    "another image": {"roles": [{**ROLES[0], "image": "app:2"}, ROLES[1]]},
    "another namespace": {"namespace": "ml"},
    "another queue": {"queue": "other"},
    "another name": {"job_name": "mine"},
    "another plugin": {"plugins": {"env": []}},
}


@pytest.mark.parametrize(
    ("gang", "change"),
    [
        pytest.param(gang, change, id=f"{name}-{gang}")
        for name, change in IGNORED.items()
        for gang in ("job", "pods")
        # Pods that are resources of their own have no plugins.
        if (gang, name) != ("pods", "another plugin")
    ],
)
def test_under_ignore_the_whole_run_is_kept_as_it_was_launched(engine: Any, gang: str, change: Any) -> None:
    first: Any = {"roles": ROLES, "gang": gang}
    job = launch(engine, ML, queue("other"), **first)
    before = shown(engine, job)
    records = stashed(engine, "-intent"), engine.record()
    names = sorted((item.typ, item.name) for item in engine.mocks.resources)
    objects = {item.name: item.inputs["metadata"] for item in engine.mocks.resources if "metadata" in item.inputs}
    live = remember_all(engine, job)
    kept: dict[str, Any] = {}

    def note(registered: pulumi.ResourceTransformationArgs) -> None:
        if registered.type_.startswith("kubernetes:"):
            kept[registered.name] = registered.opts.ignore_changes

    opts = pulumi.ResourceOptions(transformations=[note])
    changed = {**first, **change, "on_running_change": "ignore"}
    job = launch(engine, ML, queue("other"), *live, opts=opts, **changed)
    # The engine takes no change of what the run has.
    assert kept.pop("train") == ["metadata", "spec"]
    assert all(fields == list(STORED_POD_FIELDS) for fields in kept.values())
    assert sorted((item.typ, item.name) for item in engine.mocks.resources) == names
    for item in engine.mocks.resources:
        if "metadata" in item.inputs:
            where = {key: item.inputs["metadata"][key] for key in ("name", "namespace")}
            assert where == {key: objects[item.name][key] for key in ("name", "namespace")}
    assert (stashed(engine, "-intent"), engine.record()) == records
    assert shown(engine, job) == before
    assert engine.value(job.observed)["state"] == "RUNNING"
    assert (job.plan.namespace, job.plan.job_name) == ("default", before["job_name"])


@pytest.mark.parametrize("fixed", [False, True])
def test_a_new_run_under_the_last_ones_name_replaces_its_object(engine: Any, fixed: bool) -> None:
    job = launch(engine)
    name = engine.record()["job_name"]
    live = remember_all(engine, job)
    asked: list[Any] = []

    def note(registered: pulumi.ResourceTransformationArgs) -> None:
        if registered.type_ == JOB:
            asked.append(registered.opts.replace_on_changes)

    opts = pulumi.ResourceOptions(transformations=[note])
    launch(
        engine,
        *live,
        role={"image": "app:2"},
        on_running_change="replace",
        **{"job_name": name} if fixed else {},
        opts=opts,
    )
    # Another name is a replacement by itself.
    assert asked == [["metadata", "spec"] if fixed else None]


def test_a_replacement_says_what_the_deletion_of_the_last_run_waits_for(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = launch(engine)
    live, *_ = remember_all(engine, job)
    meta = {"namespace": "default", "labels": {"volcano.sh/job-name": live["metadata"]["name"]}}
    meta |= {"name": "train-0", "deletionGracePeriodSeconds": 30}
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}}
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lambda text, *_, **__: said.append(text))
    monkeypatch.setattr(deletion, "FIRST_S", 0.1)
    answer = engine.mocks.new_resource

    def slow(made: pulumi.runtime.MockResourceArgs) -> Any:
        """Create the next job object when the deletion has said what it waits for."""
        end = time.monotonic() + (10 if "deletionTimestamp" in live["metadata"] else 0.5)
        while made.typ == JOB and not any("so far" in line for line in said) and time.monotonic() < end:
            time.sleep(0.01)
        return answer(made)

    monkeypatch.setattr(engine.mocks, "new_resource", slow)
    changed: Any = {"role": {"image": "app:2"}, "on_running_change": "replace"}
    # The engine has not asked for the deletion yet.
    launch(engine, live, one, **changed)
    assert not [line for line in said if "so far" in line]
    live["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    launch(engine, live, one, **changed)
    (line,) = [line for line in said if "so far" in line]
    assert line.startswith(f"deleting Job default/{live['metadata']['name']}, 0 s so far: waiting for 1 pod to end")


def test_preview_shows_the_change_and_not_the_digests_of_the_note_about_it(engine: Any) -> None:
    hidden: dict[str, Any] = {}

    def note(registered: pulumi.ResourceTransformationArgs) -> None:
        hidden[registered.type_] = registered.opts.hide_diffs

    opts = pulumi.ResourceOptions(transformations=[note])
    launch(engine, opts=opts)
    assert (hidden[STASH], hidden[JOB]) == (["input", "output"], None)


def test_under_ignore_a_pod_of_another_component_is_not_taken_for_ours(engine: Any) -> None:
    job = launch(engine, gang="pods")
    live = remember_all(engine, job)
    # A refresh found no Pod; the component `train-trainer` has one whose resource is called the same.
    stored = engine.mocks.state[f"{PREFIX}${POD}::train.trainer-0"]
    stored["metadata"] |= {"name": "train-trainer-1234-0-0"}
    launch(engine, *live, gang="pods", role={"image": "app:2"}, on_running_change="ignore")
    assert engine.mocks.of_type(POD) == []


def test_under_ignore_what_was_secret_stays_secret(engine: Any) -> None:
    job = launch(engine, role={"image": "private:1"})
    live = remember_all(engine, job)
    secret = {pulumi.runtime.rpc._special_sig_key: pulumi.runtime.rpc._special_secret_sig, "value": "private:1"}
    engine.mocks.state[f"{PREFIX}::train"]["images"] = {"trainer": secret}
    job = launch(engine, *live, role={"image": "app:2"}, on_running_change="ignore")
    assert engine.value(job.images) == {"trainer": "private:1"}
    assert engine.loop.run_until_complete(job.images.is_secret())


def test_under_ignore_pods_whose_metadata_is_secret_are_kept(engine: Any) -> None:
    job = launch(engine, gang="pods")
    live = copy.deepcopy(remember_all(engine, job))
    sign = {pulumi.runtime.rpc._special_sig_key: pulumi.runtime.rpc._special_secret_sig}
    for outputs in engine.mocks.state.values():
        if "metadata" in outputs:
            outputs["metadata"] = {**sign, "value": outputs["metadata"]}
    pods = [item.name for item in engine.mocks.of_type(POD)]
    launch(engine, *live, gang="pods", role={"image": "app:2"}, on_running_change="ignore")
    assert [item.name for item in engine.mocks.of_type(POD)] == pods != []


def test_under_ignore_a_run_whose_deployment_was_interrupted_is_not_half_kept(engine: Any) -> None:
    launch(engine)
    live = remember(engine, intent_only=True)
    with pytest.raises(pulumi.RunError, match="Undo the change and run `up` once"):
        launch(engine, live, role={"image": "app:2"}, on_running_change="ignore")
    assert not engine.mocks.resources


def test_under_ignore_outputs_of_the_run_before_an_interrupted_one_are_not_taken_for_its_own(engine: Any) -> None:
    remember_all(engine, launch(engine))
    launch(engine, role={"image": "app:2"})
    intent, live = stashed(engine, "-intent"), copy.deepcopy(engine.mocks.one(JOB).inputs)
    live["metadata"]["uid"] = "second"
    engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-intent"] = {"input": intent}
    engine.mocks.state[f"{PREFIX}${JOB}::train"] = live
    with pytest.raises(pulumi.RunError, match="Undo the change and run `up` once"):
        launch(engine, live, role={"image": "app:3"}, on_running_change="ignore")


@pytest.mark.parametrize("returned", ["intent of the last run", "object without a uid"])
def test_a_run_that_the_engine_left_out_is_not_noted(
    engine: Any, monkeypatch: pytest.MonkeyPatch, returned: str
) -> None:
    """With `--target` of something else the engine returns what the state has, and of an object that it did not
    create, or failed to with `--continue-on-error`, nothing."""
    live = remember_all(engine, launch(engine))
    before = copy.deepcopy(engine.mocks.state)
    create = engine.mocks.new_resource

    def left_out(given: pulumi.runtime.MockResourceArgs) -> Any:
        id_, state = create(given)
        if given.name == "train-intent" and returned.startswith("intent"):
            return id_, before[f"{PREFIX}$pulumi:index:Stash::train-intent"]
        if given.typ == JOB and returned.startswith("object"):
            return "", {}
        return id_, state

    monkeypatch.setattr(engine.mocks, "new_resource", left_out)
    launch(engine, *live, role={"image": "app:2"}, on_running_change="replace")
    noted = engine.mocks.outputs[f"{PREFIX}::train"]
    for name in ("record", "roles", "images", "job_name", "uid"):
        assert noted[name] == before[f"{PREFIX}::train"][name]


def test_a_finished_job_that_is_gone_is_not_run_again_but_by_rerun(engine: Any) -> None:
    launch(engine)
    remember(engine)
    record = engine.record()
    job = launch(engine)
    assert not engine.mocks.of_type(JOB)
    assert engine.record() == record
    assert engine.value(job.observed)["source"] == "record"
    launch(engine, rerun="again")
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] != record["job_name"]


def test_the_pods_of_a_finished_run_that_is_gone_are_not_warned_about(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    remember_all(engine, launch(engine, gang="pods"))
    caplog.clear()
    launch(engine, gang="pods")
    assert engine.mocks.of_type(POD) == []
    assert "is gone; it is not started again" not in caplog.text


def up(engine: Any, *objects: Any, preview: bool = False) -> dict[str, Any]:
    """Run the usual program; return the component's outputs as the state keeps them."""
    job = launch(engine, *objects, preview=preview)
    values = {name: engine.value(getattr(job, name)) for name in ("uid", "observed", "requested")}
    return {name: value for name, value in values.items() if value is not None}


def test_the_end_of_a_run_is_remembered_by_an_output_and_changes_no_resource(engine: Any) -> None:
    up(engine)
    live = remember(engine)
    before = [stashed(engine, "-intent"), engine.record()]
    live["status"] = {"state": {"phase": "Completed"}}
    outputs = up(engine, live)
    # A resource whose inputs stay is no change in a preview.
    assert [stashed(engine, "-intent"), engine.record()] == before
    remember(engine)
    engine.mocks.state[f"{PREFIX}::train"] |= outputs
    observed = up(engine)["observed"]
    assert (observed["state"], observed["source"]) == ("SUCCEEDED", "record")
    assert [stashed(engine, "-intent"), engine.record()] == before


END = {"state": "FAILED", "reason": "ExitCode", "attempt": 1, "observed_at": "2026-01-01T00:00:00Z"}
CANCEL = {"action": "cancel", "at": "2026-01-01T10:00:00Z", "counter": 1.0, "uid": "uid-of-train"}


@pytest.mark.parametrize(
    ("observed", "requested", "state"),
    [
        (END, None, "FAILED"),
        (END, CANCEL, "FAILED"),
        ({**END, "state": "RUNNING"}, None, "UNKNOWN"),
        ({**END, "state": "RUNNING"}, CANCEL, "CANCELLED"),
        ({}, None, "UNKNOWN"),
    ],
)
def test_a_run_whose_object_is_gone_stands_as_observed_and_requested(
    engine: Any, observed: Any, requested: Any, state: str
) -> None:
    up(engine)
    remember(engine)
    outputs = {"uid": "uid-of-train", "observed": observed, "requested": requested}
    engine.mocks.state[f"{PREFIX}::train"] |= {name: value for name, value in outputs.items() if value}
    assert up(engine)["observed"]["state"] == state


@pytest.mark.parametrize(
    ("observed", "goal", "problem"),
    [
        (END, "completed", " is FAILED (ExitCode: exit 3); it will not be completed"),
        ({**END, "state": "CANCELLED", "reason": "Cancelled"}, "running", "it will not be running"),
        ({**END, "state": "SUCCEEDED", "reason": "Succeeded"}, "completed", None),
        ({**END, "state": "RUNNING"}, "completed", None),
        (END, "created", None),
    ],
)
@pytest.mark.parametrize("preview", [True, False])
def test_a_run_that_missed_the_goal_fails_each_deployment_also_when_its_object_is_gone(
    engine: Any, observed: Any, goal: str, problem: str | None, preview: bool
) -> None:
    up(engine)
    remember(engine)
    engine.mocks.state[f"{PREFIX}::train"] |= {"uid": "uid-of-train", "observed": {**observed, "message": "exit 3"}}
    with failures_deferred() as failures:
        launch(engine, wait_for=goal, preview=preview)
    if problem is None or preview:
        assert failures == []
    else:
        assert problem in failures[0]
        assert failures[0].endswith("To run it again, set `rerun` to a new value")


@pytest.mark.parametrize("preview", [True, False])
@pytest.mark.parametrize("requested", [None, CANCEL])
def test_without_a_cluster_a_run_is_not_gone(engine: Any, requested: Any, preview: bool) -> None:
    up(engine)
    # The job object is not in the state.
    remember(engine)
    outputs = {"uid": "uid-of-train", "observed": {**END, "state": "RUNNING", "reason": "Running"}}
    engine.mocks.state[f"{PREFIX}::train"] |= {**outputs, **({} if requested is None else {"requested": requested})}
    with cluster_for_tests(None):
        job = engine.run(lambda: VolcanoTrainingJob("train", args()), preview=preview)
    observed = engine.value(job.observed)
    assert (observed["state"], observed["reason"], observed["source"]) == ("RUNNING", "Running", "record")


def test_the_end_of_another_run_is_not_taken_for_this_ones(engine: Any) -> None:
    up(engine)
    remember(engine)
    engine.mocks.state[f"{PREFIX}::train"] |= {"uid": "of-the-run-before", "observed": END, "requested": CANCEL}
    found = up(engine)
    assert (found["observed"]["state"], found["observed"]["reason"]) == ("UNKNOWN", "NotFound")
    assert "requested" not in found


def test_what_is_requested_stays_with_its_run_and_goes_with_a_new_one(engine: Any) -> None:
    up(engine)
    live = remember(engine)
    engine.mocks.state[f"{PREFIX}::train"] |= {"uid": "uid-of-train", "requested": CANCEL}
    before = [stashed(engine, "-intent"), engine.record()]
    for preview in (True, False):
        found = up(engine, live, preview=preview)
        assert (found["requested"]["action"], found["requested"]["counter"]) == ("cancel", 1)
        assert (found["observed"]["state"], found["observed"]["reason"]) == ("RUNNING", "Cancelled")
        assert [stashed(engine, "-intent"), engine.record()] == before
    job = launch(engine, role={"image": "app:2"})
    assert engine.value(job.requested) is None


@pytest.mark.parametrize("preview", [True, False])
def test_pods_that_the_deletion_of_a_job_ends_are_no_end_of_it(engine: Any, preview: bool) -> None:
    up(engine)
    live = remember(engine)
    engine.mocks.state[f"{PREFIX}${JOB}::train"] = copy.deepcopy(live)
    live["metadata"]["deletionTimestamp"] = "2026-01-01T10:00:00Z"
    (name, labels) = (live["metadata"]["name"], {"volcano.sh/job-name": live["metadata"]["name"]})
    killed = {"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-trainer-0-0",
            "namespace": "default",
            "labels": labels,
            "deletionTimestamp": "2026-01-01T10:00:00Z",
        },
        "status": {"phase": "Failed", "containerStatuses": [killed]},
    }
    assert up(engine, live, pod, preview=preview)["observed"]["state"] == "RUNNING"
    engine.mocks.state[f"{PREFIX}::train"] |= {"uid": "uid-of-train", "observed": up(engine, live, pod)["observed"]}
    observed = up(engine, preview=preview)["observed"]
    assert (observed["state"], observed["reason"]) == ("UNKNOWN", "NotFound")
    assert "last seen RUNNING" in observed["message"]


def test_a_preview_shows_no_change_of_an_object_that_is_gone_and_up_never_makes_it(engine: Any) -> None:
    up(engine)
    live = remember(engine)
    engine.mocks.state[f"{PREFIX}${JOB}::train"] = live
    up(engine, preview=True)
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == live["metadata"]["name"]
    up(engine)
    assert engine.mocks.of_type(JOB) == []
    # After a refresh the state has it no more.
    del engine.mocks.state[f"{PREFIX}${JOB}::train"]
    up(engine, preview=True)
    assert engine.mocks.of_type(JOB) == []


def test_after_a_refused_launch_the_old_job_may_come_back(engine: Any) -> None:
    launch(engine)
    first = engine.mocks.one(JOB).inputs["metadata"]["name"]
    remember(engine)
    records = engine.records()
    launch(engine, role={"image": "app:2"})
    remember(engine, intent_only=True)
    engine.mocks.state |= records
    launch(engine)
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == first


def test_a_launch_that_was_killed_before_its_record_is_kept(engine: Any) -> None:
    launch(engine)
    live = remember(engine, intent_only=True)
    launch(engine, live)
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == live["metadata"]["name"]
    assert engine.record()["attempt"] == 1
    with pytest.raises(pulumi.RunError, match="would relaunch"):
        launch(engine, live, role={"image": "app:2"})


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_what_a_killed_launch_created_is_imported_and_only_that(engine: Any, gang: str) -> None:
    job = launch(engine, gang=gang, role={"num_replicas": 2})
    live = remember_all(engine, job)
    del engine.mocks.state[f"{PREFIX}::train"]["record"]
    created = {item.name for item in engine.mocks.resources if "metadata" in item.inputs}
    # The engine noted the job object only; the last pod was not created.
    kept = {"train"} if gang == "pods" else set()
    for urn in [urn for urn in engine.mocks.state if urn.rpartition("::")[2] in created - kept and "$kube" in urn]:
        del engine.mocks.state[urn]
    missing = {"train.trainer-1"} if gang == "pods" else set()
    found = [item for item in live if not item["metadata"]["name"].endswith("-trainer-1-0")]
    launch(engine, *found, gang=gang, role={"num_replicas": 2})
    objects = [item for item in engine.mocks.resources if "metadata" in item.inputs]
    assert {item.name for item in objects} == created
    imported = {item.name: item.resource_id for item in objects if item.resource_id}
    names = {item.name: f"default/{item.inputs['metadata']['name']}" for item in objects}
    assert imported == {name: names[name] for name in created - kept - missing}


def killed(engine: Any, job: Any, *noted: str) -> list[Any]:
    """Leave all objects live, and the intent and some objects in the state, as a kill does. Return the live objects."""
    live = remember_all(engine, job)
    del engine.mocks.state[f"{PREFIX}::train"]["record"]
    for urn in [urn for urn in engine.mocks.state if "$kubernetes:" in urn and urn.rpartition("::")[2] not in noted]:
        del engine.mocks.state[urn]
    return live


@pytest.mark.parametrize(("gang", "noted"), [("job", []), ("pods", []), ("pods", ["train", "train.service"])])
@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_a_killed_launch_is_completed_before_it_is_replaced(engine: Any, gang: str, noted: Any, phase: str) -> None:
    job = launch(engine, gang=gang)
    live = killed(engine, job, *noted)
    live[0]["status"] = {"state": {"phase": phase}} if gang == "job" else {"phase": phase}
    changed: Any = {"gang": gang, "role": {"image": "app:2"}, "on_running_change": "replace"}
    with pytest.raises(pulumi.RunError, match="Undo the change and run `pulumi up`"):
        launch(engine, *live, **changed)
    assert not engine.mocks.resources
    remember_all(engine, launch(engine, *live, gang=gang))
    launch(engine, *live, **changed)
    assert engine.record()["attempt"] == 2


def test_pods_that_this_deployment_makes_are_not_gone(engine: Any) -> None:
    given: Any = {"gang": "pods", "role": {"num_replicas": 2}}
    job = launch(engine, **given)
    live = [item for item in killed(engine, job) if not item["metadata"]["name"].endswith("-trainer-1-0")]
    for item in live:
        if item["kind"] == "Pod":
            item["spec"]["nodeName"] = "node"
    job = launch(engine, *live, **given)
    assert engine.value(job.observed)["state"] == "RUNNING"
    # The state has all of them now, and one was deleted.
    remember_all(engine, job)
    job = launch(engine, *live, **given)
    assert (engine.value(job.observed)["state"], engine.value(job.observed)["reason"]) == ("FAILED", "PodGone")


def test_a_killed_launch_is_completed_before_a_change_is_ignored(engine: Any) -> None:
    job = launch(engine)
    live = killed(engine, job)
    changed: Any = {"role": {"image": "app:2"}, "on_running_change": "ignore"}
    with pytest.raises(pulumi.RunError, match="Undo the change and run `up` once"):
        launch(engine, *live, **changed)
    assert not engine.mocks.resources
    remember_all(engine, launch(engine, *live))
    launch(engine, *live, **changed)
    assert engine.record()["attempt"] == 1
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == live[0]["metadata"]["name"]


def test_an_object_that_is_being_deleted_is_not_imported(engine: Any) -> None:
    job = launch(engine)
    (live,) = killed(engine, job)
    live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(pulumi.RunError, match=r"is being deleted.*up` again once"):
        launch(engine, live)
    launch(engine)
    assert engine.mocks.one(JOB).resource_id == ""


def test_another_run_under_the_fixed_name_of_a_lost_state_is_named(engine: Any) -> None:
    job = launch(engine, job_name="mine")
    (live,) = remember_all(engine, job)
    engine.mocks.state = {}
    with pytest.raises(pulumi.RunError, match="is another run of this component"):
        launch(engine, live, role={"image": "app:2"}, job_name="mine")
    launch(engine, live, job_name="mine")
    assert engine.mocks.one(JOB).resource_id == "default/mine"


def test_a_subclass_may_have_a_constructor_of_its_own(engine: Any) -> None:
    class Mine(VolcanoTrainingJob):
        def __init__(self, name: str, image: str) -> None:
            super().__init__(name, args(role={"image": image}))

    engine.run(lambda: Mine("train", image="app:7"))
    assert engine.mocks.one(JOB).inputs["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "app:7"


@pytest.mark.parametrize("mark", [LAUNCH, RUN])
def test_a_pod_of_somebody_else_is_never_imported(engine: Any, mark: str) -> None:
    job = launch(engine, gang="pods")
    live = remember_all(engine, job)
    del engine.mocks.state[f"{PREFIX}::train"]["record"]
    del engine.mocks.state[f"{PREFIX}${POD}::train.trainer-0"]
    pod = next(item for item in live if item["kind"] == "Pod")
    pod["metadata"]["annotations"][mark] = "another"
    launch(engine, *live, gang="pods")
    assert [item.resource_id for item in engine.mocks.of_type(POD)] == [""]


def test_a_replaced_object_in_the_state_is_named_where_the_new_one_has_its_name(engine: Any) -> None:
    fixed = {"job_name": "mine", "on_running_change": "replace"}
    job = launch(engine, **fixed)
    (live,) = remember_all(engine, job)
    stored = copy.deepcopy(engine.mocks.state)
    changed: Any = {"role": {"image": "app:2"}, **fixed}
    job = launch(engine, live, **changed)
    (new,) = remember_all(engine, job)
    new["metadata"]["uid"] = "new"
    # Killed before it noted more than the intent.
    intent = f"{PREFIX}$pulumi:index:Stash::train-intent"
    engine.mocks.state = {**stored, intent: engine.mocks.state[intent]}
    urn = f"{PREFIX}${JOB}::train"
    advice = f"`pulumi state delete --target-dependents '{urn}'`; the next `pulumi up` imports the new one"
    with pytest.raises(pulumi.RunError, match=re.escape(advice)):
        launch(engine, new, **changed)
    assert not engine.mocks.of_type(JOB)
    del engine.mocks.state[urn]
    launch(engine, new, **changed)
    assert engine.mocks.one(JOB).resource_id == "default/mine"


def test_an_interrupted_launch_that_cannot_be_looked_at_names_the_import(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", args()))
    remember(engine, intent_only=True)
    engine.run(lambda: VolcanoTrainingJob("train", args()))
    name = engine.mocks.one(JOB).inputs["metadata"]["name"]
    assert f"pulumi import {JOB} train default/{name} --parent component='{PREFIX}::train'" in caplog.text


def test_an_older_kubernetes_sdk_is_refused_before_anything_is_registered(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "provider_version", lambda: "4.28.0")
    with pytest.raises(pulumi.RunError, match=r"Kubernetes provider 4\.28 is too old.*nothing was changed"):
        engine.run(lambda: VolcanoTrainingJob("train", args()))
    assert not engine.mocks.resources


def test_a_newer_kubernetes_sdk_is_warned_about_once(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cli, "provider_version", lambda: "4.99.1")
    engine.run(lambda: [VolcanoTrainingJob(name, args()) for name in ("a", "b")])
    assert caplog.text.count("Kubernetes provider 4.99 is newer than") == 1


@pytest.mark.parametrize("preview", [True, False])
def test_a_protected_object_that_is_gone_is_refused_in_preview_too(engine: Any, preview: bool) -> None:
    protected = pulumi.ResourceOptions(protect=True)
    remember_all(engine, launch(engine, opts=protected))
    with pytest.raises(pulumi.RunError, match="Run `pulumi refresh`"):
        launch(engine, opts=protected, preview=preview)


@pytest.mark.parametrize("preview", [True, False])
def test_a_new_run_of_the_name_of_a_retained_one_is_refused_in_preview_too(engine: Any, preview: bool) -> None:
    retained = pulumi.ResourceOptions(retain_on_delete=True)
    launch(engine, job_name="fixed", opts=retained)
    live = remember(engine)
    again: Any = {"job_name": "fixed", "rerun": "1", "on_running_change": "replace", "preview": preview}
    with pytest.raises(pulumi.RunError, match=r"run fixed stays in the cluster \(retain_on_delete\)"):
        launch(engine, live, opts=retained, **again)
    launch(engine, live, **again)


def test_a_project_that_always_refreshes_is_noticed(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    file = tmp_path / "Pulumi.yaml"
    for text, expected in (("name: x", False), ("options: {refresh: always}", True), ("options: [", False)):
        file.write_text(text)
        assert refreshes_first() is expected


@pytest.fixture
def interrupted_move(engine: Any) -> Any:
    """A run of namespace `default`, and the note of a move to `ml` that was interrupted before anything was made."""
    launch(engine, ML)
    live = remember(engine)
    records = engine.records()
    launch(engine, ML, live, namespace="ml", on_running_change="replace")
    remember(engine, intent_only=True)
    engine.mocks.state |= records
    return live


def test_after_an_interrupted_move_a_change_does_not_relaunch_over_the_running_job(
    engine: Any, interrupted_move: Any
) -> None:
    changes: Any = ({"role": {"image": "app:2"}}, {"namespace": "ml"}, {"namespace": "ml", "queue": "other"})
    for changed in changes:
        with pytest.raises(pulumi.RunError, match="would relaunch run"):
            launch(engine, ML, interrupted_move, **changed)
    launch(engine, ML, interrupted_move)
    kept = engine.mocks.one(JOB).inputs["metadata"]
    assert (kept["namespace"], kept["name"]) == ("default", interrupted_move["metadata"]["name"])


def test_a_move_that_was_interrupted_after_its_job_was_made_is_taken_up_where_it_went(
    engine: Any, interrupted_move: Any
) -> None:
    intent = engine.mocks.state[f"{PREFIX}$pulumi:index:Stash::train-intent"]["input"]
    moved = copy.deepcopy(interrupted_move)
    moved["metadata"] |= {"namespace": "ml", "name": intent["job_name"], "uid": "moved"}
    moved["metadata"]["annotations"][RUN] = intent["hash"]
    job = launch(engine, ML, moved, namespace="ml")
    assert engine.record()["uid"] == "moved"
    assert engine.value(job.namespace) == "ml"


def foreign_job(phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    """Return a Job that no component made."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "mine", "namespace": "default", "uid": "u", **metadata},
        "spec": {"queue": "other", "tasks": []},
        "status": {"state": {"phase": phase}},
    }


def test_a_move_does_not_take_the_name_of_somebody_elses_object(engine: Any) -> None:
    foreign = foreign_job(namespace="ml")
    launch(engine, ML, foreign, job_name="mine")
    live = remember(engine)
    with pytest.raises(pulumi.RunError, match="in namespace 'ml' exists"):
        launch(engine, ML, foreign, live, job_name="mine", namespace="ml", on_running_change="replace")


def test_a_new_name_with_an_alias_keeps_the_run(engine: Any) -> None:
    launch(engine)
    live = remember(engine)
    opts = pulumi.ResourceOptions(aliases=[pulumi.Alias(name="train")])
    with cluster_for_tests(cluster(live)):
        engine.run(lambda: VolcanoTrainingJob("other", args(), opts))
    assert engine.mocks.one(JOB).inputs["metadata"]["name"] == live["metadata"]["name"]


def test_an_object_of_somebody_else_is_left_alone(engine: Any) -> None:
    foreign = foreign_job()
    with pytest.raises(pulumi.RunError, match="was not created by this stack"):
        launch(engine, foreign, job_name="mine")
    launch(engine, foreign, job_name="mine", opts=pulumi.ResourceOptions(import_="default/mine"))
    assert engine.mocks.one(JOB).inputs["spec"] == foreign["spec"]


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_an_imported_job_stays_as_it_is_and_gets_our_labels_at_the_next_up(engine: Any, phase: str) -> None:
    metadata = {
        "name": "mine",
        "namespace": "default",
        "labels": {"team": "x", "stage": "a"},
        "annotations": {"a": "b"},
    }
    foreign = foreign_job(phase, **metadata, uid="theirs")

    def up(**changes: Any) -> Any:
        opts = pulumi.ResourceOptions(import_="default/mine")
        launch(engine, foreign, job_name="mine", **changes, opts=opts)
        return engine.mocks.one(JOB)

    first = up()
    assert (first.resource_id, first.inputs["metadata"]) == ("default/mine", metadata)
    assert engine.record()["uid"] == "theirs"
    for _ in range(2):
        remember(engine)
        engine.mocks.state[f"{PREFIX}$kubernetes:batch.volcano.sh/v1alpha1:Job::train"] = copy.deepcopy(foreign)
        found = up(labels={"stage": "b"})
        # As an object that is in the state: it is neither imported again nor launched.
        assert not found.resource_id
        assert found.inputs["spec"] == foreign["spec"]
        own, annotations = found.inputs["metadata"]["labels"], found.inputs["metadata"]["annotations"]
        assert own == {"team": "x", "stage": "b", LAUNCH: own[LAUNCH]}
        assert annotations == {"a": "b", RUN: engine.record()["hash"]}
        foreign["metadata"] |= {"labels": own, "annotations": annotations}
    assert engine.record()["uid"] == "theirs"


def test_queue_namespace_and_priority_class_are_looked_for_all_at_once(engine: Any) -> None:
    with cluster_for_tests(cluster(queue("shut", "Closed"))):
        with pytest.raises(pulumi.RunError) as caught:
            engine.run(
                lambda: VolcanoTrainingJob("train", args(queue="defualt", namespace="ml", priority_class="high")),
                preview=True,
            )
        for text in ("queue: 'defualt' is not in the cluster; did you mean 'default'?", "namespace: 'ml'", "'high'"):
            assert text in str(caught.value)
        with pytest.raises(pulumi.RunError, match="queue: 'shut' is Closed"):
            engine.run(lambda: VolcanoTrainingJob("train", args(queue="shut")))
        assert not engine.mocks.resources
        # A kept run needs no open queue, and what this deployment may create is not looked for.
        engine.run(
            lambda: VolcanoTrainingJob(
                "train",
                args(namespace=pulumi.Output.from_input("ml"), queue=pulumi.Output.from_input("new")),
            )
        )


def test_a_gang_of_pods_is_a_pod_group_a_service_and_pods(engine: Any) -> None:
    job = engine.run(
        lambda: VolcanoTrainingJob("train", args(gang="pods", role={"num_replicas": 2, "min_replicas": 1}))
    )
    name = engine.mocks.one(POD_GROUP).inputs["metadata"]["name"]
    assert engine.mocks.one(POD_GROUP).inputs["spec"]["minMember"] == 1
    # Registered at the same time, so in any order.
    pods = sorted(pod.inputs["metadata"]["name"] for pod in engine.mocks.of_type(POD))
    assert pods == engine.value(job.pod_names)
    assert engine.mocks.one("kubernetes:core/v1:Service").inputs["metadata"]["name"] == name
    assert engine.value(job.pod_groups) == [name]
    assert not engine.mocks.of_type(JOB)


def test_a_gang_of_pods_cannot_retry(engine: Any) -> None:
    with pytest.raises(pulumi.RunError, match=r"roles\[0\]\.max_retries"):
        engine.run(lambda: VolcanoTrainingJob("train", args(gang="pods", role={"max_retries": 1})))


def test_the_kubeconfig_of_the_arguments_makes_a_provider_that_hides_it(engine: Any) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", args(kubeconfig="apiVersion: v1", kube_context="c")))
    provider = engine.mocks.one("pulumi:providers:kubernetes")
    assert pulumi.runtime.rpc._special_secret_sig in repr(provider.inputs["kubeconfig"])
    assert engine.mocks.one(JOB).provider.endswith("::train-kubernetes-id")


@pytest.mark.parametrize(
    "given",
    [lambda: {**args(), "kubeContext": "c"}, lambda: pulumi.Output.from_input({**args(), "kube_context": "c"})],
    ids=["camel case", "one Output"],
)
def test_the_context_makes_a_provider_in_whatever_form_it_is_given(engine: Any, given: Callable[[], Any]) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", given()))
    assert engine.mocks.one("pulumi:providers:kubernetes").inputs["context"] == "c"


@pytest.mark.parametrize(
    ("phase", "goal", "problem"),
    [
        ("Completed", "completed", None),
        ("Running", "running", None),
        ("Failed", "completed", "is FAILED (Failed: "),
        ("Aborted", "running", "it will not be running"),
        ("Running", "completed", "not completed within 1 s; it is left as it is"),
    ],
)
def test_a_deployment_waits_as_far_as_it_was_asked_to(engine: Any, phase: str, goal: str, problem: str | None) -> None:
    launch(engine)
    live = remember(engine)
    live["status"] = {"state": {"phase": phase}}

    def program() -> Any:
        return VolcanoTrainingJob("train", args(wait_for=goal, timeout_s=1))

    with cluster_for_tests(cluster(live)):
        with failures_deferred() as failures:
            job = engine.run(program)
        assert engine.value(job.observed)["phase"] == phase
        if problem is None:
            assert failures == []
            return
        assert problem in failures[0]
        again = "\n  `up` does not run it again. To run it again, set `rerun` to a new value"
        assert failures[0].endswith(again) is (phase != "Running")
        with pytest.raises(pulumi.RunError, match=r"it (will not|is left)"):
            engine.run(program)


def test_outputs_have_what_a_wait_has_seen_last(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(engine)
    live = remember(engine)
    there = cluster(live)
    # The job ends when the plan has been made.
    ended = {**live, "status": {"state": {"phase": "Failed"}}}
    monkeypatch.setattr(pulumi.log, "info", lambda *_, **__: there.put(ended))
    with cluster_for_tests(there), failures_deferred() as failures:
        job = engine.run(lambda: VolcanoTrainingJob("train", args(wait_for="completed", timeout_s=20)))
    assert (engine.value(job.observed)["phase"], len(failures)) == ("Failed", 1)


@pytest.mark.parametrize("words", ["--x", True, 3, {"a": "b"}, None, [None], [["--x"]]])
def test_arguments_of_a_plugin_that_are_no_list_of_texts_are_refused(engine: Any, words: Any) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        engine.run(lambda: VolcanoTrainingJob("train", args(plugins={"svc": words, "env": []}, gang="nope")))
    assert "plugins[svc]" in str(refused.value)
    assert "must be a list of texts" in str(refused.value) or "must be a text" in str(refused.value)
    # All problems are said at once.
    assert "gang: must be one of" in str(refused.value)


@pytest.mark.parametrize("plugins", [{}, {"svc": [], "env": ["--a", 2.0]}])
def test_plugins_are_those_that_were_asked_for(engine: Any, plugins: Any) -> None:
    engine.run(lambda: VolcanoTrainingJob("train", args(plugins=plugins)))
    found = engine.mocks.one(JOB).inputs["spec"]["plugins"]
    assert found == {name: [str(word).removesuffix(".0") for word in words] for name, words in plugins.items()}


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize("form", ["resource", "list", "output of a resource", "output of a list", "list of outputs"])
def test_a_job_waits_for_what_it_depends_on_in_every_form(engine: Any, form: str, preview: bool) -> None:
    def program() -> None:
        other = pulumi.Stash("other", input="x")
        forms: dict[str, Any] = {
            "resource": other,
            "list": [other],
            "output of a resource": other.urn.apply(lambda _: other),
            "output of a list": other.urn.apply(lambda _: [other]),
            "list of outputs": [other.urn.apply(lambda _: other)],
        }
        VolcanoTrainingJob("train", args(queue="coming"), pulumi.ResourceOptions(depends_on=forms[form]))

    # What it depends on may make the queue, so that it is not looked for.
    with cluster_for_tests(cluster()):
        engine.run(program, preview=preview)
    assert [item.name for item in engine.mocks.resources].index("other") == 0
    assert engine.mocks.one(JOB).inputs["spec"]["queue"] == "coming"


def test_the_program_of_the_page_reads_another_stack(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torchx = {"torchx": {"schema_version": 1}}
    registered = engine.mocks.new_resource

    def new_resource(given: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if given.typ == "pulumi:pulumi:StackReference":
            return given.name, {"name": given.name, "outputs": torchx}
        return registered(given)

    monkeypatch.setattr(engine.mocks, "new_resource", new_resource)
    monkeypatch.setattr(
        "torchx_pulumi.outputs.reader.read_outputs", lambda value: {"observed": {"state": value["schema_version"]}}
    )
    names: dict[str, Any] = {}
    engine.run(lambda: exec(block("docs/status.md", "stack-reference"), names))
    assert engine.value(names["state"]) == 1


def test_the_documented_mpi_job_ends_with_its_launcher_and_starts_it_last(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulumi, "export", lambda *_: None)
    engine.run(lambda: exec(block("docs/role-order.md", "mpi"), {}), preview=True)
    (job,) = engine.mocks.of_type(JOB)
    launcher, worker = job.inputs["spec"]["tasks"]
    assert launcher["policies"][0] == {"event": "TaskCompleted", "action": "CompleteJob"}
    assert (launcher["dependsOn"], worker["name"], worker["replicas"]) == ({"name": ["worker-0"]}, "worker-0", 4)
    assert job.inputs["spec"]["minAvailable"] == 4
