"""From observed Volcano objects to the status of a job: a Volcano Job with its pods, or a PodGroup with pods of ours.

Order of trust: container statuses, then conditions of the PodGroup unless a newer one says that it was scheduled, then
the job's own phase (whose reason Volcano leaves empty).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from torchx_pulumi.model.object_fields import earliest, items_at, latest, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.planning.names import label_value
from torchx_pulumi.schedulers.pods.gang import being_deleted, blame, group_pods, job_conditions, role_of, sum_up
from torchx_pulumi.schedulers.pods.status import Verdict, finished_at, read_replica, started_at
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_TASK_SPEC

ALL_SUCCEEDED: Final = "all replicas exited with code 0"

PHASES: Final[Mapping[str, Verdict]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_FOR_PODS, "waiting for its pods"),
    "Running": (JobState.RUNNING, Reason.RUNNING, "running"),
    "Restarting": (JobState.RUNNING, Reason.RESTARTING, "being restarted"),
    "Aborting": (JobState.RUNNING, Reason.STOPPING, "being aborted"),
    "Terminating": (JobState.RUNNING, Reason.STOPPING, "being terminated"),
    "Completing": (JobState.RUNNING, Reason.STOPPING, "being completed"),
    "Aborted": (JobState.CANCELLED, Reason.CANCELLED, "aborted; it can be resumed"),
    "Completed": (JobState.SUCCEEDED, Reason.COMPLETED, ALL_SUCCEEDED),
    "Terminated": (JobState.FAILED, Reason.FAILED, "terminated by Volcano"),
    "Failed": (JobState.FAILED, Reason.FAILED, "failed, and Volcano does not say why"),
}
"""What a phase of a Volcano Job means in TorchX's words."""

POD_PHASES: Final[Mapping[str, tuple[JobState, Reason]]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_FOR_PODS),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "Succeeded": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Failed": (JobState.FAILED, Reason.FAILED),
}
"""What a pod's phase means where Volcano only counts pods by it."""

ADMITTED_PHASES: Final = frozenset({"Inqueue", "Running", "Unknown", "Completed"})


def read_volcano(
    job: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]] | None = (),
    pod_group: Mapping[str, Any] | None = None,
) -> JobStatus:
    """Read the status of a Volcano Job.

    Args:
        job: The observed Job; None: it is not in the cluster.
        pods: Its observed pods. Replicas without one are read from the counts that the job itself has. None: pods may
            not be read.
        pod_group: Its observed PodGroup, which says why a gang waits.
    """
    if job is None:
        return JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="the job is not in the cluster")
    seen = list(pods or ())
    phase = text_at(job, "status", "state", "phase")
    state, reason, message = read_phase(job, phase)
    roles = read_roles(job, seen, state, readable=pods is not None)
    replicas = [replica for role in roles for replica in role.replicas]
    queue = text_at(job, "spec", "queue")
    reason, message = explain(state, reason, message, replicas, pod_group, queue)
    failed = number_at(job, "status", "failed") or 0
    if state is JobState.SUCCEEDED and message == ALL_SUCCEEDED and failed:
        message = f"completed, and Volcano counts {failed} failed pods"
    reason, message = being_deleted(job, "the job", state, reason, message)
    ended = None
    if state.terminal:
        ended = latest(map(finished_at, seen)) or time_at(job, "status", "state", "lastTransitionTime")
    return JobStatus(
        state=state,
        reason=reason,
        message=message,
        phase=phase,
        roles=roles,
        conditions=job_conditions(state, reason, message, replicas, is_admitted(state, pod_group, replicas), ended),
        attempt=1 + (number_at(job, "status", "retryCount") or 0),
        queued_at=time_at(job, "metadata", "creationTimestamp"),
        started_at=earliest(map(started_at, seen)),
        finished_at=ended,
    )


