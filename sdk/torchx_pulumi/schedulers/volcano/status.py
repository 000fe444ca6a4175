"""From observed Volcano objects to the status of a job: a Volcano Job with its pods, or a PodGroup with pods.

Order of trust: container statuses, then conditions of the PodGroup unless a newer one says that it was scheduled, then
the job's own phase. Messages are in `volcano.diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import (
    earliest,
    is_being_deleted,
    items_at,
    latest,
    number_at,
    text_at,
    time_at,
)
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import STUCK, JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.planning.names import label_value
from torchx_pulumi.schedulers.pods.status import (
    POD_PHASES,
    UNREADABLE,
    Outcome,
    finished_at,
    group_pods,
    has_been_over,
    job_conditions,
    make_roles,
    started_at,
    sum_up,
)
from torchx_pulumi.schedulers.volcano.tasks import (
    completes,
    ending_roles,
    lacks_success,
    read_tasks,
    restarts_after_failure,
    restarts_left,
)

PHASES: Final[Mapping[str, Outcome]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_FOR_PODS),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "Restarting": (JobState.RUNNING, Reason.RESTARTING),
    "Aborting": (JobState.RUNNING, Reason.STOPPING),
    "Terminating": (JobState.RUNNING, Reason.STOPPING),
    "Completing": (JobState.RUNNING, Reason.STOPPING),
    "Aborted": (JobState.CANCELLED, Reason.CANCELLED),
    "Completed": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Terminated": (JobState.FAILED, Reason.FAILED),
    "Failed": (JobState.FAILED, Reason.FAILED),
}
"""State and reason of each phase of a Volcano Job (Volcano: `apis/batch/v1alpha1/job.go`, `JobPhase`)."""

ADMITTED_PHASES: Final = frozenset({"Inqueue", "Running", "Unknown", "Completed"})
"""Phases of a PodGroup that its queue has admitted."""


def read_volcano(
    job: Observed | None,
    pods: Iterable[Observed] | None = (),
    pod_group: Observed | None = None,
    rows: Mapping[str, PodRow] | None = None,
    *,
    unattended: bool = False,
    at: datetime | None = None,
) -> JobStatus:
    """Return the status of a Volcano Job, without messages.

    Args:
        job: The observed Job. None: it is not in the cluster.
        pods: Its observed pods. Replicas without one are read from the counts that the job itself has. None: pods may
            not be read.
        pod_group: Its observed PodGroup, which says why a gang waits.
        rows: All pods in short, by name, if `pods` has only some. Times are then those of the job, except that
            `started_at` is earlier if a pod of `pods` started earlier. None: `pods` has all.
        unattended: Volcano's controller does not look at it, or can make no pod: its queue or its namespace is gone.
        at: When all this was read, aware. None: unknown.
    """
    if job is None:
        return JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND)
    found = list(pods or ())
    phase = text_at(job, "status", "state", "phase")
    state, reason = PHASES.get(phase or "", UNREADABLE)
    if phase is None and text_at(job, "metadata", "name"):
        state, reason = JobState.SUBMITTED, Reason.SUBMITTED
    roles = read_tasks(job, found, rows or {}, state)
    replicas = [replica for role in roles for replica in role.replicas]
    # What a pod shows while it is being deleted is not its end.
    over = all(replica.state.terminal for replica in replicas) and not any(map(is_being_deleted, found))
    if not is_being_deleted(job) and (unattended or phase == "Terminated" or has_been_over(replicas, found, at)):
        state, reason = _read_unattended(job, phase, replicas, (state, reason), over=over)
    if state is JobState.SUCCEEDED and lacks_success(job, roles):
        state, reason = JobState.FAILED, Reason.FAILED
    elif phase == "Running" and state is JobState.RUNNING and ending_roles(job, roles):
        reason = Reason.STOPPING
    reason = _find_reason(state, reason, replicas, pod_group)
    if is_being_deleted(job) and not state.terminal:
        reason = Reason.STOPPING
    began, ended = started_at(found), None
    if rows is not None:
        # Each has the time at which the job came into that phase. Volcano 1.15 keeps the newest of a phase only.
        conditions = items_at(job, "status", "conditions")
        runs = (time_at(one, "lastTransitionTime") for one in conditions if text_at(one, "status") == "Running")
        began = earliest((began, *runs))
    if state.terminal:
        of_pods = finished_at(found) if rows is None else None
        ended = of_pods or time_at(job, "status", "state", "lastTransitionTime")
    return JobStatus(
        state=state,
        reason=reason,
        phase=phase,
        roles=roles,
        conditions=job_conditions(state, reason, replicas, _is_admitted(state, pod_group, replicas), ended),
        attempt=1 + (number_at(job, "status", "retryCount") or 0),
        queued_at=time_at(job, "metadata", "creationTimestamp"),
        started_at=began,
        finished_at=ended,
    )


def _read_unattended(
    job: Observed, phase: str | None, replicas: Sequence[ReplicaStatus], said: Outcome, *, over: bool
) -> Outcome:
    """Return state and reason of a job that its controller does not look at: what it would say if it did.

    `said` is what its phase says. It stays where the controller would start the job again. `over`: all pods have ended.
    """
    if phase == "Restarting":
        # Its pods are made, or its end is noted, only when the controller looks.
        return (JobState.FAILED, Reason.RETRIES_EXHAUSTED) if restarts_left(job) < 0 else POD_PHASES["Running"]
    succeeded = {replica.pod for replica in replicas if replica.state is JobState.SUCCEEDED}
    if phase == "Terminated":
        # Volcano also ends so a job that it could not act on, whatever its pods did.
        return (JobState.SUCCEEDED, Reason.COMPLETED) if succeeded and over and completes(job, succeeded) else said
    begun = [replica for replica in replicas if replica.state not in (JobState.PENDING, JobState.UNKNOWN)]
    if phase not in (None, "Pending", "Running") or not begun:
        return said
    if not over:
        return POD_PHASES["Running"]
    if completes(job, succeeded):
        return JobState.SUCCEEDED, Reason.COMPLETED
    return POD_PHASES["Running"] if restarts_after_failure(job) else (JobState.FAILED, Reason.FAILED)


def read_gang_pods(
    pod_group: Observed | None,
    pods: Iterable[Observed] | None,
    expected: Mapping[str, Sequence[str]] | None = None,
) -> JobStatus:
    """Return the status of a run without Volcano's job controller, which has a PodGroup and pods; without messages.

    Args:
        pod_group: The observed PodGroup.
        pods: Its observed pods. None: pods may not be read, and the counts of the PodGroup show no end.
        expected: Role name to its created pods in rank order. None: not known; then `minMember` of
            the PodGroup says how many there are at least.
    """
    found = list(pods or ())
    if pod_group is None and not found:
        return JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND)
    members = number_at(pod_group, "spec", "minMember") or 0
    roles, missing, gone = group_pods(found), 0, False
    going = pod_group is None or is_being_deleted(pod_group)
    if pods is None:
        state, reason = (JobState.SUBMITTED, Reason.SUBMITTED)
        if any(pod_counts(pod_group)):
            state, reason = POD_PHASES["Running"]
    else:
        missing, gone = missing_pods(pod_group, found, expected)
        present = [one for role in roles for one in role.replicas]
        state, reason = _read_gang(present, members, missing, gone=gone, going=going)
        roles = _with_absent(roles, _absent(found, expected or {}))
    replicas = [replica for role in roles for replica in role.replicas]
    if not (missing and gone):
        reason = _find_reason(state, reason, replicas, pod_group)
    if going and not state.terminal:
        reason = Reason.STOPPING
    ended = finished_at(found) if state.terminal else None
    admitted = _is_admitted(state, pod_group, replicas)
    return JobStatus(
        state=state,
        reason=reason,
        phase=text_at(pod_group, "status", "phase"),
        roles=roles,
        conditions=job_conditions(state, reason, replicas, admitted, ended, missing=missing if gone else 0),
        queued_at=earliest(time_at(made, "metadata", "creationTimestamp") for made in [pod_group or {}, *found]),
        started_at=started_at(found),
        finished_at=ended,
    )


def missing_pods(
    pod_group: Observed | None,
    pods: Sequence[Observed],
    expected: Mapping[str, Sequence[str]] | None,
) -> tuple[int, bool]:
    """Return how many pods of a gang do not exist, and whether these existed once.

    `expected` is role name to the pods that were created, if known.
    """
    absent = _absent(pods, expected or {})
    missing = len(absent) or max((number_at(pod_group, "spec", "minMember") or 0) - len(pods), 0)
    return missing, bool(absent) or _was_placed(pod_group, pods)


def _was_placed(pod_group: Observed | None, pods: Sequence[Observed]) -> bool:
    """Return whether the gang was placed once. All of its members existed then."""
    conditions = items_at(pod_group, "status", "conditions")
    scheduled = any(text_at(c, "type") == "Scheduled" and text_at(c, "status") == "True" for c in conditions)
    begun = ("Running", "Succeeded", "Failed")
    return scheduled or any(text_at(p, "spec", "nodeName") or text_at(p, "status", "phase") in begun for p in pods)


def _absent(pods: Sequence[Observed], expected: Mapping[str, Sequence[str]]) -> list[tuple[str, int, str]]:
    """Return role, replica id and pod of each expected replica without a pod; empty if `expected` is out of date."""
    present = {text_at(pod, "metadata", "name") for pod in pods}
    if not present <= {pod for names in expected.values() for pod in names}:
        return []
    return [
        (role, index, pod) for role, names in expected.items() for index, pod in enumerate(names) if pod not in present
    ]


def _with_absent(roles: Sequence[RoleStatus], absent: Sequence[tuple[str, int, str]]) -> tuple[RoleStatus, ...]:
    whole = {role.name: list(role.replicas) for role in roles}
    for name, index, pod in absent:
        replica = ReplicaStatus(id=index, pod=pod, state=JobState.UNKNOWN, reason=Reason.POD_GONE)
        # A pod's label has the name of its role as a valid label value.
        whole.setdefault(name if name in whole else label_value(name), []).append(replica)
    return make_roles(whole)


def _read_gang(present: Sequence[ReplicaStatus], members: int, missing: int, *, gone: bool, going: bool) -> Outcome:
    """Return state and reason of a gang from its pods.

    Args:
        present: The replicas that have a pod.
        members: Pods that must run at the same time.
        missing: Replicas without a pod.
        gone: Those had one.
        going: The PodGroup is gone or is being deleted, and its pods go with it.
    """
    states = {replica.state for replica in present}
    if not missing:
        state, reason = sum_up(present)
        started = sum(replica.state is not JobState.PENDING for replica in present)
        if state is JobState.RUNNING and started < min(members, len(present)):
            return POD_PHASES["Pending"]
        stopping = state is JobState.RUNNING and all(
            replica.reason is Reason.STOPPING for replica in present if not replica.state.terminal
        )
        return state, Reason.STOPPING if stopping else reason
    if not gone:
        return POD_PHASES["Pending"] if present else (JobState.SUBMITTED, Reason.SUBMITTED)
    if going:
        return JobState.RUNNING, Reason.STOPPING
    active = next((one for one in (JobState.RUNNING, JobState.PENDING, JobState.UNKNOWN) if one in states), None)
    if active is not None and len(present) >= members:
        return active, Reason.POD_GONE
    away = (Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_LOST)
    removed = [replica.reason for replica in present if replica.reason in away]
    return JobState.FAILED, removed[0] if removed else Reason.POD_GONE


def pod_counts(pod_group: Observed | None) -> tuple[int, int, int]:
    """Return how many pods a PodGroup counts as running, succeeded and failed."""
    running, succeeded, failed = (
        number_at(pod_group, "status", key) or 0 for key in ("running", "succeeded", "failed")
    )
    return running, succeeded, failed


def _find_reason(
    state: JobState, reason: Reason, replicas: Sequence[ReplicaStatus], pod_group: Observed | None
) -> Reason:
    """Return the most specific reason: of the replica that failed or is stuck, else of the gang, else of the queue."""
    if reason in (Reason.RESTARTING, Reason.STOPPING):
        return reason
    failed = [replica.reason for replica in replicas if replica.state is JobState.FAILED]
    if failed and state in (JobState.FAILED, JobState.RUNNING, JobState.PENDING):
        return failed[0]
    stuck = [replica.reason for replica in replicas if replica.reason in STUCK]
    if stuck and not state.terminal:
        return stuck[0]
    if state not in (JobState.PENDING, JobState.SUBMITTED):
        return reason
    if unschedulable(pod_group):
        return Reason.UNSCHEDULABLE
    if pod_group is not None and not _is_admitted(state, pod_group, replicas):
        return Reason.WAITING_IN_QUEUE
    return Reason.UNSCHEDULABLE if any(one.reason is Reason.UNSCHEDULABLE for one in replicas) else reason


def unschedulable(pod_group: Observed | None) -> str | None:
    """Return Volcano's text about a gang that cannot be placed, or None without such a text.

    Volcano leaves the condition `Unschedulable` on a gang that was scheduled later.
    """
    conditions = items_at(pod_group, "status", "conditions")
    bad = [c for c in conditions if text_at(c, "type") == "Unschedulable" and text_at(c, "status") == "True"]
    good = [c for c in conditions if text_at(c, "type") == "Scheduled" and text_at(c, "status") == "True"]
    if not bad:
        return None
    refused, placed = (latest(time_at(one, "lastTransitionTime") for one in found) for found in (bad, good))
    if good and (refused is None or (placed is not None and placed >= refused)):
        return None
    return text_at(bad[-1], "message") or text_at(bad[-1], "reason") or "the gang cannot be placed"


def _is_admitted(state: JobState, pod_group: Observed | None, replicas: Sequence[ReplicaStatus]) -> bool | None:
    """Return whether the queue has admitted the gang, or None if that is unknown."""
    if state is JobState.RUNNING or state.terminal or text_at(pod_group, "status", "phase") in ADMITTED_PHASES:
        return True
    if replicas and all(replica.node for replica in replicas):
        return True
    return False if pod_group is not None else None
