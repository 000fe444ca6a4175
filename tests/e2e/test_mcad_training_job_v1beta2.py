"""MCADTrainingJob with AppWrapper v1beta2: the real engine and the real operator, in a cluster of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, X_K8S_POD_GROUP

from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject, is_state
from tests.e2e.project import Project, changes, eventually
from tests.e2e.test_killed_deployments import KILLS, after_random_s, check_goes_on, kill, objects
from tools.local_cluster import Cluster

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster.up(f"awp-{os.getpid()}", kwok_nodes=1, features=("appwrapper",))
    if not found.settings.real_node:
        found.down()
        pytest.skip(f"no real node: {found.settings.why_no_real_node}")
    yield found
    found.down()


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    return Path(cluster.kubeconfig)


@pytest.fixture
def successor(cluster: Cluster, make_project: Callable[..., Project]) -> McadProject:
    return McadProject(make_project(program=MCAD_PROGRAM), cluster.images["busybox"], api_version="v1beta2")


def left(look: KubernetesCluster, namespace: str) -> list[str]:
    """Name what there is in a namespace."""
    kinds = (APP_WRAPPER_V1BETA2, POD, SERVICE, X_K8S_POD_GROUP)
    return [f"{kind.kind} {item['metadata']['name']}" for kind in kinds for item in look.list(kind, namespace)]


def test_a_job_succeeds_keeps_its_uid_and_leaves_nothing(successor: McadProject, look: KubernetesCluster) -> None:
    project = successor.project
    role = {"num_replicas": 2}
    successor.job("sleep 1", role=role, coscheduler_name="coscheduler", wait_for="completed", timeout_s=200)
    project.up()
    first = project.output("train")
    assert first["observed"]["state"] == "SUCCEEDED"
    successor.until(lambda seen: bool(seen["phase"] == "Succeeded"))
    for step in (project.up, project.refresh, project.up):
        text = step()
    assert changes(text).keys() == {"unchanged"}
    assert project.output("train")["uid"] == first["uid"]
    project.destroy()
    assert left(look, project.namespace) == []


def test_a_killed_program_goes_on_with_the_same_app_wrapper(successor: McadProject, look: KubernetesCluster) -> None:
    project, kinds = successor.project, (APP_WRAPPER_V1BETA2,)
    for number in range(KILLS or 1):
        successor.job(rerun=str(number))
        kill(project, after_random_s(number) if KILLS else lambda: objects(look, project.namespace, kinds))
        check_goes_on(project, look, kinds)
        project.destroy()


def test_a_failure_names_its_exit_code(successor: McadProject, look: KubernetesCluster) -> None:
    successor.job("exit 3", wait_for="completed", timeout_s=200)
    assert "exited with code 3" in successor.project.run("up", "--yes", "--skip-preview", fails=True)
    assert successor.project.output("train")["observed"]["reason"] == "ExitCode"
    successor.project.destroy()
    assert left(look, successor.project.namespace) == []


def test_a_job_is_held_back_resumed_and_suspended_in_place(successor: McadProject, look: KubernetesCluster) -> None:
    project, script = successor.project, "trap 'exit 0' TERM; sleep 600 & wait"
    successor.job(script, suspend=True)
    held = successor.until(lambda seen: bool(seen["reason"] == "Suspended"))
    assert (held["state"], look.list(POD, project.namespace)) == ("PENDING", [])
    uid = project.output("train")["uid"]
    successor.job(script)
    assert "in place: suspend" in project.up()
    successor.until(is_state("RUNNING"))
    successor.job(script, suspend=True)
    project.up()
    successor.until(lambda seen: bool(seen["reason"] == "Suspended"))
    # A shell that has not set its trap yet ends after the grace period of 30 s.
    eventually(lambda: look.list(POD, project.namespace) == [], timeout_s=180)
    assert project.output("train")["uid"] == uid
    project.destroy()
    assert left(look, project.namespace) == []


def test_mcad_is_not_there_and_that_is_said(successor: McadProject) -> None:
    successor.job(api_version="v1beta1")
    assert "MCAD is not installed; install it, set api_version to v1beta2" in successor.project.preview(fails=True)
