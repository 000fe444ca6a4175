"""What the component asks the engine for where replicas share tasks (layout `role`), without an engine."""

from __future__ import annotations

import copy
from typing import Any

import pulumi
import pytest
from torchx_pulumi.testing import cluster_for_tests
from torchx_pulumi_components import VolcanoTrainingJob

from tests.components.test_volcano_training_job import JOB, args, cluster, remember


def up(engine: Any, *objects: Any, preview: bool = False, **given: Any) -> Any:
    """Run a program of one job of four replicas, and return its component."""
    role = {"num_replicas": 4, **given.pop("role", {})}
    with cluster_for_tests(cluster(*objects)):
        return engine.run(lambda: VolcanoTrainingJob("train", args(role=role, **given)), preview=preview)


def tasks(engine: Any) -> dict[str, int]:
    return {task["name"]: task["replicas"] for task in engine.mocks.one(JOB).inputs["spec"]["tasks"]}


ALONE = {f"trainer-{replica}": 1 for replica in range(4)}
SHARED = {"trainer-0": 1, "trainer-1": 3}


def test_outputs_name_the_pods_of_shared_tasks_in_rank_order(engine: Any) -> None:
    job = up(engine, layout="role")
    name = engine.value(job.job_name)
    assert tasks(engine) == SHARED
    assert engine.value(job.pod_names) == [f"{name}-trainer-{tail}" for tail in ("0-0", "1-0", "1-1", "1-2")]
    assert engine.value(job.rank0_host) == f"{name}-trainer-0-0.{name}"
    (declared,) = engine.value(job.declared)["roles"]
    assert declared["replicas"] == 4
    record = engine.record()
    assert (record["version"], record["tasks"]) == (2, {"trainer": [0, 1]})


def test_a_record_of_one_task_per_replica_names_no_layout(engine: Any) -> None:
    up(engine)
    record = engine.record()
    assert record["version"] == 1
    assert not {"tasks", "layout"} & record.keys()


def test_the_layout_is_no_part_of_the_identity(engine: Any) -> None:
    records = []
    for layout in ("replica", "role", "auto"):
        up(engine, layout=layout)
        record = engine.record()
        records.append({key: record[key] for key in ("hash", "digests", "job_name", "launched", "replicas")})
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize(("first", "then"), [("role", "replica"), ("role", "auto"), ("replica", "role")])
def test_a_run_that_is_kept_keeps_its_layout(engine: Any, first: str, then: str) -> None:
    up(engine, layout=first)
    before, launched = engine.mocks.one(JOB).inputs, tasks(engine)
    record = engine.record()
    live = remember(engine)
    for preview in (True, False):
        up(engine, live, layout=then, preview=preview)
        assert engine.mocks.one(JOB).inputs == before
        assert engine.record() == record
    # So does one that changes in place.
    job = up(engine, live, layout=then, role={"num_replicas": 2, "min_replicas": 1})
    counts = [1, 1] if first == "role" else [1, 1, 0, 0]
    assert list(tasks(engine).values()) == counts
    assert len(engine.value(job.pod_names)) == 2
    changed = engine.record()
    assert (changed["replicas"], changed.get("tasks"), changed["hash"]) == (
        {"trainer": 2},
        record.get("tasks"),
        record["hash"],
    )
    # A new run takes the option of its time.
    up(engine, live, layout=then, rerun="2", on_running_change="replace")
    assert launched == (SHARED if first == "role" else ALONE)
    assert tasks(engine) == (SHARED if then == "role" else ALONE)
    assert engine.record().get("tasks") == ({"trainer": [0, 1]} if then == "role" else None)


def test_a_launch_that_was_killed_before_its_record_keeps_its_tasks(engine: Any) -> None:
    up(engine, layout="role")
    live = remember(engine, intent_only=True)
    up(engine, live, layout="replica")
    assert tasks(engine) == SHARED
    assert engine.record()["tasks"] == {"trainer": [0, 1]}


