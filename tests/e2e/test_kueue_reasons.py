"""Each wait under the real Kueue has its reason, with numbers; evictions are named and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.objects import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD

from tests.e2e.app_wrappers import AppWrappers
from tests.e2e.kueue_queues import CHECK, PRIORITY, KueueQueues
from tests.e2e.project import eventually
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]

QUOTA = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"}


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


def gpus(count: int, **role: Any) -> dict[str, Any]:
    """Return a role of one replica for each GPU, which runs until it is deleted."""
    resource = {"cpu": 0.2, "gpu": 1, "memMB": 16}
    return {"num_replicas": count, "resource": resource, "args": ["-c", "sleep 3600"], **role}


def reads(queues: KueueQueues, name: str, claim: Callable[[JobStatus], bool]) -> JobStatus:
    """Wait until the status of a job is as claimed; return it."""
    last: list[JobStatus] = []

    def is_so() -> bool:
        last[:] = [queues.status(name)]
        return claim(last[0])

    try:
        eventually(is_so)
    except AssertionError as error:
        raise AssertionError(f"{last[0].state} {last[0].reason}: {last[0].message}") from error
    return last[0]


def waits(queues: KueueQueues, name: str, reason: Reason, words: str) -> JobStatus:
    """Wait until a job waits for a reason, in these words."""
    wanted = (JobState.PENDING, reason)
    found = reads(queues, name, lambda seen: (seen.state, seen.reason) == wanted and words in seen.message)
    assert found.diagnoses[0].resolution
    return found


def runs(queues: KueueQueues, name: str, words: str = "running") -> JobStatus:
    """Wait until a job runs, as these words say."""
    wanted = (JobState.RUNNING, Reason.RUNNING)
    return reads(queues, name, lambda seen: (seen.state, seen.reason) == wanted and words in seen.message)


def test_a_quota_that_is_taken_is_told_from_one_that_will_never_do(queues: KueueQueues, jobs: AppWrappers) -> None:
    team = queues.make("team", QUOTA, cohortName=f"all-{queues.namespace}")
    queues.make("other", {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2"}, cohortName=f"all-{queues.namespace}")
    first = jobs.submit(gpus(5), local_queue=team)
    # It borrows a GPU.
    runs(queues, first)
    second, never = jobs.submit(gpus(2), local_queue=team), jobs.submit(gpus(7), local_queue=team)
    cohort = f"ClusterQueue '{team}' (cohort 'all-{queues.namespace}')"
    waits(queues, second, Reason.OVER_QUOTA, f"asks for 2 nvidia.com/gpu; 1 of 6 nvidia.com/gpu are free in {cohort}")
    waits(
        queues,
        never,
        Reason.NEVER_SCHEDULABLE,
        f"asks for 7 nvidia.com/gpu; {cohort} can have at most 6 nvidia.com/gpu",
    )
    plain = queues.make("plain", {"cpu": "8", "memory": "8Gi"})
    uncovered = jobs.submit(gpus(1), local_queue=plain)
    waits(queues, uncovered, Reason.NEVER_SCHEDULABLE, "asks for nvidia.com/gpu, for which ClusterQueue")


def test_a_queue_that_is_missing_closed_or_of_others_is_named(queues: KueueQueues, jobs: AppWrappers) -> None:
    lost = jobs.submit(gpus(1), local_queue="nowhere")
    waits(queues, lost, Reason.QUEUE_MISSING, f"there is no LocalQueue 'nowhere' in namespace '{queues.namespace}'")
    queues.create(LOCAL_QUEUE, "leads-nowhere", {"clusterQueue": "no-such"})
    led = jobs.submit(gpus(1), local_queue="leads-nowhere")
    waits(queues, led, Reason.QUEUE_MISSING, "leads to ClusterQueue 'no-such', which does not exist")
    for name, kind, change, words in (
        ("stopped", LOCAL_QUEUE, {"stopPolicy": "Hold"}, "is stopped"),
        ("held", CLUSTER_QUEUE, {"stopPolicy": "Hold"}, "admits no jobs"),
        ("flavorless", CLUSTER_QUEUE, {"resourceGroups": [_group("no-such-flavor")]}, "no-such-flavor"),
        ("unchecked", CLUSTER_QUEUE, {"admissionChecksStrategy": {"admissionChecks": [{"name": "no-such-check"}]}},
         "no-such-check"),
        ("private", CLUSTER_QUEUE, {"namespaceSelector": {"matchLabels": {"team": "other"}}}, "takes no jobs of"),
    ):  # fmt: skip
        queue = queues.make(name, QUOTA)
        queues.patch(kind, queue, {"spec": change})
        if name != "private":
            queues.wait_until_active(queue, "False", kind)
        waits(queues, jobs.submit(gpus(1), local_queue=queue), Reason.QUEUE_CLOSED, words)


def _group(flavor: str) -> dict[str, Any]:
    resources = [{"name": name, "nominalQuota": most} for name, most in QUOTA.items()]
    return {"coveredResources": [*QUOTA], "flavors": [{"name": flavor, "resources": resources}]}


def test_an_admission_check_that_is_pending_is_named(queues: KueueQueues, jobs: AppWrappers) -> None:
    check = f"budget-{queues.namespace}"
    queues.create(CHECK, check, {"controllerName": "example.com/nobody"})
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    queues.patch(CHECK, check, {"status": {"conditions": [active]}}, "/status")
    queue = queues.make("checked", QUOTA, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    waiting = jobs.submit(gpus(1), local_queue=queue)
    found = waits(
        queues, waiting, Reason.WAITING_IN_QUEUE, f"its quota is reserved; it waits for admission check '{check}'"
    )
    assert found.phase == "Suspended"


def test_a_preempted_job_names_the_other_and_runs_again(queues: KueueQueues, jobs: AppWrappers) -> None:
    for name, value in (("low", 1), ("high", 100)):
        queues.create(PRIORITY, name, {}, value=value)
    queue = queues.make("team", QUOTA, preemption={"withinClusterQueue": "LowerPriority"})
    label = "kueue.x-k8s.io/priority-class"
    low = jobs.submit(gpus(3), local_queue=queue, labels={label: "low"})
    runs(queues, low)
    high = jobs.submit(gpus(3), local_queue=queue, labels={label: "high"})
    runs(queues, high)
    waits(queues, low, Reason.PREEMPTED, f"to make room for AppWrapper {queues.namespace}/{high}")
    # Kueue says the second once it has tried to admit it again.
    reads(queues, low, lambda seen: [one.reason for one in seen.diagnoses] == [Reason.PREEMPTED, Reason.OVER_QUOTA])
    jobs.delete(high)
    runs(queues, low, "running; evicted by Kueue once (Preempted 1), admitted again at 20")


def test_a_drained_queue_and_a_deactivated_workload_hold_a_job_until_they_are_opened(
    queues: KueueQueues, jobs: AppWrappers
) -> None:
    queue = queues.make("team", QUOTA)
    name = jobs.submit(gpus(2), local_queue=queue)
    runs(queues, name)
    queues.patch(LOCAL_QUEUE, queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    waits(queues, name, Reason.QUEUE_CLOSED, "its LocalQueue was stopped")
    queues.patch(LOCAL_QUEUE, queue, {"spec": {"stopPolicy": "None"}})
    runs(queues, name, "evicted by Kueue once (LocalQueueStopped 1)")
    workload = queues.workload(name)["metadata"]["name"]
    queues.patch(WORKLOAD, workload, {"spec": {"active": False}})
    held = waits(queues, name, Reason.SUSPENDED, "its Workload is deactivated in Kueue")
    assert f"kubectl patch workload -n {queues.namespace} {workload}" in held.diagnoses[0].resolution
    # By hand: Kueue takes it back.
    jobs.patch(name, {"suspend": False})
    waits(queues, name, Reason.SUSPENDED, "its Workload is deactivated in Kueue")
    queues.patch(WORKLOAD, workload, {"spec": {"active": True}})
    runs(queues, name, "evicted by Kueue 2 times")
