"""VolcanoTrainingJob on the real engine and Volcano's real webhooks: what keeps a run, and what ends it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from torchx_pulumi.doctor.examining import check_edits
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.finding import DoctorScope
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE

from tests.e2e.fleet.controller_world import tell
from tests.e2e.project import FAKE_NODE, PROGRAM, Project, changes, eventually

pytestmark = pytest.mark.e2e

JOB_NAME = "volcano.sh/job-name"


def job_of(look: KubernetesCluster, project: Project) -> Any:
    return look.get(VOLCANO_JOB, project.namespace, project.output("job_name"))


def phase(look: KubernetesCluster, project: Project) -> Any:
    return ((job_of(look, project) or {}).get("status") or {}).get("state", {}).get("phase")


@contextmanager
def owners_of_pods(look: KubernetesCluster, namespace: str) -> Iterator[list[set[str]]]:
    """Sample, as fast as it goes, the runs that have pods."""
    samples: list[set[str]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.05):
            # An API server that had no time for an answer says nothing.
            with suppress(ClusterError):
                pods = look.list(POD, namespace)
                samples.append({pod["metadata"].get("labels", {}).get(JOB_NAME, "") for pod in pods})

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def test_a_large_gang_keeps_its_uid_changes_nothing_and_leaves_nothing(
    project: Project, look: KubernetesCluster
) -> None:
    size = {"num_replicas": 64, "resource": {"cpu": 0.5, "memory_mb": 1500}}
    project.job({**size, "retry_policy": "REPLICA", "max_retries": 3})
    project.up()
    uid, name = project.output("uid"), project.output("job_name")
    assert uid == job_of(look, project)["metadata"]["uid"]
    eventually(lambda: phase(look, project) == "Running")
    for step in (project.up, project.refresh, project.up):
        assert changes(step()).keys() == {"unchanged"}
    assert project.output("uid") == uid
    assert project.output("observed")["state"] == "RUNNING"
    project.destroy()
    assert project.resources() == []
    assert look.get(VOLCANO_JOB, project.namespace, name) is None
    assert look.list(POD, project.namespace, {JOB_NAME: name}) == []


def test_an_elastic_change_and_a_new_name_with_an_alias_are_made_in_place(
    project: Project, look: KubernetesCluster
) -> None:
    project.job({"num_replicas": 4})
    project.up()
    uid = project.output("uid")
    project.job({"num_replicas": 4, "min_replicas": 2}, labels={"team": "a"})
    text = project.up()
    assert "in place:" in text
    assert changes(text)["updated"] == 1
    job = job_of(look, project)
    assert (job["metadata"]["uid"], job["spec"]["minAvailable"]) == (uid, 2)
    assert job["metadata"]["labels"]["team"] == "a"
    project.job({"num_replicas": 2, "min_replicas": 1}, labels={"team": "a"})
    project.up()
    job = job_of(look, project)
    assert job["metadata"]["uid"] == uid
    assert [task["replicas"] for task in job["spec"]["tasks"]] == [1, 1, 0, 0]
    pods = {JOB_NAME: project.output("job_name")}
    eventually(lambda: len(look.list(POD, project.namespace, pods)) == 2)
    project.job({"num_replicas": 2, "min_replicas": 1}, labels={"team": "a"}, name="renamed", aliases=["train"])
    project.up()
    assert project.output("uid") == uid == job_of(look, project)["metadata"]["uid"]
    assert changes(project.up()).keys() == {"unchanged"}


def label_as_kubectl_does(cluster: Any, project: Project, **labels: str) -> None:
    path = f"/apis/{VOLCANO_JOB.api_version}/namespaces/{project.namespace}/jobs/{project.output('job_name')}"
    body = json.dumps({"metadata": {"labels": labels}}).encode()
    cluster.api.request("PATCH", f"{path}?fieldManager=kubectl-label", body, kind="merge-patch+json")


def test_a_label_that_somebody_edited_is_named_with_its_client_before_the_engine_reports_a_conflict(
    project: Project, look: KubernetesCluster, cluster: Any
) -> None:
    def found() -> str:
        return check_edits(look, DoctorScope(namespace=project.namespace)).detail

    edited, outside = "metadata.labels.team, set by kubectl-label at ", "was changed outside Pulumi"
    for team in ("none", "ml"):
        project.job(labels={"team": team})
        project.up()
    eventually(lambda: phase(look, project) == "Running")
    uid = project.output("uid")
    # What Volcano's controllers and webhooks have written is no edit.
    assert outside not in project.preview()
    assert found() == f"no job of namespace {project.namespace} was changed outside Pulumi"
    label_as_kubectl_does(cluster, project, team="ops", seen="yes")
    text = project.preview()
    assert edited in text
    assert "seen" not in text
    assert f"Job {project.output('job_name')}: metadata.labels.seen, metadata.labels.team, set by kubectl-la" in found()
    project.refresh()
    text = project.preview(fails=True)
    assert "conflict" in text.replace("field conflict)", "")
    assert edited in text
    # Taken over.
    project.job(labels={"team": "ops"})
    assert outside not in project.preview()
    # Left to others.
    project.job(labels={"team": "ml"}, ignore_changes=["metadata.labels.team"])
    assert outside not in project.preview()
    # Overwritten.
    project.job(labels={"team": "ml"}, annotations={"pulumi.com/patchForce": "true"})
    assert outside not in project.preview()
    project.up()
    job = job_of(look, project)
    assert (job["metadata"]["labels"]["team"], job["metadata"]["uid"]) == ("ml", uid)


@pytest.mark.parametrize("gang", ["job", pytest.param("pods", marks=pytest.mark.extended)])
def test_a_change_of_a_running_job_is_refused_and_then_made_without_overlap(
    project: Project, look: KubernetesCluster, gang: str
) -> None:
    project.job(gang=gang)
    project.up()
    first = {"uid": project.output("uid"), "name": project.output("job_name")}
    eventually(lambda: len(look.list(POD, project.namespace, {JOB_NAME: first["name"]})) == 2)
    project.job({"image": "app:2"}, gang=gang)
    text = project.preview(fails=True)
    assert f"changing roles[trainer].image would relaunch run {first['name']}" in text
    assert project.output("uid") == first["uid"]
    project.job({"image": "app:2"}, gang=gang, on_running_change="replace")
    assert "RELAUNCH: roles[trainer].image" in project.preview()
    with owners_of_pods(look, project.namespace) as samples:
        project.up()
        second = project.output("job_name")
        eventually(lambda: len(look.list(POD, project.namespace, {JOB_NAME: second})) == 2)
    assert second != first["name"]
    assert project.output("uid") != first["uid"]
    assert [sample for sample in samples if len(sample) > 1] == []
    assert changes(project.up()).keys() == {"unchanged"}


SECRET_PROGRAM = PROGRAM.replace(
    "opts = ", 'given["args"]["roles"][0]["env"] = {"TOKEN": pulumi.Output.secret("hunter2-hunter2")}\nopts = ', 1
)


def test_under_ignore_nothing_of_a_running_gang_of_pods_changes(
    make_project: Callable[..., Project], namespace: str, look: KubernetesCluster
) -> None:
    project, gang = make_project("kept", program=SECRET_PROGRAM), "pods"
    base = {"image": "app:1", "entrypoint": "sleep", "args": ["600"], **FAKE_NODE}
    trainer, reader = {**base, "name": "trainer", "num_replicas": 2}, {**base, "name": "reader"}
    project.job(gang=gang, roles=[trainer, reader])
    project.up()
    run = {JOB_NAME: project.output("job_name")}
    eventually(lambda: len(look.list(POD, namespace, run)) == 3)

    def there() -> set[tuple[str, str]]:
        kinds = (POD, SERVICE, VOLCANO_JOB, VOLCANO_POD_GROUP)
        found = [item["metadata"] for kind in kinds for item in look.list(kind, namespace)]
        return {(item["name"], item["uid"]) for item in found}

    def shown() -> dict[str, Any]:
        outputs = json.loads(project.run("stack", "output", "--json"))
        return {name: value for name, value in outputs.items() if name != "observed"}

    objects, outputs = there(), shown()
    assert outputs["namespace"] == namespace
    for change in (
        {"roles": [{**trainer, "name": "worker", "image": "app:2", "num_replicas": 4}]},
        {"roles": [trainer, reader], "namespace": "default", "job_name": "another", "queue": "other"},
    ):
        project.job(gang=gang, on_running_change="ignore", **change)
        assert "is kept as it is" in project.preview()
        assert changes(project.up()).keys() == {"unchanged"}
        assert there() == objects
        assert shown() == outputs
    assert "hunter2" not in project.run("stack", "export")
    project.refresh()
    assert changes(project.up()).keys() == {"unchanged"}
    project.job(gang=gang, roles=[{**trainer, "name": "worker"}], on_running_change="replace")
    project.up()
    eventually(lambda: not objects & there())
    new = {JOB_NAME: project.output("job_name")}
    eventually(lambda: len(look.list(POD, namespace, new)) == 2)
    project.run("destroy", "--yes", "--skip-preview")
    eventually(lambda: not there())


def test_a_fixed_name_can_be_relaunched(project: Project, look: KubernetesCluster) -> None:
    project.job(job_name="mine")
    project.up()
    uid = project.output("uid")
    project.job({"image": "app:2"}, job_name="mine", on_running_change="replace")
    project.up()
    # Also under the name of a job that exists, Volcano's webhook judges the new one in the preview.
    project.job({"image": "app:3"}, job_name="mine", on_running_change="replace", plugins={"nosuch": []})
    assert "nosuch" in project.preview(fails=True)
    project.job({"image": "app:2"}, job_name="mine")
    assert project.output("job_name") == "mine"
    assert project.output("uid") != uid
    assert changes(project.up()).keys() == {"unchanged"}


def test_a_launch_that_the_cluster_refuses_leaves_the_way_open(project: Project, look: KubernetesCluster) -> None:
    # Volcano's webhook refuses a plugin that it does not know; only it can tell.
    project.job(plugins={"nosuch": []})
    assert "nosuch" in project.run("up", "--yes", "--skip-preview", fails=True)
    assert look.list(VOLCANO_JOB, project.namespace) == []
    project.job()
    project.up()
    first = project.output("job_name")
    project.job(plugins={"nosuch": []}, on_running_change="replace")
    assert "nosuch" in project.run("up", "--yes", "--skip-preview", fails=True)
    project.job()
    project.up()
    assert project.output("job_name") == first
    assert [job["metadata"]["name"] for job in look.list(VOLCANO_JOB, project.namespace)] == [first]


def test_a_gang_of_pods_is_made_kept_and_destroyed(project: Project, look: KubernetesCluster) -> None:
    project.job({"num_replicas": 3, "min_replicas": 2}, gang="pods")
    project.up()
    name = project.output("job_name")
    eventually(
        lambda: (
            [pod["status"].get("phase") for pod in look.list(POD, project.namespace, {JOB_NAME: name})]
            == ["Running"] * 3
        )
    )
    group = look.get(VOLCANO_POD_GROUP, project.namespace, name)
    assert group is not None
    assert group["spec"]["minMember"] == 2
    for step in (project.refresh, project.up):
        assert changes(step()).keys() == {"unchanged"}
    project.job({"num_replicas": 2, "min_replicas": 1}, gang="pods")
    project.up()
    assert [pod["metadata"]["name"] for pod in look.list(POD, project.namespace, {JOB_NAME: name})] == project.output(
        "pod_names"
    )
    project.destroy()
    assert look.list(POD, project.namespace, {JOB_NAME: name}) == []
    assert look.get(SERVICE, project.namespace, name) is None
    assert look.get(VOLCANO_POD_GROUP, project.namespace, name) is None


def test_a_gang_of_pods_that_does_not_fit_holds_back_as_a_whole(project: Project, look: KubernetesCluster) -> None:
    project.job({"num_replicas": 8, "resource": {"cpu": 60}}, gang="pods")
    project.up()
    time.sleep(3)
    pods = look.list(POD, project.namespace, {JOB_NAME: project.output("job_name")})
    assert not [pod for pod in pods if pod["spec"].get("nodeName")]
    project.up()
    assert project.output("observed")["state"] in ("PENDING", "SUBMITTED")


def test_what_cannot_be_launched_is_said_in_preview_and_leaves_nothing(
    project: Project, look: KubernetesCluster, closed_queue: Callable[[str], None]
) -> None:
    project.job(queue="nosuch")
    text = "queue: 'nosuch' is not in the cluster"
    assert text in project.preview(fails=True)
    assert text in project.run("up", "--yes", "--skip-preview", fails=True)
    own = ("pulumi:pulumi:Stack", "pulumi:providers:pulumi")
    assert [item["type"] for item in project.resources() if item["type"] not in own] == []
    shut = f"{project.namespace}-shut"
    closed_queue(shut)
    eventually(lambda: ((look.get(VOLCANO_QUEUE, None, shut) or {}).get("status") or {}).get("state") == "Closed")
    project.job(queue=shut)
    assert f"queue: '{shut}' is Closed" in project.preview(fails=True)


def test_a_job_made_by_somebody_else_is_taken_over_on_purpose_only(
    project: Project, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    project.job(job_name="mine")
    project.up()
    uid = project.output("uid")
    other = make_project("other")
    other.job(job_name="mine")
    assert "was not created by this stack" in other.preview(fails=True)
    other.job(job_name="mine", **{"import": f"{other.namespace}/mine"})
    other.up()
    assert changes(other.up()).get("updated") == 1, "the label of the new stack"
    assert other.output("uid") == uid
    for step in (other.refresh, other.up):
        assert changes(step()).keys() == {"unchanged"}


def shell_roles(image: str, **scripts: str) -> list[dict[str, Any]]:
    """Return roles on the real node that run a script; the last one has two replicas."""
    base = {"image": image, "entrypoint": "sh", "resource": {"cpu": 0.2, "memory_mb": 1100}}
    roles = [{**base, "name": name, "args": ["-c", script]} for name, script in scripts.items()]
    roles[-1]["num_replicas"] = 2
    return roles


def replicas_of(project: Project, role: str) -> list[tuple[str, str]]:
    """Return state and reason of the replicas of a role as the stack's outputs have them."""
    (found,) = (one for one in project.output("observed")["roles"] if one["name"] == role)
    return [(replica["state"], replica["reason"]) for replica in found["replicas"]]


