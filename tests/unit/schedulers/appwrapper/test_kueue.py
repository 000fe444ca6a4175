"""Why Kueue holds a job back, or has evicted it: each reason by objects as the real Kueue answered them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from torchx_pulumi.model.labels import UNIQUE_NAME
from torchx_pulumi.model.status import Diagnosis, JobState, JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.kueue_observe import LIST_CLUSTER_QUEUES, LIST_WORKLOADS, PERMISSIONS
from torchx_pulumi.schedulers.appwrapper.objects import CLUSTER_QUEUE, LOCAL_QUEUE

from tests.fakes.cluster import FakeCluster
from tests.unit.schedulers.app_wrappers import condition, operators, pod
from tests.unit.schedulers.diagnosis.objects import LATER, OPERATOR
from tests.unit.schedulers.kueue_objects import (
    cluster_queue,
    cohort,
    held,
    local_queue,
    not_reserved,
    workload,
)

Manifest = dict[str, Any]

SHORT = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, "
    "2 more needed"
)
MORE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a100, previously "
    "considered podsets requests (0) + current podset request (4) > maximum capacity (2)"
)
BEGIN = "couldn't assign flavors to pod set main:"
ELSEWHERE = (
    f"{BEGIN} flavor b doesn't match node affinity, insufficient quota for nvidia.com/gpu in flavor a100, previously "
    "considered podsets requests (2) + current podset request (2) > maximum capacity (3)"
)
LIMITS = "resources didn't satisfy LimitRange constraints: spec.podSets[0]: requests must not be above 1 cpu"
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
LACKS = "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in ClusterQueue"
MISSING = "LocalQueue team doesn't exist"
SELECTOR = "workload namespace doesn't match ClusterQueue selector"
PREEMPTED = (
    "Preempted to accommodate a workload (UID: w-2, JobUID: u-2) due to prioritization in the ClusterQueue; preemptor "
    "path: /research; preemptee path: /research"
)


def running(task: str) -> Manifest:
    made = pod(task)
    metadata = {**made["metadata"], "namespace": "default"}
    return {**made, "apiVersion": "v1", "metadata": {**metadata, "labels": {**metadata["labels"], UNIQUE_NAME: "app"}}}


PODS = [running(name) for name in ("trainer-0", "trainer-1")]


def status_of(*objects: Manifest, denied: Any = ()) -> JobStatus:
    cluster = FakeCluster(objects, denied=denied)
    return OPERATOR.read_status(OPERATOR.observe(cluster, "default", "app"), LATER)


def first(*objects: Manifest, **more: Any) -> Diagnosis:
    found = status_of(*objects, **more)
    assert found.reason is found.diagnoses[0].reason
    assert found.message.startswith(found.diagnoses[0].summary)
    return found.diagnoses[0]


def evicted(reason: str, message: str = "", count: int = 1, **more: Any) -> Manifest:
    stats = {"evictions": [{"reason": reason, "underlyingCause": "", "count": count}]}
    found = [condition("Evicted", "True", reason, message), *more.pop("conditions", ())]
    return workload(*found, not_reserved("waits"), schedulingStats=stats, **more)


WAITS: Mapping[str, tuple[Sequence[Manifest], Reason, str]] = {
    "over quota": (
        (workload(not_reserved(SHORT)), local_queue(), cluster_queue(used="14")),
        Reason.OVER_QUOTA,
        "asks for 4 nvidia.com/gpu; 2 of 16 nvidia.com/gpu are free in ClusterQueue 'research'",
    ),
    "over the quota of the cohort": (
        (
            workload(not_reserved(SHORT), gpus=8),
            local_queue(),
            cluster_queue(used="4", gpus="8", cohort="all"),
            cluster_queue("other", gpus="8", used="8", cohort="all"),
        ),
        Reason.OVER_QUOTA,
        "asks for 8 nvidia.com/gpu; 4 of 16 nvidia.com/gpu are free in ClusterQueue 'research' (cohort 'all')",
    ),
    "more than ever": (
        (workload(not_reserved(MORE)), local_queue(), cluster_queue(gpus="2")),
        Reason.NEVER_SCHEDULABLE,
        "asks for 4 nvidia.com/gpu; ClusterQueue 'research' can have at most 2 nvidia.com/gpu in flavor 'a100'",
    ),
    "one pod set never, one not yet": (
        (workload(not_reserved(f"{SHORT}; {MORE}")), local_queue(), cluster_queue(gpus="2")),
        Reason.NEVER_SCHEDULABLE,
        "asks for 4 nvidia.com/gpu; ClusterQueue 'research' can have at most 2 nvidia.com/gpu in flavor 'a100'",
    ),
    "no flavor covers it": (
        (workload(not_reserved(LACKS)), local_queue(), cluster_queue()),
        Reason.NEVER_SCHEDULABLE,
        "asks for nvidia.com/gpu, for which ClusterQueue 'research' has no quota",
    ),
    "never in its only flavor, of another resource not yet": (
        (workload(not_reserved(f"{MORE}, insufficient unused quota for cpu in flavor a100, 1 more needed")),
         local_queue(), cluster_queue(gpus="2")),
        Reason.NEVER_SCHEDULABLE,
        "asks for 4 nvidia.com/gpu",
    ),
    "what another pod set has taken it may take elsewhere": (
        (workload(not_reserved(ELSEWHERE)), local_queue(), cluster_queue(used="14")),
        Reason.OVER_QUOTA,
        "asks for 4 nvidia.com/gpu; 2 of 16 nvidia.com/gpu are free",
    ),
    "a topology": (
        (workload(not_reserved(f'{BEGIN} Flavor "a100" supports only TopologyAwareScheduling')), local_queue(),
         cluster_queue()),
        Reason.NEVER_SCHEDULABLE,
        f'{BEGIN} Flavor "a100" supports only TopologyAwareScheduling',
    ),
    "a LimitRange": (
        (workload(not_reserved(LIMITS)), local_queue(), cluster_queue()), Reason.NEVER_SCHEDULABLE, LIMITS,
    ),
    "inactive, which its LocalQueue does not say": (
        (workload(not_reserved("ClusterQueue research is inactive")), local_queue(), cluster_queue()),
        Reason.QUEUE_CLOSED,
        "ClusterQueue research is inactive",
    ),
    "lost, which its LocalQueue does not say": (
        (workload(not_reserved("ClusterQueue research not found")), local_queue()),
        Reason.QUEUE_MISSING,
        "LocalQueue 'team' leads to ClusterQueue 'research', which does not exist",
    ),
    "preempted, and then its queue was stopped": (
        (
            evicted("Preempted", conditions=[condition("Preempted", "True", "InClusterQueue", PREEMPTED)]),
            local_queue(condition("Active", "False", "Stopped", "LocalQueue is stopped")),
            cluster_queue(),
        ),
        Reason.QUEUE_CLOSED,
        "LocalQueue 'team' is stopped",
    ),
    "one flavor never, one not yet": (
        (workload(not_reserved(f"{MORE}, insufficient unused quota for nvidia.com/gpu in flavor b, 2 more needed")),
         local_queue(), cluster_queue(used="14")),
        Reason.OVER_QUOTA,
        "asks for 4 nvidia.com/gpu",
    ),
    "no queue": (
        (workload(not_reserved(MISSING, "Inadmissible")),),
        Reason.QUEUE_MISSING,
        "there is no LocalQueue 'team' in namespace 'default'",
    ),
    "no cluster queue": (
        (
            workload(not_reserved("ClusterQueue research doesn't exist", "Inadmissible")),
            local_queue(condition("Active", "False", "ClusterQueueDoesNotExist", "Can't submit new workloads")),
        ),
        Reason.QUEUE_MISSING,
        "LocalQueue 'team' leads to ClusterQueue 'research', which does not exist",
    ),
    "stopped queue": (
        (
            workload(not_reserved("LocalQueue team is inactive", "Inadmissible")),
            local_queue(condition("Active", "False", "Stopped", "LocalQueue is stopped")),
            cluster_queue(),
        ),
        Reason.QUEUE_CLOSED,
        "LocalQueue 'team' is stopped",
    ),
    "missing flavor": (
        (
            workload(not_reserved("ClusterQueue research is inactive", "Inadmissible")),
            local_queue(condition("Active", "False", "ClusterQueueIsInactive", "Can't submit new workloads")),
            cluster_queue("research", "16", "0", condition("Active", "False", "FlavorNotFound", "missing flavor f")),
        ),
        Reason.QUEUE_CLOSED,
        "ClusterQueue 'research' admits no jobs",
    ),
    "other namespaces": (
        (workload(not_reserved(SELECTOR)), local_queue(), cluster_queue()),
        Reason.QUEUE_CLOSED,
        "ClusterQueue 'research' takes no jobs of namespace 'default'",
    ),
    "admission check": (
        (
            workload(
                condition("QuotaReserved", "True", "QuotaReserved"),
                admissionChecks=[{"name": "provision", "state": "Pending", "message": "asks the cloud"}],
            ),
            local_queue(),
            cluster_queue(),
        ),
        Reason.WAITING_IN_QUEUE,
        "its quota is reserved; it waits for admission check 'provision' is Pending",
    ),
    "its turn": (
        (workload(), local_queue(), cluster_queue()),
        Reason.WAITING_IN_QUEUE,
        "waits for its turn in ClusterQueue 'research', which has 3 waiting jobs",
    ),
    # Kueue does not try a job like one that did not fit.
    "like a job over quota": (
        (workload(), local_queue(), cluster_queue(used="14")),
        Reason.OVER_QUOTA,
        "asks for 4 nvidia.com/gpu; 2 of 16 nvidia.com/gpu are free in ClusterQueue 'research'",
    ),
    "like a job over quota, which is said": (
        (workload(not_reserved(BYPASSED)), local_queue(), cluster_queue(used="14")),
        Reason.OVER_QUOTA,
        "asks for 4 nvidia.com/gpu; 2 of 16 nvidia.com/gpu are free in ClusterQueue 'research'",
    ),
    "like a job that asks for more than ever": (
        (workload(not_reserved(BYPASSED)), local_queue(), cluster_queue(gpus="2")),
        Reason.NEVER_SCHEDULABLE,
        "asks for 4 nvidia.com/gpu; ClusterQueue 'research' can have at most 2 nvidia.com/gpu in flavor 'a100'",
    ),
    "like a job that did not fit, of a ClusterQueue that is not there": (
        (workload(not_reserved(BYPASSED)), local_queue()),
        Reason.WAITING_IN_QUEUE,
        "waits for its turn in ClusterQueue 'research'",
    ),
    "nobody makes a Workload": (
        (local_queue(), cluster_queue()),
        Reason.CONTROLLER_ABSENT,
        "Kueue has not looked at it",
    ),
    "preempted": (
        (
            evicted(
                "Preempted", "Preempted", 2, conditions=[condition("Preempted", "True", "InClusterQueue", PREEMPTED)]
            ),
            workload(owner="urgent", uid="u-2"),
            local_queue(),
            cluster_queue(),
        ),
        Reason.PREEMPTED,
        "Kueue stopped it at 2026-03-01T10:00:30Z to make room for AppWrapper default/urgent (2 times in all); it",
    ),
    "pods not ready in time": (
        (
            evicted(
                "PodsReadyTimeout", "Exceeded the PodsReady timeout",
                requeueState={"count": 1, "requeueAt": "2026-03-01T10:05:00Z"},
                conditions=[condition("Requeued", "False", "PodsReadyTimeout")],
            ),
            local_queue(),
            cluster_queue(),
        ),
        Reason.EVICTED,
        "Kueue evicted it at 2026-03-01T10:00:30Z: its pods were not ready in time; requeued once, next at "
        "2026-03-01T10:05:00Z",
    ),
    "drained queue": (
        (evicted("LocalQueueStopped", "The LocalQueue is stopped"), local_queue(), cluster_queue()),
        Reason.QUEUE_CLOSED,
        "Kueue evicted it at 2026-03-01T10:00:30Z: its LocalQueue was stopped",
    ),
    "deactivated": (
        (
            workload(condition("Evicted", "True", "Deactivated", "The workload is deactivated"), active=False),
            local_queue(),
            cluster_queue(),
        ),
        Reason.SUSPENDED,
        "its Workload is deactivated in Kueue: it does not run until somebody activates it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_each_wait_has_its_reason(case: str) -> None:
    objects, reason, summary = WAITS[case]
    wrapper = held()
    found = first(wrapper, *objects)
    assert (found.reason, found.summary[: len(summary)]) == (reason, summary)
    assert found.resolution
    assert status_of(wrapper, *objects).state is JobState.PENDING


def test_what_may_not_be_read_is_said_and_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    objects = [held(), workload(not_reserved(SHORT)), local_queue(), cluster_queue(used="14")]
    blind = [("list", one.kind) for one in PERMISSIONS] + [("get", LOCAL_QUEUE), ("get", CLUSTER_QUEUE)]
    status = status_of(*objects, denied=blind)
    assert (status.state, status.reason) == (JobState.PENDING, Reason.WAITING_IN_QUEUE)
    assert "which was not read (permission: list workloads.kueue.x-k8s.io)" in status.message
    assert f"no permission to {LIST_WORKLOADS} in namespace default: {LIST_WORKLOADS.without}" in caplog.text
    some = first(*objects, denied=[("list", LIST_CLUSTER_QUEUES.kind), ("get", CLUSTER_QUEUE)])
    assert some.summary == "asks for 4 nvidia.com/gpu; not so much is free in ClusterQueue 'research'"
    # Its own ClusterQueue may be read by name: without a cohort that is enough.
    own = first(*objects, denied=[("list", LIST_CLUSTER_QUEUES.kind)])
    assert "2 of 16 nvidia.com/gpu are free" in own.summary


def test_a_job_that_runs_again_says_how_often_it_was_evicted() -> None:
    stats = {"evictions": [{"reason": "Preempted", "count": 2}, {"reason": "PodsReadyTimeout", "count": 1}]}
    again = workload(condition("Admitted", "True", "Admitted"), schedulingStats=stats)
    status = status_of(operators(queue="team"), again, *PODS)
    assert status.state is JobState.RUNNING
    assert status.message == (
        "running; evicted by Kueue 3 times (Preempted 2, PodsReadyTimeout 1), admitted again at 2026-03-01T10:00:30Z"
    )


def test_a_job_whose_pods_are_being_stopped_says_what_kueue_stops_it_for() -> None:
    stopped = [evicted("Preempted", conditions=[condition("Preempted", "True", "InClusterQueue", PREEMPTED)]),
               workload(owner="urgent", uid="u-2")]  # fmt: skip
    status = status_of(held("Suspending"), *stopped, *PODS)
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.STOPPING)
    room = "Kueue stopped it at 2026-03-01T10:00:30Z to make room for AppWrapper default/urgent"
    assert status.message == f"being stopped: {room}"
    assert Reason.PREEMPTED in [one.reason for one in status.diagnoses]
    # Its phase is behind its Workload.
    assert status_of(operators(queue="team"), *stopped, *PODS).message == "running"
    assert status_of(held("Suspending"), workload(), *PODS).message == "being stopped"


def test_a_healthy_run_takes_one_request_more_than_without_kueue() -> None:
    class Counting(FakeCluster):
        asked: ClassVar[list[str]] = []

        def list(self, kind: Any, *given: Any) -> Any:
            self.asked.append(kind.kind)
            return super().list(kind, *given)

    objects = [operators(queue="team"), *PODS, workload(), local_queue(), cluster_queue()]
    OPERATOR.observe(Counting(objects), "default", "app")
    assert Counting.asked == ["Pod", "Workload"]


def test_cohorts_lend_and_borrow_up_to_their_limits() -> None:
    objects = [
        held(),
        workload(not_reserved(MORE), gpus=32),
        local_queue(),
        cluster_queue(gpus="4", cohort="team-a", borrowingLimit="20"),
        cluster_queue("other", gpus="16", cohort="team-b", lendingLimit="6"),
        cohort("team-a", "root"),
        cohort("team-b", "root"),
    ]
    assert "can have at most 10 nvidia.com/gpu in flavor 'a100'" in first(*objects).summary
    # A circle of cohorts ends the look upwards.
    circle = [*objects[:-2], cohort("team-a", "root"), cohort("team-b", "root"), cohort("root", "team-a")]
    assert "can have at most" in first(*circle).summary
