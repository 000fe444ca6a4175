"""Several jobs in one program: decided at the same time, refused one by one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockMonitor
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob
from torchx_pulumi_components.program_jobs import ProgramJobs

from tests.components.test_volcano_training_job import JOB, NAMESPACE, POD, POD_GROUP, STASH, args, cluster, queue
from tests.doc_blocks import block

NAMES = ("one", "two", "three")
SERVICE = "kubernetes:core/v1:Service"


class CountingCluster(FakeCluster):
    """Counts what is asked for, and lets reads of job objects wait for each other."""

    def __init__(self, at_once: int = 1) -> None:
        super().__init__([NAMESPACE, queue()])
        self.asked: list[str] = []
        self.together = threading.Barrier(at_once)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Any:
        self.asked.append(f"{kind.kind} {name}")
        if kind.kind == "Job":
            # Broken, which raises, unless as many threads read at the same time.
            self.together.wait(60)
        return super().get(kind, namespace, name)


def make(**changes: Any) -> list[VolcanoTrainingJob]:
    return [VolcanoTrainingJob(name, changes.get(name, args())) for name in NAMES]


def test_jobs_are_decided_at_the_same_time_with_one_read_of_the_state_and_of_the_queue(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, reads = CountingCluster(at_once=len(NAMES)), []
    call = engine.mocks.call
    monkeypatch.setattr(engine.mocks, "call", lambda given: reads.append(given.token) or call(given))
    with cluster_for_tests(seen):
        engine.run(make)
    assert reads == ["pulumi:pulumi:readStackResourceOutputs"]
    assert seen.asked.count("Queue default") == 1
    assert {item.name for item in engine.mocks.of_type(JOB)} == {*NAMES}


@pytest.mark.parametrize(("gang", "objects"), [("job", {JOB: 1}), ("pods", {POD_GROUP: 1, SERVICE: 1, POD: 2})])
def test_a_job_is_a_component_a_note_and_its_objects(engine: Any, gang: str, objects: dict[str, int]) -> None:
    """Each resource is written to the state twice."""
    with cluster_for_tests(cluster()):
        engine.run(lambda: VolcanoTrainingJob("one", args(gang=gang, role={"num_replicas": 2})))
    found = Counter(item.typ for item in engine.mocks.resources)
    assert found == {"torchx:index:VolcanoTrainingJob": 1, STASH: 1, **objects}


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_no_names_of_two_jobs_are_the_same(engine: Any, gang: str) -> None:
    """Also where name and role together are: `train` with `eval-worker`, `train-eval` with `worker`."""
    jobs = {"train": "eval-worker", "train-eval": "worker"}

    def program(*names: str) -> list[VolcanoTrainingJob]:
        return [VolcanoTrainingJob(name, args(gang=gang, role={"name": jobs[name]})) for name in names]

    with cluster_for_tests(cluster()):
        engine.run(lambda: program(*jobs))
    together = [(item.typ, item.name) for item in engine.mocks.resources]
    assert len(set(together)) == len(together)
    engine.mocks.state, records = engine.records(), engine.records()
    for item in engine.mocks.resources:
        prefix = "urn:pulumi:dev::proj::torchx:index:VolcanoTrainingJob"
        if not item.typ.startswith("torchx:"):
            engine.mocks.state[f"{prefix}${item.typ}::{item.name}"] = item.inputs
    objects = [item.inputs for item in engine.mocks.resources if "metadata" in item.inputs]
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert len(names) == len(objects)
    live = [{**item, "metadata": {**item["metadata"], "uid": "uid-of-train"}} for item in objects]
    for name in jobs:
        # Each finds its own run in the state, and keeps it.
        with cluster_for_tests(cluster(*live)):
            (job,) = engine.run(lambda name=name: program(name))
        assert engine.value(job.job_name) == records[f"{prefix}::{name}"]["record"]["job_name"]
        assert {(item.typ, item.name) for item in engine.mocks.resources} <= set(together)


def test_every_refusal_is_told_once_and_the_other_jobs_are_made(engine: Any) -> None:
    wrong = {"two": args(role={"image": ""}), "three": args(queue="nosuch")}
    with cluster_for_tests(cluster()), pytest.raises(pulumi.RunError) as caught:
        engine.run(lambda: make(**wrong))
    assert str(caught.value).splitlines() == [
        "job 'two' has 1 problem:",
        "  - roles[0].image: is not set (found ''); give a value",
        "job 'three' has 1 problem:",
        "  - queue: 'nosuch' is not in the cluster; there are default",
    ]
    assert {item.name.partition("-")[0] for item in engine.mocks.resources} == {"one"}


def test_what_depends_on_a_refused_job_is_not_made_and_the_rest_is(engine: Any) -> None:
    def program() -> None:
        one, two, _ = make(two=args(queue="nosuch"))
        pulumi.Stash("uses", input=two.uid)
        pulumi.Stash("after", input="x", opts=pulumi.ResourceOptions(depends_on=[two]))
        pulumi.Stash("below", input="x", opts=pulumi.ResourceOptions(parent=two))
        pulumi.Stash("fine", input=one.uid)
        VolcanoTrainingJob("four", args(), pulumi.ResourceOptions(depends_on=[two]))
        VolcanoTrainingJob("five", args(role={"env": {"UID": two.uid}}))

    with cluster_for_tests(cluster()), pytest.raises(pulumi.RunError) as caught:
        engine.run(program)
    lines = str(caught.value).splitlines()
    assert lines[2:] == [
        f"job '{name}': nothing was changed, because it depends on job 'two'" for name in ("four", "five")
    ]
    assert {item.name for item in engine.mocks.of_type(JOB)} == {"one", "three"}
    notes = {item.name for item in engine.mocks.of_type(STASH)}
    assert notes == {"fine", "one-intent", "three-intent"}


def test_what_depends_on_a_job_is_made_after_its_objects(engine: Any) -> None:
    def program() -> None:
        (job, *_) = make()
        pulumi.Stash("uses", input=job.app_id)
        pulumi.Stash("after", input="x", opts=pulumi.ResourceOptions(depends_on=[job]))

    with cluster_for_tests(cluster()):
        engine.run(program)
    order = [item.name for item in engine.mocks.resources]
    assert min(order.index("uses"), order.index("after")) > order.index("one")


def test_the_program_of_the_page_makes_its_jobs(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exported: dict[str, Any] = {}
    monkeypatch.setattr(pulumi, "export", exported.__setitem__)
    engine.run(lambda: exec(block("docs/infra-teams.md", "jobs"), {}), preview=True)
    jobs = [item.name for item in engine.mocks.of_type(JOB)]
    assert sorted(jobs) == ["check", "rate-0.01", "rate-0.1"]
    assert jobs.index("check") > jobs.index("rate-0.01")
    assert exported.keys() == {"state-0.1", "state-0.01"}


def test_a_plan_is_waited_for_and_that_of_a_refused_job_is_its_error(engine: Any) -> None:
    def program() -> None:
        one, two, _ = make(two=args(queue="nosuch"))
        assert one.plan.namespace == "default"
        with pytest.raises(pulumi.RunError, match="queue: 'nosuch' is not in the cluster"):
            _ = two.plan

    with cluster_for_tests(cluster()), pytest.raises(pulumi.RunError):
        engine.run(program)


def test_arguments_that_a_program_changes_later_are_taken_as_they_were(engine: Any) -> None:
    def program() -> None:
        given = args()
        VolcanoTrainingJob("one", given)
        given["roles"][0]["image"] = "app:2"

    engine.run(program)
    (container,) = engine.mocks.one(JOB).inputs["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["image"] == "app:1"


def test_what_does_not_exist_is_read_again_and_so_is_what_runs_are_made_of() -> None:
    seen = CountingCluster()
    shared = ProgramJobs().shared_reads(seen)
    assert shared is not None
    kinds = Kind(group="scheduling.volcano.sh", version="v1beta1", kind="Queue", plural="queues", namespaced=False)
    pods = Kind(group="", version="v1", kind="Pod", plural="pods")
    for _ in range(2):
        assert shared.get(kinds, None, "nosuch") is None
        assert shared.get(kinds, None, "default") is not None
        assert shared.get(pods, "default", "a") is None
    assert seen.asked.count("Queue nosuch") == 2
    assert seen.asked.count("Queue default") == 1
    assert seen.asked.count("Pod a") == 2


def test_jobs_share_what_they_list_of_the_whole_cluster_and_nothing_of_a_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed: list[tuple[str | None, Any]] = []

    def listing(kind: Kind, namespace: str | None, selector: Any = None) -> list[Any]:
        listed.append((namespace, selector))
        return [{"kind": kind.kind}]

    seen = FakeCluster([NAMESPACE, queue()])
    monkeypatch.setattr(seen, "list", listing)
    shared = ProgramJobs().shared_reads(seen)
    assert shared is not None
    groups = Kind(group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups")
    for _ in range(2):
        assert shared.list(groups, None) == [{"kind": "PodGroup"}]
        shared.list(groups, None, {"a": "b"})
        shared.list(groups, "default")
    assert listed == [(None, None), (None, {"a": "b"}), ("default", None), (None, {"a": "b"}), ("default", None)]


def test_children_of_a_job_send_no_trace_of_calls_to_the_state(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, int] = {}
    register = MockMonitor.RegisterResource

    def noted(monitor: Any, request: Any) -> Any:
        sent[request.name] = len(request.stackTrace.frames)
        return register(monitor, request)

    monkeypatch.setattr(MockMonitor, "RegisterResource", noted)
    with cluster_for_tests(cluster()):
        engine.run(lambda: VolcanoTrainingJob("one", args()))
        assert {name for name, frames in sent.items() if not frames} >= {"one-intent", "one"}


def test_an_output_of_a_job_is_made_once(engine: Any) -> None:
    def program() -> None:
        job = VolcanoTrainingJob("one", args())
        assert "app_id" not in vars(job)
        assert job.app_id is job.app_id
        job.app_id.apply(told.append)

    told: list[str] = []
    engine.run(program)
    assert told == [f"default:{engine.mocks.one(JOB).inputs['metadata']['name']}"]


def test_a_list_or_options_that_a_program_changes_later_are_taken_as_they_were(engine: Any) -> None:
    def program() -> None:
        before: list[pulumi.Resource] = []
        for name in NAMES:
            before.append(VolcanoTrainingJob(name, args(), pulumi.ResourceOptions(depends_on=before)))
        options = pulumi.ResourceOptions()
        for name in ("four", "five"):
            options.depends_on = [VolcanoTrainingJob(name, args(), options)]

    engine.run(program)
    order = [item.name for item in engine.mocks.of_type(JOB)]
    assert {*order} == {*NAMES, "four", "five"}
    assert [name for name in order if name in NAMES] == [*NAMES]


class Around(pulumi.ComponentResource):
    """Has a job, which may depend on what is around it."""

    def __init__(self, *, by_output: bool) -> None:
        super().__init__("test:index:Around", "around", {})
        options = pulumi.ResourceOptions(parent=self, depends_on=None if by_output else [self])
        VolcanoTrainingJob("inside", args(role={"env": {"URN": self.urn}} if by_output else {}), options)
        self.register_outputs({})


@pytest.mark.parametrize("by_output", [True, False])
def test_a_job_that_depends_on_the_component_around_it_is_refused(engine: Any, *, by_output: bool) -> None:
    # Pulumi has an error of its own, if it comes first.
    with pytest.raises((pulumi.RunError, RuntimeError), match=r"depends on itself|circular dependency"):
        engine.run(lambda: Around(by_output=by_output))
    assert engine.mocks.of_type(JOB) == []


def test_a_job_below_another_one_cannot_depend_on_it(engine: Any) -> None:
    def program() -> None:
        one = VolcanoTrainingJob("one", args())
        VolcanoTrainingJob("two", args(role={"env": {"UID": one.uid}}), pulumi.ResourceOptions(parent=one))

    with pytest.raises((pulumi.RunError, RuntimeError), match=r"depends on itself|circular dependency"):
        engine.run(program)
    assert {item.name for item in engine.mocks.of_type(JOB)} == {"one"}


def test_a_job_behind_an_output_in_a_list_is_waited_for_before_the_decision(engine: Any) -> None:
    seen = CountingCluster()

    def program() -> None:
        one = VolcanoTrainingJob("one", args(queue="nosuch"))
        given: Any = [pulumi.Output.from_input(one)]
        VolcanoTrainingJob("two", args(), pulumi.ResourceOptions(depends_on=given))

    with cluster_for_tests(seen), pytest.raises(pulumi.RunError, match="'two': nothing was changed, because"):
        engine.run(program)
    assert engine.mocks.resources == []
    assert not [item for item in seen.asked if item.startswith("Job two")]


def test_a_refused_job_of_a_test_does_not_fail_the_next_test(engine: Any) -> None:
    pulumi.runtime.set_mocks(engine.mocks)

    @pulumi.runtime.test
    def first() -> None:
        VolcanoTrainingJob("one", args(role={"image": ""}))

    @pulumi.runtime.test
    def second() -> Any:
        return VolcanoTrainingJob("two", args()).uid

    with pytest.raises(pulumi.RunError, match=r"roles\[0\].image"):
        first()
    second()
    assert engine.mocks.one(JOB).name == "two"
