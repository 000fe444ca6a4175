"""AppWrappers on a real MCAD, a real coscheduler and a real node."""

from __future__ import annotations

from typing import Any

import pytest
from torchx_pulumi.model.status import JobState, JobStatus, Reason

from tests.e2e.app_wrappers import FAKE, AppWrappers, is_state, shell
from tests.e2e.project import eventually
from tools.local_cluster import Cluster
from tools.local_cluster.fake_nodes import TAINT, node

pytestmark = [pytest.mark.e2e, pytest.mark.mcad]


@pytest.fixture
def mcad(cluster: Any, namespace: str) -> AppWrappers:
    found: Cluster = cluster
    if "mcad" not in found.settings.features:
        pytest.skip("this cluster has no MCAD")
    if not found.settings.real_node:
        pytest.skip(f"no real node: {found.settings.why_no_real_node}")
    return AppWrappers(found, namespace)


def test_a_job_that_cannot_fit_says_so_and_the_one_behind_it_waits_its_turn(mcad: AppWrappers) -> None:
    huge = mcad.submit(shell("true", resource={"cpu": 100_000}))
    waiting = mcad.wait(huge, lambda status: status.reason is Reason.UNSCHEDULABLE)
    assert (waiting.state, "Insufficient resources" in waiting.message) == (JobState.PENDING, True)
    small = mcad.submit(shell("true"))
    # How much of its way is seen depends on who is quicker: MCAD or this test.
    seen: list[JobState] = []

    def ended(status: JobStatus) -> bool:
        seen.append(status.state)
        return status.state.terminal

    assert mcad.wait(small, ended).state is JobState.SUCCEEDED
    assert {*seen} <= {JobState.SUBMITTED, JobState.PENDING, JobState.RUNNING, JobState.SUCCEEDED}
    mcad.delete(huge)
    mcad.delete(small)


def test_a_gang_that_does_not_fit_stays_out_whole_until_there_is_room(mcad: AppWrappers) -> None:
    nodes = mcad.cluster.settings.kwok_nodes
    if nodes == 0:
        pytest.skip("no fake nodes")
    role = shell("true", num_replicas=nodes + 1, resource={"cpu": 40}, **FAKE)
    name = mcad.submit(role, coscheduler_name="coscheduler", reserved_millicpu=0)
    held = mcad.wait(name, lambda status: status.reason is Reason.UNSCHEDULABLE)
    assert held.state is JobState.PENDING
    # MCAD creates the pods one after the other, and the first ones are rejected before the last one is there.
    eventually(lambda: len(mcad.pods(name)) == nodes + 1)
    assert [pod["spec"].get("nodeName") for pod in mcad.pods(name)] == [None] * (nodes + 1)
    extra = node("fake-extra", tainted=True)
    # Pods of other tests tolerate the taint of the other fake nodes only: this node goes away with what is on it.
    extra["spec"]["taints"] = [{**TAINT, "value": "extra"}]
    mcad.cluster.api.create("/api/v1/nodes", extra)
    try:
        mcad.wait(name, is_state(JobState.RUNNING))
        mcad.wait(name, lambda status: all(replica.node for replica in status.roles[0].replicas), timeout_s=120)
    finally:
        try:
            mcad.delete(name)
        finally:
            mcad.cluster.api.request("DELETE", "/api/v1/nodes/fake-extra")


def test_an_exit_code_is_named_also_after_completion(mcad: AppWrappers) -> None:
    name = mcad.submit(shell("exit 3", num_replicas=2))
    failed = mcad.end(name)
    assert (failed.state, failed.reason) == (JobState.FAILED, Reason.EXIT_CODE)
    mcad.wait(name, lambda status: status.phase == "Completed")
    assert mcad.status(name).reason is Reason.EXIT_CODE
    mcad.delete(name)


@pytest.mark.extended
def test_retries_are_counted_and_end_though_mcad_goes_on(mcad: AppWrappers) -> None:
    # MCAD also requeues a job whose pods have not started in this time: the first pod must have ended in it.
    name = mcad.submit(shell("exit 4", max_retries=1), requeuing_time_s=30, requeuing_growth="none")
    again = mcad.wait(name, lambda status: status.reason is Reason.RESTARTING)
    assert (again.state, "retry 1 of 1" in again.message) == (JobState.RUNNING, True)
    over = mcad.end(name, timeout_s=300)
    assert (over.state, over.reason) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED)
    mcad.delete(name)


def test_pods_that_the_cluster_refuses_fail_the_job_with_its_words(mcad: AppWrappers) -> None:
    name = mcad.submit(shell("true"), service_account="none-such")
    assert 'serviceaccount "none-such" not found' in mcad.end(name).message
    mcad.delete(name)