def read_gang_pods(
    pod_group: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]] | None,
    expected: Mapping[str, Sequence[str]] | None = None,
) -> JobStatus:
    """Read the status of a job whose PodGroup and pods are made without Volcano's job controller.

    Args:
        pod_group: The observed PodGroup.
        pods: Its observed pods. None: pods may not be read, and the PodGroup's own counts are believed.
        expected: Role name to its pods in rank order, all of which were made. None: not known; then `minMember` of the
            PodGroup says how many there are at least.
    """
    seen = list(pods or ())
    if pod_group is None and not seen:
        return JobStatus(
            state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="neither PodGroup nor pods are in the cluster"
        )
    members = number_at(pod_group, "spec", "minMember") or 0
    roles, missing, gone = group_pods(seen), 0, False
    if pods is None:
        state, reason, message = _counted(pod_group, max(members, sum(map(len, (expected or {}).values()))))
    else:
        absent = _absent(seen, expected or {})
        missing = len(absent) or max(members - len(seen), 0)
        gone = bool(absent) or _was_placed(pod_group, seen)
        state, reason, message = _sum_up([one for role in roles for one in role.replicas], members, missing, gone)
        roles = _with_absent(roles, absent)
    replicas = [replica for role in roles for replica in role.replicas]
    if not (missing and gone):
        reason, message = explain(state, reason, message, replicas, pod_group, text_at(pod_group, "spec", "queue"))
    reason, message = being_deleted(pod_group, "the PodGroup", state, reason, message)
    ended = latest(map(finished_at, seen)) if state.terminal else None
    admitted = is_admitted(state, pod_group, replicas)
    created = [pod_group or {}, *seen]
    return JobStatus(
        state=state,
        reason=reason,
        message=message,
        phase=text_at(pod_group, "status", "phase"),
        roles=roles,
        conditions=job_conditions(state, reason, message, replicas, admitted, ended, missing=missing if gone else 0),
        queued_at=earliest(time_at(made, "metadata", "creationTimestamp") for made in created),
        started_at=earliest(map(started_at, seen)),
        finished_at=ended,
    )