def test_a_job_that_is_imported_keeps_its_tasks(engine: Any) -> None:
    up(engine, layout="role", job_name="mine")
    live: Any = copy.deepcopy(engine.mocks.one(JOB).inputs)
    live["metadata"] |= {"uid": "theirs", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {}}
    given = args(role={"num_replicas": 4}, layout="replica", job_name="mine")
    with cluster_for_tests(cluster(live)):
        opts = pulumi.ResourceOptions(import_="default/mine")
        job = engine.run(lambda: VolcanoTrainingJob("train", given, opts))
    assert tasks(engine) == SHARED
    assert engine.value(job.pod_names)[-1] == "mine-trainer-1-2"
    assert engine.record()["tasks"] == {"trainer": [0, 1]}


@pytest.mark.parametrize("role", ["my role", "x" * 70, "trainer-1"])
@pytest.mark.parametrize("imported", [True, False])
def test_a_job_without_a_record_keeps_the_tasks_of_roles_of_any_name(engine: Any, role: str, imported: bool) -> None:
    named = {"job_name": "mine"} if imported else {}
    first = up(engine, layout="role", role={"name": role}, **named)
    before, pods, record = tasks(engine), engine.value(first.pod_names), engine.record()
    live: Any = copy.deepcopy(engine.mocks.one(JOB).inputs)
    live["metadata"] |= {"uid": "theirs", "creationTimestamp": "2026-01-01T00:00:00Z"}
    opts = pulumi.ResourceOptions(import_="default/mine") if imported else None
    given = args(role={"num_replicas": 4, "name": role}, layout="replica", **named)
    with cluster_for_tests(cluster(live)):
        job = engine.run(lambda: VolcanoTrainingJob("train", given, opts))
    assert tasks(engine) == before
    assert engine.value(job.pod_names) == pods
    assert engine.record()["tasks"] == record["tasks"] == {role: [0, 1]}


def test_an_imported_job_whose_tasks_are_numbered_otherwise_has_a_record_that_is_read(engine: Any) -> None:
    up(engine, layout="role", job_name="mine")
    live: Any = copy.deepcopy(engine.mocks.one(JOB).inputs)
    live["metadata"] |= {"uid": "theirs", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {}}
    live["spec"]["tasks"] = [{**live["spec"]["tasks"][1], "name": "trainer-7", "replicas": 4}]
    given = args(role={"num_replicas": 4}, layout="role", job_name="mine")
    with cluster_for_tests(cluster(live)):
        opts = pulumi.ResourceOptions(import_="default/mine")
        engine.run(lambda: VolcanoTrainingJob("train", given, opts))
    assert "tasks" not in engine.record()


def test_a_pod_of_a_shared_task_that_is_gone_is_missed_by_its_replica(engine: Any) -> None:
    up(engine, layout="role")
    live = remember(engine)
    name = live["metadata"]["name"]
    live["status"] = {
        "state": {"phase": "Running"},
        "taskStatusCount": {"trainer-0": {"phase": {"Running": 1}}, "trainer-1": {"phase": {"Running": 2}}},
    }
    pods = [pod(name, "trainer-0", 0), *(pod(name, "trainer-1", index) for index in (0, 2))]
    job = up(engine, live, *pods, layout="role")
    (role,) = engine.value(job.observed)["roles"]
    assert [replica["id"] for replica in role["replicas"]] == [0, 1, 2, 3]
    assert [replica["state"] for replica in role["replicas"]].count("RUNNING") == 3
    assert role["replicas"][2]["state"] != "RUNNING"


def pod(job: str, task: str, index: int) -> Any:
    """Return a pod as Volcano's job controller makes it."""
    marks = {"volcano.sh/task-spec": task, "volcano.sh/task-index": str(index), "volcano.sh/job-name": job}
    role = {"torchx.pytorch.org/role-name": "trainer", "torchx.pytorch.org/role-index": "0"}
    metadata = {"name": f"{job}-{task}-{index}", "namespace": "default", "uid": f"{task}-{index}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "labels": {**marks, **role}, "annotations": marks},
        "spec": {"containers": [{"name": task}], "nodeName": "n"},
        "status": {"phase": "Running", "containerStatuses": [{"name": task, "ready": True, "state": {"running": {}}}]},
    }
