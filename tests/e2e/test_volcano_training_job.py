"""VolcanoTrainingJob on the real engine and Volcano's real webhooks: what keeps a run, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE

from tests.e2e.project import FAKE_NODE, PROGRAM, Project, changes, eventually, finite

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
        while not over.is_set():
            names = {pod["metadata"].get("labels", {}).get(JOB_NAME, "") for pod in look.list(POD, namespace)}
            samples.append(names)
            time.sleep(0.05)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def kill_between_writes(project: Project, process: subprocess.Popen[str]) -> None:
    """Kill the CLI and all that it started at a moment at which its checkpoint is whole.

    Pulumi writes the state and its attributes in more than one step; killed between them it leaves an empty file, which
    is not what is tested here.
    """
    while process.poll() is None:
        os.killpg(process.pid, signal.SIGSTOP)
        # A thread within a call of the system ends that call before it stops.
        time.sleep(0.05)
        if project.checkpoint_is_whole():
            break
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "role",
    [
        {"num_replicas": 1, "resource": {"cpu": 0.5, "memory_mb": 1500}, "max_retries": 0},
        {"num_replicas": 2, "resource": {"cpu": 1.5, "memory_mb": 1500}, "max_retries": 3},
        {"num_replicas": 64, "resource": {"cpu": 0.5, "memory_mb": 1500}, "retry_policy": "REPLICA", "max_retries": 3},
    ],
    ids=["cpu-0.5", "retries-3", "64-replicas"],
)
def test_up_up_refresh_up_keeps_one_uid_and_changes_nothing(
    project: Project, look: KubernetesCluster, role: dict[str, Any]
) -> None:
    project.job(role)
    project.up()
    uid = project.output("uid")
    assert uid == job_of(look, project)["metadata"]["uid"]
    eventually(lambda: phase(look, project) == "Running")
    for step in (project.up, project.refresh, project.up):
        assert changes(step()).keys() == {"unchanged"}
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert project.output("uid") == uid
    assert project.output("observed")["state"] == "RUNNING"


def test_elastic_change_is_made_in_place(project: Project, look: KubernetesCluster) -> None:
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
    assert changes(project.up()).keys() == {"unchanged"}


def test_a_protected_object_that_is_gone_is_refused_alike_by_preview_and_up(
    project: Project, look: KubernetesCluster
) -> None:
    project.job({"pod_overlay": finite()}, protect=True)
    project.up()
    eventually(lambda: phase(look, project) == "Completed")
    project.up()
    name, record = project.output("job_name"), project.output("observed")
    look.delete(VOLCANO_JOB, project.namespace, name)
    eventually(lambda: look.get(VOLCANO_JOB, project.namespace, name) is None)
    for words in (("preview",), ("up", "--yes", "--skip-preview")):
        assert f"run {name} is over and its object is gone" in project.run(*words, fails=True)
    project.refresh()
    project.up()
    project.run("preview", "--expect-no-changes", "--suppress-outputs")
    assert look.list(VOLCANO_JOB, project.namespace) == []
    assert project.output("observed")["state"] == record["state"] == "SUCCEEDED"
    project.run("state", "unprotect", "--all", "--yes")


@pytest.mark.parametrize("gang", ["job", "pods"])
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
    project.job({"image": "app:2"}, gang=gang, on_running_change="ignore")
    assert changes(project.up()).keys() == {"unchanged"}
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


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_under_ignore_nothing_of_a_running_run_changes(
    make_project: Callable[..., Project], namespace: str, look: KubernetesCluster, gang: str
) -> None:
    project = make_project("kept", program=SECRET_PROGRAM)
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
        {"roles": [{**trainer, "name": "worker"}, reader]},
        {"roles": [trainer]},
        {"roles": [trainer, reader, {**base, "name": "eval"}]},
        {"roles": [{**trainer, "image": "app:2", "num_replicas": 4}, reader]},
        {"roles": [trainer, reader], "namespace": "default"},
        {"roles": [trainer, reader], "job_name": "another", "queue": "other"},
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
    assert "RELAUNCH" in project.preview()
    project.up()
    # Also under the name of a job that exists, Volcano's webhook judges the new one in the preview.
    project.job({"image": "app:3"}, job_name="mine", on_running_change="replace", plugins={"nosuch": []})
    assert "nosuch" in project.preview(fails=True)
    project.job({"image": "app:2"}, job_name="mine")
    assert project.output("job_name") == "mine"
    assert project.output("uid") != uid
    assert changes(project.up()).keys() == {"unchanged"}


def test_a_finished_job_that_is_gone_is_run_again_only_by_rerun(project: Project, look: KubernetesCluster) -> None:
    # The wait sees the end at once: a deployment after it might find the object gone already.
    project.job({"pod_overlay": finite()}, ttl_seconds_after_finished=20, wait_for="completed", timeout_s=200)
    project.up()
    uid, name = project.output("uid"), project.output("job_name")
    assert project.output("observed")["state"] == "SUCCEEDED"
    project.job({"pod_overlay": finite()}, ttl_seconds_after_finished=20)
    eventually(lambda: look.get(VOLCANO_JOB, project.namespace, name) is None, timeout_s=120)
    for step in (project.up, project.refresh, project.up, lambda: project.up("--refresh"), project.up):
        step()
        assert look.list(VOLCANO_JOB, project.namespace) == []
    observed = project.output("observed")
    assert (observed["state"], observed["source"]) == ("SUCCEEDED", "record")
    assert project.output("uid") == uid
    project.job({"pod_overlay": finite(), "min_replicas": 1}, ttl_seconds_after_finished=20)
    assert "has nothing to act on" in project.up()
    project.job({"pod_overlay": finite()}, ttl_seconds_after_finished=20, rerun="again")
    project.up()
    assert project.output("uid") not in (uid, None)


def test_a_launch_that_the_cluster_refused_leaves_the_way_back_open(project: Project, look: KubernetesCluster) -> None:
    project.job()
    project.up()
    first = project.output("job_name")
    # Volcano's webhook refuses a plugin that it does not know; only it can tell.
    project.job(plugins={"nosuch": []}, on_running_change="replace")
    assert "nosuch" in project.run("up", "--yes", "--skip-preview", fails=True)
    project.job()
    project.up()
    assert project.output("job_name") == first
    assert look.get(VOLCANO_JOB, project.namespace, first) is not None


def test_a_new_name_with_an_alias_is_the_same_run(project: Project) -> None:
    project.job()
    project.up()
    uid = project.output("uid")
    project.job(name="renamed", aliases=["train"])
    project.up()
    assert project.output("uid") == uid


def test_equal_jobs_of_two_stacks_run_beside_each_other(
    make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    one, other = make_project("one"), make_project("other")
    for project in (one, other):
        project.job()
        project.up()
    assert one.output("job_name") != other.output("job_name")
    found = {job["metadata"]["uid"] for job in look.list(VOLCANO_JOB, one.namespace)}
    assert found == {one.output("uid"), other.output("uid")}


def test_a_killed_launch_is_finished_by_the_next_up(project: Project, look: KubernetesCluster) -> None:
    project.job()
    process = project.start("up", "--yes", "--skip-preview")
    (job,) = eventually(lambda: look.list(VOLCANO_JOB, project.namespace))
    kill_between_writes(project, process)
    project.run("cancel", "--yes", "dev")
    project.up()
    assert project.output("uid") == job["metadata"]["uid"]
    project.run("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert changes(project.up()).keys() == {"unchanged"}


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
    for step in (project.up, project.refresh, project.up):
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


@pytest.mark.parametrize("gang", ["job", "pods"])
def test_a_gang_that_does_not_fit_holds_back_as_a_whole(project: Project, look: KubernetesCluster, gang: str) -> None:
    nodes = [{"num_replicas": 8, "resource": {"cpu": 60}}]
    project.job(nodes[0], gang=gang)
    project.up()
    time.sleep(3)
    pods = look.list(POD, project.namespace, {JOB_NAME: project.output("job_name")})
    assert not [pod for pod in pods if pod["spec"].get("nodeName")]
    project.up()
    assert project.output("observed")["state"] in ("PENDING", "SUBMITTED")


def test_destroy_leaves_nothing(project: Project, look: KubernetesCluster) -> None:
    project.job()
    project.up()
    name = project.output("job_name")
    eventually(lambda: len(look.list(POD, project.namespace, {JOB_NAME: name})) == 2)
    project.destroy()
    assert project.resources() == []
    assert look.get(VOLCANO_JOB, project.namespace, name) is None
    assert look.list(POD, project.namespace, {JOB_NAME: name}) == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"queue": "nosuch"}, "queue: 'nosuch' is not in the cluster"),
        ({"namespace": "nosuch"}, "namespace: 'nosuch' is not in the cluster"),
        ({"priority_class": "nosuch"}, "priority_class: 'nosuch' is not in the cluster"),
        ({"queue": "Bad Queue", "colour": "blue"}, "colour: is unknown"),
        ({"kube_context": "nosuch"}, "nosuch"),
    ],
)
def test_what_cannot_be_launched_is_said_in_preview_and_leaves_nothing(
    project: Project, args: dict[str, Any], text: str
) -> None:
    project.job(**args)
    assert text in project.preview(fails=True)
    assert text in project.run("up", "--yes", "--skip-preview", fails=True)
    own = ("pulumi:pulumi:Stack", "pulumi:providers:pulumi")
    assert [item["type"] for item in project.resources() if item["type"] not in own] == []


def test_a_closed_queue_is_found_in_preview(
    project: Project, look: KubernetesCluster, closed_queue: Callable[[str], None]
) -> None:
    shut = f"{project.namespace}-shut"
    closed_queue(shut)
    eventually(lambda: ((look.get(VOLCANO_QUEUE, None, shut) or {}).get("status") or {}).get("state") == "Closed")
    project.job(queue=shut)
    assert f"queue: '{shut}' is Closed" in project.preview(fails=True)


def test_a_cluster_that_does_not_answer_is_said_and_is_no_lost_job(project: Project, look: KubernetesCluster) -> None:
    project.job()
    project.up()
    uid = project.output("uid")
    away = {**project.env, "KUBECONFIG": str(project.folder / "away")}
    (project.folder / "away").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
    )
    here, project.env = project.env, away
    try:
        text = project.run("preview", fails=True)
    finally:
        project.env = here
    assert "the cluster of context 'c' cannot be reached" in text
    project.up()
    assert project.output("uid") == uid


WAITING = """\
import json
import pathlib

import pulumi
from torchx_pulumi_components import VolcanoTrainingJob, failures_deferred

given = json.loads(pathlib.Path("job.json").read_text())
with failures_deferred() as failures:
    job = VolcanoTrainingJob("train", given["args"])
pulumi.export("state", job.observed["state"])
if failures:
    raise pulumi.RunError("; ".join(failures))
"""


def test_up_waits_for_the_end_and_fails_with_its_outputs_written(make_project: Callable[..., Project]) -> None:
    project = make_project(program=WAITING)
    project.job({"pod_overlay": finite()}, wait_for="completed", timeout_s=200)
    project.up()
    assert project.output("state") == "SUCCEEDED"
    project.job({"pod_overlay": finite(exit_code=3)}, wait_for="completed", timeout_s=200)
    assert "exited with code 3" in project.run("up", "--yes", "--skip-preview", fails=True)
    assert project.output("state") == "FAILED"


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
    assert other.output("uid") == uid
    for step in (other.up, other.refresh, other.up):
        assert changes(step()).keys() == {"unchanged"}
