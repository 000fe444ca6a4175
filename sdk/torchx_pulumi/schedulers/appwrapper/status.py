"""From an observed AppWrapper, of either version, and its pods to the status of the job. The end comes from the pods.

Order of trust: container statuses, conditions of pods, what the AppWrapper says of its pods, its own conditions,
PodGroups, events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchx_pulumi.model.object_fields import earliest, latest, mapping_at, text_at, time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.appwrapper.phases import AppWrapper, read_app_wrapper
from torchx_pulumi.schedulers.pods.gang import being_deleted, blame, group_pods, job_conditions, role_of, sum_up
from torchx_pulumi.schedulers.pods.status import Verdict, finished_at, read_replica, started_at

MAX_STATEMENTS = 4
"""Reasons for waiting that a message lists at most."""

GANG_REFUSED = "the pods of the gang cannot all be placed at once"
"""What is to be said before the words of a coscheduler that names no cause."""

STUCK = (Reason.IMAGE_UNAVAILABLE, Reason.CONTAINER_REFUSED, Reason.CRASH_LOOP)
"""Reasons of a replica that will hardly go away by waiting."""


def read_mcad(
    app_wrapper: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]] | None = (),
    pod_groups: Iterable[Mapping[str, Any]] = (),
    events: Iterable[Mapping[str, Any]] = (),
) -> JobStatus:
    """Read the status of an AppWrapper, v1beta1 (MCAD) or v1beta2 (its successor).

    Args:
        app_wrapper: The observed AppWrapper; None: it is not in the cluster.
        pods: Its observed pods. Without them, the AppWrapper's own counts are believed. None: pods may not be read.
        pod_groups: Its observed PodGroups.
        events: Observed events of all these objects.
    """
    if app_wrapper is None:
        return JobStatus(
            state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="the AppWrapper is not in the cluster"
        )
    wrapper = read_app_wrapper(app_wrapper)
    seen = list(pods or ())
    replicas = [replica for role in _read_roles(wrapper, seen, wrapper.verdict[0]) for replica in role.replicas]
    state, reason, message = _judge(wrapper, replicas, bool(seen))
    if state in (JobState.PENDING, JobState.SUBMITTED):
        reason, message = _explain_wait(wrapper, (reason, message), replicas, list(pod_groups), list(events))
    elif state is JobState.RUNNING and pods is None and not wrapper.counts:
        message = f"{message}; its pods were not read, and only they show when it ends"
    reason, message = being_deleted(app_wrapper, "the AppWrapper", state, reason, message)
    ended = (latest(map(finished_at, seen)) or wrapper.changed_at) if state.terminal else None
    return JobStatus(
        state=state,
        reason=reason,
        message=message,
        phase=wrapper.phase,
        # Replicas without pods say what became of the job.
        roles=_read_roles(wrapper, seen, state),
        conditions=job_conditions(state, reason, message, replicas, _admitted(wrapper, state), ended),
        attempt=1 + wrapper.restarts,
        queued_at=time_at(app_wrapper, "metadata", "creationTimestamp"),
        started_at=earliest(map(started_at, seen)),
        finished_at=ended,
    )


def _admitted(wrapper: AppWrapper, state: JobState) -> bool | None:
    return True if state is JobState.RUNNING or state.terminal else wrapper.admitted


def _judge(wrapper: AppWrapper, replicas: Sequence[ReplicaStatus], with_pods: bool) -> Verdict:
    """Read the state from what the AppWrapper says and what its pods show."""
    state, reason, message = wrapper.verdict
    failed = [replica for replica in replicas if replica.state is JobState.FAILED]
    count = len(failed) or wrapper.counts.get(JobState.FAILED, 0)
    failure = _failure(failed, replicas, count, message)
    if wrapper.limit and wrapper.restarts > wrapper.limit and not _succeeded(replicas):
        return JobState.FAILED, Reason.RETRIES_EXHAUSTED, _exhausted(wrapper, failure[2])
    if state is JobState.FAILED and wrapper.limit and not wrapper.retries_left:
        return JobState.FAILED, Reason.RETRIES_EXHAUSTED, _exhausted(wrapper, failure[2])
    if state is JobState.FAILED:
        return failure if failed else (state, reason, message)
    if state is JobState.SUCCEEDED:
        return failure if count else (state, reason, "all replicas exited with code 0")
    if state is not JobState.RUNNING or reason in (Reason.RESTARTING, Reason.STOPPING):
        return state, reason, message
    if _ended(wrapper, replicas, with_pods):
        return _end(wrapper, count, failure)
    if failed:
        return JobState.RUNNING, failure[1], failure[2]
    stuck = [replica for replica in replicas if replica.reason in STUCK]
    if not with_pods:
        return state, reason, message
    run_concurrently = sum_up(replicas)
    if run_concurrently[0] is JobState.RUNNING or any(replica.state is JobState.SUCCEEDED for replica in replicas):
        return JobState.RUNNING, *((stuck[0].reason, blame(stuck, replicas)) if stuck else (Reason.RUNNING, "running"))
    return run_concurrently


def _succeeded(replicas: Sequence[ReplicaStatus]) -> bool:
    return bool(replicas) and all(replica.state is JobState.SUCCEEDED for replica in replicas)


def _ended(wrapper: AppWrapper, replicas: Sequence[ReplicaStatus], with_pods: bool) -> bool:
    """Say whether every pod has ended; without pods, whether as many are counted as ended as there should be."""
    if with_pods:
        return bool(replicas) and all(replica.state.terminal for replica in replicas)
    counts = wrapper.counts
    going = counts.get(JobState.RUNNING, 0) + counts.get(JobState.PENDING, 0)
    done = counts.get(JobState.SUCCEEDED, 0) + counts.get(JobState.FAILED, 0)
    return not going and 0 < len(wrapper.templates) <= done


def _end(wrapper: AppWrapper, failures: int, failure: Verdict) -> Verdict:
    if not failures:
        return JobState.SUCCEEDED, Reason.COMPLETED, "all replicas exited with code 0"
    if wrapper.retries_left:
        retry = f"; to be started again, retry {wrapper.restarts + 1} of {wrapper.limit}"
        return JobState.RUNNING, Reason.RESTARTING, failure[2] + retry
    if wrapper.limit:
        return JobState.FAILED, Reason.RETRIES_EXHAUSTED, _exhausted(wrapper, failure[2])
    return failure


def _failure(failed: Sequence[ReplicaStatus], replicas: Sequence[ReplicaStatus], count: int, said: str) -> Verdict:
    if failed:
        return JobState.FAILED, failed[0].reason, blame(failed, replicas)
    if count:
        return JobState.FAILED, Reason.FAILED, f"{count} of {len(replicas)} replicas failed; their pods are gone"
    return JobState.FAILED, Reason.FAILED, said


def _exhausted(wrapper: AppWrapper, message: str) -> str:
    times = "1 time" if wrapper.restarts == 1 else f"{wrapper.restarts} times"
    return f"started again {times}, of which {wrapper.limit} were allowed: {message}"


def _read_roles(wrapper: AppWrapper, pods: Sequence[Mapping[str, Any]], state: JobState) -> tuple[RoleStatus, ...]:
    """Read every replica that the AppWrapper wraps, whether it has a pod or not."""
    if not wrapper.templates:
        return group_pods(pods)
    by_name = {text_at(pod, "metadata", "name"): pod for pod in pods}
    roles: dict[str, list[ReplicaStatus]] = {}
    for template in wrapper.templates:
        name = text_at(template, "metadata", "name") or ""
        role, replica_id = role_of(name, mapping_at(template, "metadata", "labels"))
        pod = by_name.get(name)
        replica = _without_pod(replica_id, name, wrapper, state) if pod is None else read_replica(replica_id, pod)
        roles.setdefault(role, []).append(replica)
    return tuple(
        RoleStatus(name=role, replicas=tuple(sorted(found, key=lambda r: r.id))) for role, found in roles.items()
    )


def _without_pod(replica_id: int, pod: str, wrapper: AppWrapper, state: JobState) -> ReplicaStatus:
    """Read a replica whose pod was not observed from what became of the job."""
    found: Verdict
    if state is JobState.SUCCEEDED:
        found = (state, Reason.COMPLETED, "the job completed; the pod is gone")
    elif state is JobState.CANCELLED:
        found = (state, Reason.CANCELLED, "the job was deleted; the pod is gone")
    elif state is JobState.FAILED:
        found = (JobState.UNKNOWN, Reason.POD_GONE, "the job failed; the pod is gone and with it the reason")
    elif wrapper.admitted:
        found = (JobState.PENDING, Reason.WAITING_FOR_PODS, "the pod is not made yet")
    else:
        found = (JobState.PENDING, Reason.WAITING_IN_QUEUE, "the AppWrapper has not been dispatched yet")
    return ReplicaStatus(id=replica_id, pod=pod or None, state=found[0], reason=found[1], message=found[2])


def _explain_wait(
    wrapper: AppWrapper,
    known: tuple[Reason, str],
    replicas: Sequence[ReplicaStatus],
    pod_groups: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
) -> tuple[Reason, str]:
    """Merge all that says why the job waits, the most telling first."""
    found = [*_replicas_wait(replicas), *wrapper.waits]
    found += [(Reason.UNSCHEDULABLE, text) for text in _pod_groups_wait(pod_groups)]
    found += _warnings(events, known[0])
    found.sort(key=lambda wait: _vagueness(wait[1]))
    if not found:
        waiting = [replica for replica in replicas if replica.reason is Reason.WAITING_FOR_PODS]
        return (Reason.WAITING_FOR_PODS, blame(waiting, replicas)) if waiting else known
    statements: list[str] = []
    for _, text in found:
        if not any(text in said or said in text for said in statements):
            statements.append(text)
    if known[0] is Reason.SUSPENDED:
        return known[0], "; ".join([known[1], *statements[: MAX_STATEMENTS - 1]])
    lead = [GANG_REFUSED] if _vagueness(statements[0]) > 1 else []
    reason = found[0][0]
    return reason, "; ".join([*lead, *statements[:MAX_STATEMENTS]])


def _replicas_wait(replicas: Sequence[ReplicaStatus]) -> Iterator[tuple[Reason, str]]:
    for reasons in (STUCK, (Reason.UNSCHEDULABLE,), (Reason.STARTING,)):
        waiting = [replica for replica in replicas if replica.reason in reasons]
        if waiting:
            yield waiting[0].reason, blame(waiting, replicas)


def _pod_groups_wait(pod_groups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for pod_group in pod_groups:
        phase = text_at(pod_group, "status", "phase")
        if phase in ("Pending", "PreScheduling", "Unknown", "Failed"):
            yield f"PodGroup {text_at(pod_group, 'metadata', 'name') or '?'} is {phase}"


def _warnings(events: Sequence[Mapping[str, Any]], otherwise: Reason) -> Iterator[tuple[Reason, str]]:
    """Yield the most telling warning of each kind among the events, the newest kind first."""
    warnings = [event for event in events if text_at(event, "type") == "Warning" and text_at(event, "message")]
    best: dict[str, str] = {}
    for event in sorted(warnings, key=_age, reverse=True):
        word, message = text_at(event, "reason") or "event", text_at(event, "message") or ""
        if word not in best or _vagueness(message) < _vagueness(best[word]):
            best[word] = message
    for word, message in best.items():
        yield Reason.UNSCHEDULABLE if word == "FailedScheduling" else otherwise, f"{word}: {message}"


def _age(event: Mapping[str, Any]) -> str:
    time = latest(time_at(event, key) for key in ("lastTimestamp", "eventTime"))
    return "" if time is None else time.isoformat()


def _vagueness(text: str) -> int:
    """Say how little a text tells; a coscheduler refuses the whole gang in words that hide why the first pod was."""
    if "rejection in" in text:
        return 2
    return 1 if "sibling pods" in text else 0