def _was_placed(pod_group: Mapping[str, Any] | None, pods: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the gang had its places once. All of its members were there then."""
    conditions = items_at(pod_group, "status", "conditions")
    scheduled = any(text_at(c, "type") == "Scheduled" and text_at(c, "status") == "True" for c in conditions)
    begun = ("Running", "Succeeded", "Failed")
    return scheduled or any(text_at(p, "spec", "nodeName") or text_at(p, "status", "phase") in begun for p in pods)


def _absent(
    pods: Sequence[Mapping[str, Any]], expected: Mapping[str, Sequence[str]]
) -> list[tuple[str, ReplicaStatus]]:
    """Return role and status of each expected replica whose pod is gone; none where the expectation is out of date."""
    present = {text_at(pod, "metadata", "name") for pod in pods}
    if not present <= {pod for names in expected.values() for pod in names}:
        return []
    gone = "the pod was deleted before its end was seen"
    return [
        (role, ReplicaStatus(id=index, pod=pod, state=JobState.UNKNOWN, reason=Reason.POD_GONE, message=gone))
        for role, names in expected.items()
        for index, pod in enumerate(names)
        if pod not in present
    ]


def _with_absent(roles: Sequence[RoleStatus], absent: Sequence[tuple[str, ReplicaStatus]]) -> tuple[RoleStatus, ...]:
    whole = {role.name: list(role.replicas) for role in roles}
    for name, replica in absent:
        # A pod's label has the name of its role as a valid label value.
        whole.setdefault(name if name in whole else label_value(name), []).append(replica)
    return tuple(
        RoleStatus(name=name, replicas=tuple(sorted(found, key=lambda r: r.id))) for name, found in whole.items()
    )


def _sum_up(present: Sequence[ReplicaStatus], members: int, missing: int, gone: bool) -> Verdict:
    """Read a gang's state from its pods.

    Args:
        present: The replicas that have a pod.
        members: Pods that must run together.
        missing: Replicas without a pod.
        gone: Those had one.
    """
    count = len(present) + missing
    if not missing:
        state, reason, message = sum_up(present)
        waiting = sum(replica.state is JobState.PENDING for replica in present)
        if state is JobState.RUNNING and waiting and count - waiting < members:
            ready = f"{count - waiting} of the {members} replicas that it needs at once have started"
            return JobState.PENDING, Reason.WAITING_FOR_PODS, ready
        return state, reason, message
    if not gone:
        made = f"{len(present)} of {count} pods are made" if present else "no pod is there yet"
        state = JobState.PENDING if present else JobState.SUBMITTED
        return state, Reason.WAITING_FOR_PODS if present else Reason.SUBMITTED, made
    lost = f"{missing} of {count} pods were deleted before their end was seen"
    for state in (JobState.RUNNING, JobState.PENDING, JobState.UNKNOWN):
        if any(replica.state is state for replica in present):
            return state, Reason.POD_GONE, lost
    failed = [replica for replica in present if replica.state is JobState.FAILED]
    if failed:
        return JobState.FAILED, failed[0].reason, f"{blame(failed, present)}; {lost}"
    return JobState.FAILED, Reason.POD_GONE, f"{lost}; {len(present)} succeeded" if present else lost


def _counted(pod_group: Mapping[str, Any] | None, members: int) -> Verdict:
    """Read a gang's state from the counts of its PodGroup, where pods may not be read; `members` is all of its pods."""
    running, succeeded, failed = (
        number_at(pod_group, "status", key) or 0 for key in ("running", "succeeded", "failed")
    )
    ended, unread = succeeded + failed, "its pods were not read"
    if ended and not running and ended >= members:
        if failed:
            return JobState.FAILED, Reason.FAILED, f"{failed} of {ended} pods failed; {unread}"
        return JobState.SUCCEEDED, Reason.COMPLETED, f"{succeeded} pods succeeded; {unread}"
    if running or ended:
        return JobState.RUNNING, Reason.RUNNING, f"{running} pods run, {ended} have ended; {unread}"
    return JobState.SUBMITTED, Reason.SUBMITTED, f"no pod has started yet; {unread}"


def read_phase(job: Mapping[str, Any], phase: str | None) -> Verdict:
    """Read what the job says of itself; a job without a phase was just created."""
    if phase is None:
        if not text_at(job, "metadata", "name"):
            return JobState.UNKNOWN, Reason.UNREADABLE, "the observed object has neither name nor phase"
        return JobState.SUBMITTED, Reason.SUBMITTED, "submitted; Volcano's controller has not taken it up yet"
    if phase not in PHASES:
        return JobState.UNKNOWN, Reason.UNREADABLE, f"Volcano reports phase {phase!r}, which this version does not know"
    said = text_at(job, "status", "state", "message") or text_at(job, "status", "state", "reason")
    state, reason, words = PHASES[phase]
    return state, reason, said or words


def read_roles(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], state: JobState, *, readable: bool = True
) -> tuple[RoleStatus, ...]:
    """Read every replica that the job asks for, whether it has a pod or not; surplus tasks are left out."""
    job_name = text_at(job, "metadata", "name") or ""
    by_name = {text_at(pod, "metadata", "name"): pod for pod in pods}
    by_task = {text_at(pod, "metadata", "labels", VOLCANO_TASK_SPEC): pod for pod in pods}
    roles: dict[str, list[ReplicaStatus]] = {}
    for task in items_at(job, "spec", "tasks"):
        name = text_at(task, "name") or ""
        if not name or number_at(task, "replicas") == 0:
            continue
        role, replica_id = role_of(name, mapping_at(task, "template", "metadata", "labels"))
        pod_name = f"{job_name}-{name}-0"
        pod = by_name.get(pod_name) or by_task.get(name)
        replica = read_replica(replica_id, pod) if pod else without_pod(replica_id, pod_name, job, name, state)
        if pod is None and not readable and replica.reason in (Reason.POD_GONE, Reason.WAITING_FOR_PODS):
            replica = replace(replica, message="its pod was not read")
        roles.setdefault(role, []).append(replica)
    return tuple(
        RoleStatus(name=role, replicas=tuple(sorted(found, key=lambda r: r.id))) for role, found in roles.items()
    )


