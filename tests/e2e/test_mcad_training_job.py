"""MCADTrainingJob on the real engine, a real MCAD and a real node: run, keep, fail, wait, leave nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER, X_K8S_POD_GROUP

from tests.e2e.app_wrappers import FAKE, FIND_RANK0, long_name, shell
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject, is_state
from tests.e2e.project import Project, changes, eventually
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.mcad]

INSTANCE = "app.kubernetes.io/instance"


@pytest.fixture
def mcad(cluster: Any, make_project: Callable[..., Project]) -> McadProject:
    found: Cluster = cluster
    if "mcad" not in found.settings.features:
        pytest.skip("this cluster has no MCAD")
    if not found.settings.real_node:
        pytest.skip(f"no real node: {found.settings.why_no_real_node}")
    return McadProject(make_project(program=MCAD_PROGRAM), found.images["busybox"])


def command(project: Project, *words: str) -> str:
    """Run `torchx-pulumi` to its end and return what it printed."""
    run = [sys.executable, "-m", "torchx_pulumi_stacks.console", *words]
    done = subprocess.run(run, env=project.env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return done.stdout + ("" if done.stdout else done.stderr)


def left(look: KubernetesCluster, namespace: str, name: str) -> list[str]:
    """Name the kinds of which there is something of a job."""
    found = [kind.kind for kind in (POD, SERVICE, X_K8S_POD_GROUP) if look.list(kind, namespace, {INSTANCE: name})]
    return found if look.get(APP_WRAPPER, namespace, name) is None else [*found, APP_WRAPPER.kind]


def test_two_roles_with_a_long_name_succeed_keep_one_uid_and_leave_nothing(
    mcad: McadProject, look: KubernetesCluster
) -> None:
    project, name = mcad.project, long_name()
    roles = [shell(FIND_RANK0, num_replicas=3), shell(FIND_RANK0, name="reader", num_replicas=3)]
    gang = {"job_name": name, "coscheduler_name": "coscheduler"}
    mcad.jobs({"train": {"roles": roles, **gang, "wait_for": "completed", "timeout_s": 240}})
    project.up()
    first = project.output("train")
    assert first["observed"]["state"] == "SUCCEEDED"
    assert len({*first["pod_names"]}) == 6
    assert len(first["pod_groups"]) == 2
    steps = [changes(step()).keys() for step in (project.refresh, project.up)]
    assert steps[-1] == {"unchanged"}
    last = project.output("train")
    assert (last["uid"], last["pod_names"]) == (first["uid"], first["pod_names"])
    assert [(role["name"], role["counts"]) for role in last["observed"]["roles"]] == [
        ("trainer", {"SUCCEEDED": 3}),
        ("reader", {"SUCCEEDED": 3}),
    ]
    said = "\n".join(look.logs(project.namespace, first["pod_names"][4]))
    assert f"replica 1 found {first['rank0_host']}" in said
    project.destroy()
    assert left(look, project.namespace, name) == []


def test_up_waits_for_the_end_and_names_the_exit_code(mcad: McadProject) -> None:
    mcad.job("exit 3", role={"num_replicas": 2}, wait_for="completed", timeout_s=240)
    assert "exited with code 3" in mcad.project.run("up", "--yes", "--skip-preview", fails=True)
    observed = mcad.project.output("train")["observed"]
    assert (observed["state"], observed["reason"]) == ("FAILED", "ExitCode")
    assert [replica["exit_code"] for replica in observed["roles"][0]["replicas"]] == [3, 3]
    mcad.job("exit 0", wait_for="completed", timeout_s=240)
    mcad.project.up()
    assert mcad.project.output("train")["observed"]["state"] == "SUCCEEDED"


def test_a_running_job_changes_in_place_or_is_refused_and_then_relaunched(
    mcad: McadProject, look: KubernetesCluster
) -> None:
    project = mcad.project
    mcad.job(wait_for="running", timeout_s=240)
    project.up()
    first = project.output("train")
    assert first["observed"]["state"] == "RUNNING"
    mcad.job(priority=5, labels={"team": "a"})
    assert "in place:" in project.up()
    found = look.get(APP_WRAPPER, project.namespace, first["job_name"]) or {}
    assert (found["metadata"]["uid"], found["spec"]["priority"]) == (first["uid"], 5)
    mcad.job("sleep 700")
    assert "roles[trainer].args would relaunch run" in project.preview(fails=True)
    mcad.job("sleep 700", on_running_change="replace", wait_for="running", timeout_s=240)
    project.up()
    second = project.output("train")
    assert second["uid"] != first["uid"]
    assert left(look, project.namespace, first["job_name"]) == []


def test_a_cancelled_job_is_cancelled_on_every_surface_and_is_not_launched_again(
    cluster: Any, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    if "mcad" not in cluster.settings.features:
        pytest.skip("this cluster has no MCAD")
    project = make_project(program=MCAD_PROGRAM)
    McadProject(project, "app:1").job(role=FAKE, wait_for="running", timeout_s=240)
    project.up()
    first = project.output("train")
    assert "asked to stop" in command(project, "cancel", f"{project.folder.name}/dev")
    eventually(lambda: look.get(APP_WRAPPER, project.namespace, first["job_name"]) is None)
    (app,) = json.loads(command(project, "fleet", "--json"))["apps"]
    assert (app["app_id"], app["state"]) == (f"{project.namespace}:{first['job_name']}", "CANCELLED")
    assert changes(project.preview()).keys() == {"unchanged"}
    # As a cancelled Volcano job, whose object stays: it does not reach what the program waits for.
    assert "it will not be running" in project.run("up", "--yes", "--skip-preview", fails=True)
    again = project.output("train")
    assert (again["uid"], again["observed"]["state"]) == (first["uid"], "CANCELLED")
    assert look.get(APP_WRAPPER, project.namespace, first["job_name"]) is None


@pytest.mark.extended
def test_a_job_waits_behind_another_and_an_impossible_one_says_so(mcad: McadProject, cluster: Any) -> None:
    nodes = cluster.settings.kwok_nodes
    if nodes == 0:
        pytest.skip("no fake nodes")
    wide = {"roles": [shell("sleep 600", num_replicas=nodes, resource={"cpu": 40}, **FAKE)]}
    mcad.jobs({"first": {**wide, "wait_for": "running", "timeout_s": 60}})
    mcad.project.up()
    mcad.jobs({"first": wide, "second": wide})
    # MCAD may hold it back too, while pods of other tests are on the nodes.
    behind = mcad.until(lambda seen: seen["reason"] == "Unschedulable", "second", timeout_s=240)
    assert behind["state"] == "PENDING"
    assert "Insufficient" in behind["message"]
    mcad.jobs({"second": wide})
    mcad.until(is_state("RUNNING"), "second", timeout_s=240)
    mcad.jobs({"huge": {"roles": [shell("true", resource={"cpu": 100_000})]}})
    mcad.until(lambda seen: seen["reason"] == "NeverSchedulable", "huge")


def test_what_cannot_be_launched_is_said_in_preview_and_leaves_nothing(mcad: McadProject) -> None:
    older = {"coscheduler_name": "coscheduler", "pod_group_api": "scheduling.sigs.k8s.io/v1alpha1"}
    for args, text in (
        (
            {"api_version": "v1beta2"},
            "the AppWrapper operator is not installed; install it, set api_version",
        ),
        (older, "set pod_group_api to scheduling.x-k8s.io/v1alpha1, which it serves"),
    ):
        mcad.job(**args)
        assert text in mcad.project.preview(fails=True)
    own = ("pulumi:pulumi:Stack", "pulumi:providers:pulumi")
    assert [item["type"] for item in mcad.project.resources() if item["type"] not in own] == []