def ended(project: Project, look: KubernetesCluster) -> dict[str, Any]:
    """Wait until Volcano calls a job ended, and return what the stack's outputs say then."""
    eventually(lambda: phase(look, project) in ("Completed", "Terminated", "Failed"))
    project.up()
    observed: dict[str, Any] = project.output("observed")
    return observed


@pytest.mark.parametrize(
    ("script", "state", "reason", "in_volcano"),
    [("sleep 3", "SUCCEEDED", "Completed", "Completed"), ("sleep 3; exit 7", "FAILED", "ExitCode", "Terminated")],
)
def test_a_job_ends_with_its_master_while_workers_run_on(
    project: Project, look: KubernetesCluster, image: str, script: str, state: str, reason: str, in_volcano: str
) -> None:
    project.job(roles=shell_roles(image, master=script, worker="sleep 900"), success_roles=["master"])
    project.up()
    observed = ended(project, look)
    assert (observed["state"], observed["reason"], observed["phase"]) == (state, reason, in_volcano)
    assert replicas_of(project, "worker") == [("CANCELLED", "RoleEnded")] * 2
    assert replicas_of(project, "master") == [(state, reason)]
    assert project.output("declared")["success_roles"] == ["master"]


def test_a_job_whose_trainers_fail_after_their_data_was_there_has_failed(
    project: Project, look: KubernetesCluster, image: str
) -> None:
    roles = shell_roles(image, data="sleep 6", trainer="exit 3")
    # Until the test says so the data is not there.
    download = f"trap 'exit 0' USR1; sleep 900 & wait; : {project.namespace}"
    init = {"name": "download", "image": image, "command": ["sh", "-c", download]}
    roles[0]["pod_overlay"] = {"spec": {"initContainers": [init]}}
    project.job(roles=roles, start_after={"trainer": ["data"]})
    assert "start_after gives up the gang for trainer" in project.up()
    selector = {JOB_NAME: project.output("job_name")}
    (pod,) = eventually(lambda: look.list(POD, project.namespace, selector))

    def download_of(name: str) -> Any:
        status = (look.get(POD, project.namespace, name) or {}).get("status") or {}
        return next((one["state"] for one in status.get("initContainerStatuses") or ()), {})

    eventually(lambda: "running" in download_of(pod["metadata"]["name"]))
    project.up()
    assert replicas_of(project, "trainer") == [("PENDING", "WaitingForRole")] * 2
    assert [
        pod["metadata"]["labels"]["volcano.sh/task-spec"] for pod in look.list(POD, project.namespace, selector)
    ] == ["data-0"]
    tell(download)
    observed = ended(project, look)
    # Volcano counts the pods that have succeeded, and asks for one.
    assert (observed["state"], observed["reason"], observed["phase"]) == ("FAILED", "ExitCode", "Completed")
    assert replicas_of(project, "trainer") == [("FAILED", "ExitCode")] * 2
    assert changes(project.up()).keys() == {"unchanged"}
