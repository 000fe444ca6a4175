"""Runs in the layout `role` on the real engine and Volcano's real webhooks: what keeps a run, and what changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, Project, changes, eventually
from tests.e2e.test_volcano_training_job import JOB_NAME, job_of, kill_between_writes

pytestmark = pytest.mark.e2e


def replicas(look: KubernetesCluster, project: Project) -> dict[str, int]:
    """Return the tasks of the job object and their replicas."""
    return {task["name"]: task["replicas"] for task in job_of(look, project)["spec"]["tasks"]}


def running(look: KubernetesCluster, project: Project) -> list[str]:
    """Return the pods of a run that are not being deleted, without the name of the job, when all of them run."""
    name = project.output("job_name")
    found = look.list(POD, project.namespace, {JOB_NAME: name})
    pods = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
    whole = all(pod["status"].get("phase") == "Running" for pod in pods)
    return sorted(pod["metadata"]["name"].removeprefix(f"{name}-") for pod in pods) if whole else []


def record_of(project: Project) -> dict[str, Any]:
    """Return the record of the run in the stack."""
    (found,) = [item for item in project.resources() if item["type"] == "torchx:index:VolcanoTrainingJob"]
    record: dict[str, Any] = found["outputs"]["record"]
    return record


def test_an_elastic_change_is_made_in_the_layout_that_was_recorded(project: Project, look: KubernetesCluster) -> None:
    project.job({"num_replicas": 4}, layout="role")
    project.up()
    uid, name = project.output("uid"), project.output("job_name")
    all_pods = ["trainer-0-0", "trainer-1-0", "trainer-1-1", "trainer-1-2"]
    assert project.output("pod_names") == [f"{name}-{pod}" for pod in all_pods]
    eventually(lambda: running(look, project) == all_pods)
    assert (record_of(project)["version"], record_of(project)["tasks"]) == (2, {"trainer": [0, 1]})
    # The option is for the next launch.
    project.job({"num_replicas": 4}, layout="replica")
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    for count, least, tasks, pods in (
        (2, 1, {"trainer-0": 1, "trainer-1": 1}, all_pods[:2]),
        (4, 3, {"trainer-0": 1, "trainer-1": 3}, all_pods),
    ):
        project.job({"num_replicas": count, "min_replicas": least}, layout="replica")
        shown = project.run("preview", "--diff", "--suppress-outputs")
        assert "in place: " in shown
        assert {line.split(":")[0].strip() for line in shown.splitlines() if "=>" in line} >= {"~ minAvailable"}
        assert "++" not in shown
        assert changes(project.up())["updated"] == 1
        assert replicas(look, project) == tasks
        assert job_of(look, project)["spec"]["minAvailable"] == least
        eventually(lambda wanted=pods: running(look, project) == wanted)  # type: ignore[misc]
        assert project.output("uid") == uid == job_of(look, project)["metadata"]["uid"]
        assert project.output("pod_names") == [f"{name}-{pod}" for pod in pods]
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    # A new run takes the layout of its time.
    project.job({"num_replicas": 4}, layout="replica", rerun="2", on_running_change="replace")
    project.up()
    assert replicas(look, project) == dict.fromkeys(("trainer-0", "trainer-1", "trainer-2", "trainer-3"), 1)
    assert project.output("uid") != uid
    record = record_of(project)
    assert (record["version"], record.get("tasks"), record["attempt"]) == (1, None, 2)


def test_under_ignore_a_run_of_shared_tasks_stays_as_it_is(project: Project, look: KubernetesCluster) -> None:
    base = {"image": "app:1", "entrypoint": "sleep", "args": ["600"], **FAKE_NODE}
    trainer = {**base, "name": "trainer", "num_replicas": 3}
    reader = {**base, "name": "reader", "num_replicas": 2, "env": {"SHARD": "${replica_id}"}}
    project.job(roles=[trainer, reader], layout="role")
    project.up()
    pods = ["reader-0-0", "reader-0-1", "trainer-0-0", "trainer-1-0", "trainer-1-1"]
    eventually(lambda: running(look, project) == pods)
    names, before = project.output("pod_names"), job_of(look, project)
    for change in ([{**trainer, "image": "app:2", "num_replicas": 5}, reader], [{**trainer, "name": "other"}]):
        project.job(roles=change, layout="replica", on_running_change="ignore")
        assert "is kept as it is" in project.preview()
        assert changes(project.up()).keys() == {"unchanged"}
        assert project.output("pod_names") == names
    assert job_of(look, project)["spec"] == before["spec"]
    replicas_seen = [
        (role["name"], replica["id"], replica["pod"].removeprefix(f"{project.output('job_name')}-"))
        for role in project.output("observed")["roles"]
        for replica in role["replicas"]
    ]
    assert replicas_seen == [
        ("trainer", 0, "trainer-0-0"),
        ("trainer", 1, "trainer-1-0"),
        ("trainer", 2, "trainer-1-1"),
        ("reader", 0, "reader-0-0"),
        ("reader", 1, "reader-0-1"),
    ]


def test_a_killed_launch_of_shared_tasks_is_finished_by_the_next_up(project: Project, look: KubernetesCluster) -> None:
    project.job({"num_replicas": 3}, layout="role")
    process = project.start("up", "--yes", "--skip-preview")
    (job,) = eventually(lambda: look.list(VOLCANO_JOB, project.namespace))
    kill_between_writes(project, process)
    project.run("cancel", "--yes", "dev")
    # The option has changed since; the job object is as it was launched.
    project.job({"num_replicas": 3}, layout="replica")
    project.up()
    assert project.output("uid") == job["metadata"]["uid"]
    assert replicas(look, project) == {"trainer-0": 1, "trainer-1": 2}
    project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert changes(project.up()).keys() == {"unchanged"}
    assert record_of(project)["tasks"] == {"trainer": [0, 1]}


def test_a_job_of_shared_tasks_is_taken_over_as_it_is(
    project: Project, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    project.job({"num_replicas": 3}, job_name="mine", layout="role")
    project.up()
    uid = project.output("uid")
    other = make_project("other")
    imported: dict[str, Any] = {"import": f"{other.namespace}/mine"}
    other.job({"num_replicas": 3}, job_name="mine", layout="replica", **imported)
    other.up()
    assert other.output("uid") == uid
    other.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert replicas(look, other) == {"trainer-0": 1, "trainer-1": 2}
    assert other.output("pod_names") == ["mine-trainer-0-0", "mine-trainer-1-0", "mine-trainer-1-1"]
