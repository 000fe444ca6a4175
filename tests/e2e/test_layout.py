"""A run in the layout `role` on the real engine and Volcano's real webhooks: what changes it, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD

from tests.e2e.project import Project, changes, eventually
from tests.e2e.test_volcano_training_job import JOB_NAME, job_of

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
    for count, least, tasks, pods in (
        (2, 1, {"trainer-0": 1, "trainer-1": 1}, all_pods[:2]),
        (4, 3, {"trainer-0": 1, "trainer-1": 3}, all_pods),
    ):
        project.job({"num_replicas": count, "min_replicas": least}, layout="replica")
        text = project.up()
        assert "in place: " in text
        assert changes(text)["updated"] == 1
        assert replicas(look, project) == tasks
        assert job_of(look, project)["spec"]["minAvailable"] == least
        eventually(lambda wanted=pods: running(look, project) == wanted)  # type: ignore[misc]
        assert project.output("uid") == uid == job_of(look, project)["metadata"]["uid"]
        assert project.output("pod_names") == [f"{name}-{pod}" for pod in pods]
    # A new run takes the layout of its time.
    project.job({"num_replicas": 4}, layout="replica", rerun="2", on_running_change="replace")
    project.up()
    assert replicas(look, project) == dict.fromkeys(("trainer-0", "trainer-1", "trainer-2", "trainer-3"), 1)
    assert project.output("uid") != uid
    record = record_of(project)
    assert (record["version"], record.get("tasks"), record["attempt"]) == (1, None, 2)
