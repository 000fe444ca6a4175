"""AppWrappers v1beta2 and MCADTrainingJob with them: the real engine and the real operator, in a cluster of its own.

The operator's custom resource has the name of MCAD's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.limits import POD_STATUS_BYTES, app_wrapper_bytes
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, X_K8S_POD_GROUP
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.object_size import MAX_OBJECT_BYTES, SERVER_BYTES

from tests.e2e.app_wrappers import AppWrappers, shell
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.mcad_project import is_state as is_job_state
from tests.e2e.project import Project, changes, eventually
from tests.e2e.test_killed_deployments import KILLS, after_random_s, check_goes_on, kill, objects
from tools.local_cluster import ApiError, Cluster

pytestmark = pytest.mark.e2e

KEY = "workload.codeflare.dev.appwrapper/"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster.up(f"awp-{os.getpid()}", kwok_nodes=1, features=("appwrapper", "coscheduling"))
    if not found.settings.real_node:
        found.down()
        pytest.skip(f"no real node: {found.settings.why_no_real_node}")
    yield found
    found.down()


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    return Path(cluster.kubeconfig)


@pytest.fixture
def operated(cluster: Cluster) -> AppWrappers:
    return AppWrappers(cluster, "default", APP_WRAPPER_V1BETA2)


@pytest.fixture
def successor(cluster: Cluster, make_project: Callable[..., Project]) -> McadProject:
    return McadProject(make_project(program=MCAD_PROGRAM), cluster.images["busybox"], api_version="v1beta2")


def left(look: KubernetesCluster, namespace: str) -> list[str]:
    """Name what there is in a namespace."""
    kinds = (APP_WRAPPER_V1BETA2, POD, SERVICE, X_K8S_POD_GROUP)
    return [f"{kind.kind} {item['metadata']['name']}" for kind in kinds for item in look.list(kind, namespace)]


def test_a_job_succeeds_keeps_its_uid_and_leaves_nothing(successor: McadProject, look: KubernetesCluster) -> None:
    project = successor.project
    successor.job(api_version="v1beta1")
    assert "MCAD is not installed; install it, set api_version to v1beta2" in project.preview(fails=True)
    role = {"num_replicas": 2}
    successor.job("sleep 1", role=role, coscheduler_name="coscheduler", wait_for="completed", timeout_s=200)
    project.up()
    first = project.output("train")
    assert first["observed"]["state"] == "SUCCEEDED"
    successor.until(lambda seen: bool(seen["phase"] == "Succeeded"))
    for step in (project.refresh, project.up):
        text = step()
    assert changes(text).keys() == {"unchanged"}
    assert project.output("train")["uid"] == first["uid"]
    project.destroy()
    assert left(look, project.namespace) == []


def test_the_jobs_of_a_role_are_one_gang(operated: AppWrappers, look: KubernetesCluster) -> None:
    name = operated.submit(shell("sleep 1", num_replicas=3), layout="role", coscheduler_name="coscheduler")
    assert operated.end(name, timeout_s=200).state is JobState.SUCCEEDED
    (group,) = look.list(X_K8S_POD_GROUP, "default", {"app.kubernetes.io/instance": name})
    assert group["spec"]["minMember"] == 3
    assert [pod["spec"]["schedulerName"] for pod in operated.pods(name)] == ["coscheduler"] * 3
    operated.delete(name)


def test_a_job_is_held_back_resumed_and_suspended_in_place(successor: McadProject, look: KubernetesCluster) -> None:
    project = successor.project
    successor.job(suspend=True)
    held = successor.until(lambda seen: bool(seen["reason"] == "Suspended"))
    assert (held["state"], look.list(POD, project.namespace)) == ("PENDING", [])
    uid = project.output("train")["uid"]
    successor.job()
    assert "in place: suspend" in project.up()
    successor.until(is_job_state("RUNNING"))
    successor.job(suspend=True)
    project.up()
    successor.until(lambda seen: bool(seen["reason"] == "Suspended"))
    eventually(lambda: look.list(POD, project.namespace) == [])
    assert project.output("train")["uid"] == uid
    project.destroy()
    assert left(look, project.namespace) == []


@pytest.mark.extended
def test_a_killed_program_goes_on_with_the_same_app_wrapper(successor: McadProject, look: KubernetesCluster) -> None:
    project, kinds = successor.project, (APP_WRAPPER_V1BETA2,)
    for number in range(KILLS or 1):
        successor.job(rerun=str(number))
        kill(project, after_random_s(number) if KILLS else lambda: objects(look, project.namespace, kinds))
        check_goes_on(project, look, kinds)
        project.destroy()


def test_a_failure_names_its_exit_code_also_when_the_operator_has_ended_the_job(operated: AppWrappers) -> None:
    grace = {f"{KEY}failureGracePeriodDuration": "1s"}
    name = operated.submit(shell("exit 3", num_replicas=2), annotations=grace)
    assert operated.end(name).reason is Reason.EXIT_CODE
    operated.wait(name, lambda status: status.phase == "Failed")
    failed = operated.status(name)
    assert (failed.reason, "exited with code 3" in failed.message) == (Reason.EXIT_CODE, True)
    operated.delete(name)


def test_a_job_is_retried_as_often_as_it_may_be(operated: AppWrappers) -> None:
    pauses = {f"{KEY}{name}PeriodDuration": "1s" for name in ("failureGrace", "retryPause")}
    name = operated.submit(shell("exit 4", max_retries=1), annotations=pauses)
    over = operated.end(name, timeout_s=300)
    assert (over.state, over.reason, over.attempt) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED, 2)
    operated.delete(name)


def test_a_deleted_pod_ends_a_job_with_retries_and_is_named(operated: AppWrappers, look: KubernetesCluster) -> None:
    names = {
        loss: operated.submit(shell("sleep 600", num_replicas=2, max_retries=3)) for loss in ("deleted", "drained")
    }
    for name in names.values():
        operated.wait(name, lambda seen: {one.state for one in seen.replicas} == {JobState.RUNNING})
    look.delete(POD, "default", f"{names['deleted']}-trainer-1")
    path = f"/api/v1/namespaces/default/pods/{names['drained']}-trainer-1/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"{names['drained']}-trainer-1"}}
    operated.cluster.api.request("POST", path, eviction)
    for loss, name in names.items():
        over = operated.end(name, timeout_s=200)
        assert (over.state, over.attempt) == (JobState.FAILED, 1)
        # What tells an eviction goes with the pod.
        assert over.reason in ((Reason.POD_GONE,) if loss == "deleted" else (Reason.POD_GONE, Reason.EVICTED))
        assert f"{name}-trainer-1" in over.message
        assert "does not cover a deleted pod" in over.diagnoses[0].resolution
        assert next(one.state for one in over.replicas) is JobState.RUNNING
        operated.delete(name)


def test_the_largest_app_wrapper_that_is_planned_is_one_that_etcd_takes(operated: AppWrappers) -> None:
    """Refused by planning: some bytes more. Refused by etcd: what planning refuses, and the server adds."""
    empty = app_wrapper_bytes(_large(0))
    most = (MAX_OBJECT_BYTES - empty) // 5
    with pytest.raises(InvalidJobError, match=r"etcd takes 1\.56 MB"):
        _large(most + 1)
    path = f"/apis/{APP_WRAPPER_V1BETA2.api_version}/namespaces/default/appwrappers"
    # Five pods have no status yet.
    beyond = most + (2 * SERVER_BYTES + 5 * POD_STATUS_BYTES) // 5
    with pytest.raises(ApiError, match="request is too large"):
        operated.cluster.api.request("POST", path, render_mcad_v1beta2(_large(beyond, launched={"trainer": 5})))
    operated.cluster.api.request("POST", path, render_mcad_v1beta2(_large(most)))
    # The operator writes a status of an entry for each pod.
    operated.wait("large", lambda status: status.reason is Reason.SUSPENDED)
    operated.delete("large")


def _large(length: int, launched: dict[str, int] | None = None) -> JobPlan[Any]:
    role = RoleSpec(name="trainer", image="img:1", entrypoint="sh", args=["x" * length], num_replicas=5)
    spec = JobSpec(name="large", roles=[role], torchx_version="0.7.0")
    return plan_job(spec, MCADOptions(api_version=AppWrapperVersion.V1BETA2, suspend=True), "large", launched=launched)