def without_pod(replica_id: int, pod: str, job: Mapping[str, Any], task: str, state: JobState) -> ReplicaStatus:
    """Read a replica whose pod was not observed, from the job's own count of its task and from the job's state."""
    counted = [word for word, count in mapping_at(job, "status", "taskStatusCount", task, "phase").items() if count]
    found: Verdict
    if len(counted) == 1 and counted[0] in POD_PHASES:
        found = (*POD_PHASES[counted[0]], f"Volcano counts the pod as {counted[0]}")
    elif state is JobState.SUCCEEDED:
        found = (state, Reason.COMPLETED, "the job completed; the pod is gone")
    elif state is JobState.CANCELLED:
        found = (state, Reason.CANCELLED, "the job was stopped; the pod is gone")
    elif state is JobState.FAILED:
        found = (JobState.UNKNOWN, Reason.POD_GONE, "the job failed; the pod is gone and with it the reason")
    else:
        found = (JobState.PENDING, Reason.WAITING_FOR_PODS, "the pod is not made yet")
    return ReplicaStatus(id=replica_id, pod=pod, state=found[0], reason=found[1], message=found[2])


def explain(
    state: JobState,
    reason: Reason,
    message: str,
    replicas: Sequence[ReplicaStatus],
    pod_group: Mapping[str, Any] | None,
    queue: str | None,
) -> tuple[Reason, str]:
    """Find the reason that helps most: the replica that failed or hangs, then the gang, then the queue."""
    failed = [replica for replica in replicas if replica.state is JobState.FAILED]
    if reason in (Reason.RESTARTING, Reason.STOPPING):
        return reason, f"{message}; {blame(failed, replicas)}" if failed else message
    if failed and state is JobState.SUCCEEDED and message == ALL_SUCCEEDED:
        succeeded = sum(replica.state is JobState.SUCCEEDED for replica in replicas)
        return reason, f"completed: {succeeded} of {len(replicas)} replicas succeeded; {blame(failed, replicas)}"
    if failed and state in (JobState.FAILED, JobState.RUNNING, JobState.PENDING):
        return failed[0].reason, blame(failed, replicas)
    stuck = [
        replica
        for replica in replicas
        if replica.reason in (Reason.IMAGE_UNAVAILABLE, Reason.CONTAINER_REFUSED, Reason.CRASH_LOOP)
    ]
    if stuck and not state.terminal:
        return stuck[0].reason, blame(stuck, replicas)
    if state not in (JobState.PENDING, JobState.SUBMITTED):
        return reason, message
    text = unschedulable(pod_group)
    if text:
        return Reason.UNSCHEDULABLE, text
    if pod_group is not None and not is_admitted(state, pod_group, replicas):
        return Reason.WAITING_IN_QUEUE, f"waiting for queue {queue or 'default'!r} to admit the gang"
    unplaced = [replica for replica in replicas if replica.reason is Reason.UNSCHEDULABLE]
    return (Reason.UNSCHEDULABLE, unplaced[0].message) if unplaced else (reason, message)


def unschedulable(pod_group: Mapping[str, Any] | None) -> str | None:
    """Return why the gang cannot be placed. None: it can, or nobody said."""
    conditions = items_at(pod_group, "status", "conditions")
    bad = [c for c in conditions if text_at(c, "type") == "Unschedulable" and text_at(c, "status") == "True"]
    good = [c for c in conditions if text_at(c, "type") == "Scheduled" and text_at(c, "status") == "True"]
    if not bad:
        return None
    said, placed = (
        latest(time_at(c, "lastTransitionTime") for c in bad),
        latest(time_at(c, "lastTransitionTime") for c in good),
    )
    if good and (said is None or (placed is not None and placed >= said)):
        return None  # Volcano leaves the old condition on a gang that has started.
    return text_at(bad[-1], "message") or text_at(bad[-1], "reason") or "the gang cannot be placed"


def is_admitted(state: JobState, pod_group: Mapping[str, Any] | None, replicas: Sequence[ReplicaStatus]) -> bool | None:
    """Return whether the queue has let the gang in. None: not known."""
    if state is JobState.RUNNING or state.terminal or text_at(pod_group, "status", "phase") in ADMITTED_PHASES:
        return True
    if replicas and all(replica.node for replica in replicas):
        return True
    return False if pod_group is not None else None
