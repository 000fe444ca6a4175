"""AppWrappers v1beta2 on the real operator, in a cluster of its own: its custom resource has the name of MCAD's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.appwrapper.limits import POD_STATUS_BYTES, app_wrapper_bytes
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.object_size import MAX_OBJECT_BYTES, SERVER_BYTES

from tests.e2e.app_wrappers import AppWrappers, is_state, shell
from tools.local_cluster import ApiError, Cluster

pytestmark = pytest.mark.e2e

KEY = "workload.codeflare.dev.appwrapper/"


@pytest.fixture(scope="module")
def operated() -> Iterator[AppWrappers]:
    cluster = Cluster.up(f"aw-{os.getpid()}", kwok_nodes=1, features=("appwrapper",))
    if not cluster.settings.real_node:
        cluster.down()
        pytest.skip(f"no real node: {cluster.settings.why_no_real_node}")
    yield AppWrappers(cluster, "default", APP_WRAPPER_V1BETA2)
    cluster.down()


def test_a_job_runs_succeeds_and_leaves_nothing(operated: AppWrappers) -> None:
    name = operated.submit(shell("sleep 1", num_replicas=2), coscheduler_name="coscheduler")
    done = operated.end(name)
    assert (done.state, done.reason) == (JobState.SUCCEEDED, Reason.COMPLETED)
    operated.wait(name, lambda status: status.phase == "Succeeded", timeout_s=240)
    operated.delete(name)


def test_a_failure_names_its_exit_code_also_when_the_operator_has_ended_the_job(operated: AppWrappers) -> None:
    name = operated.submit(shell("exit 3", num_replicas=2))
    assert operated.end(name).reason is Reason.EXIT_CODE
    # The operator gives a failed pod a minute of grace.
    operated.wait(name, lambda status: status.phase == "Failed", timeout_s=240)
    failed = operated.status(name)
    assert (failed.reason, "exited with code 3" in failed.message) == (Reason.EXIT_CODE, True)
    operated.delete(name)


def test_a_job_is_retried_as_often_as_it_may_be(operated: AppWrappers) -> None:
    pause = {f"{KEY}retryPausePeriodDuration": "1s"}
    name = operated.submit(shell("exit 4", max_retries=1), annotations=pause)
    over = operated.end(name, timeout_s=300)
    assert (over.state, over.reason, over.attempt) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED, 2)
    operated.delete(name)


def test_a_job_is_held_back_started_and_stopped_in_place(operated: AppWrappers) -> None:
    name = operated.submit(shell("trap 'exit 0' TERM; sleep 600 & wait"), suspend=True)
    held = operated.wait(name, lambda status: status.reason is Reason.SUSPENDED)
    assert (held.state, operated.pods(name)) == (JobState.PENDING, [])
    operated.patch(name, {"suspend": False})
    operated.wait(name, is_state(JobState.RUNNING), timeout_s=120)
    operated.patch(name, {"suspend": True})
    # A shell that has not set its trap yet ends after the grace period of 30 s.
    operated.wait(name, lambda status: status.reason is Reason.SUSPENDED, timeout_s=180)
    assert operated.pods(name) == []
    operated.delete(name)


def test_a_queue_of_kueue_is_asked_for_by_label(operated: AppWrappers) -> None:
    name = operated.submit(shell("true"), local_queue="team-a")
    found = operated.cluster.api.get(f"/apis/{APP_WRAPPER_V1BETA2.api_version}/namespaces/default/appwrappers/{name}")
    assert found is not None
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert operated.end(name).state is JobState.SUCCEEDED  # no Kueue here, which would hold it back
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
