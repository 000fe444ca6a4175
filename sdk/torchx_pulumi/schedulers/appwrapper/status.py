"""From an observed AppWrapper, of either version, and its pods to the status of the job.

The end of v1beta2 is its phase. The end of v1beta1 is its phase too, and while it says that it runs, the end of all
pods that it may not start again. An object with a deletionTimestamp shows no end.

Order of trust: container statuses, conditions of pods, what the AppWrapper says about its pods, its own conditions,
PodGroups, events. Messages are in `appwrapper.diagnosis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import is_being_deleted, time_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import STUCK, JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.appwrapper.diagnosis import (
    BEFORE_PLACEMENT,
    all_placed,
    find_waits,
    lost_replicas,
    placed_pods,
)
from torchx_pulumi.schedulers.appwrapper.phases import AppWrapper, read_app_wrapper
from torchx_pulumi.schedulers.appwrapper.tasks import read_replicas
from torchx_pulumi.schedulers.diagnosis.pods import removed_by
from torchx_pulumi.schedulers.pods.status import (
    Outcome,
    finished_at,
    group_pods,
    has_been_over,
    job_conditions,
    started_at,
    sum_up,
    without_pod,
)

DELETIONS: Final = (Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_LOST)
"""Why pods are deleted, other than by a user."""


def read_mcad(
    app_wrapper: Observed | None,
    pods: Iterable[Observed] | None = (),
    pod_groups: Iterable[Observed] = (),
    events: Iterable[Observed] = (),
    *,
    rows: Mapping[str, PodRow] | None = None,
    jobs: Sequence[Observed] = (),
    at: datetime | None = None,
) -> JobStatus:
    """Return the status of an AppWrapper, v1beta1 (MCAD) or v1beta2 (its successor), without messages.

    Args:
        app_wrapper: The observed AppWrapper. None: it is not in the cluster.
        pods: Its observed pods. None: pods may not be read, and v1beta1 shows no end.
        pod_groups: Its observed PodGroups.
        events: Observed events of all these objects.
        rows: All pods in short, by name, if `pods` has only some. None: `pods` has all.
        jobs: The Jobs that make its pods, as far as read.
        at: When all this was read, aware. None: unknown.
    """
    if app_wrapper is None:
        return JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND)
    wrapper = read_app_wrapper(app_wrapper)
    found = list(pods or ())

    def read(state: JobState) -> tuple[RoleStatus, ...]:
        """Return every replica that the AppWrapper wraps, with or without a pod, if the job has a state."""
        if not wrapper.tasks:
            return group_pods(found)
        waits = (JobState.PENDING, Reason.WAITING_FOR_PODS if wrapper.admitted else Reason.WAITING_IN_QUEUE)
        return read_replicas(wrapper.tasks, found, rows or {}, jobs, without_pod(state, waits))

    replicas = [replica for role in read(wrapper.state) for replica in role.replicas]
    going = is_being_deleted(app_wrapper)
    state, reason = _read_outcome(wrapper, replicas, None if pods is None else len(found), going=going)
    if not going and state is JobState.RUNNING and has_been_over(replicas, found, at):
        # Its controller does not look at it. What failed pods mean, only it can say.
        outcome = sum_up(replicas)
        state, reason = outcome if outcome[0] is JobState.SUCCEEDED else (state, reason)
    if state is JobState.FAILED and lost_replicas(wrapper, replicas):
        # Others may fail because of it.
        reason = next((cause for cause in map(removed_by, found) if cause in DELETIONS), Reason.POD_GONE)
    if state in (JobState.PENDING, JobState.SUBMITTED) and reason is not Reason.SUSPENDED:
        waits = find_waits(wrapper, reason, replicas, list(pod_groups), list(events))
        if wrapper.ends_by_pods and reason in BEFORE_PLACEMENT and all_placed(replicas):
            reason = Reason.STARTING
        reason = next((found_reason for found_reason, _ in waits), reason)
    if going and state is not JobState.UNKNOWN and not state.terminal:
        reason = Reason.STOPPING
    ended = (finished_at(found) or wrapper.changed_at) if state.terminal else None
    admitted = True if state is JobState.RUNNING or state.terminal or placed_pods(replicas) else wrapper.admitted
    return JobStatus(
        state=state,
        reason=reason,
        phase=wrapper.phase,
        # Replicas without pods have the state of the job.
        roles=read(state),
        conditions=job_conditions(state, reason, replicas, admitted, ended),
        attempt=1 + wrapper.restarts,
        queued_at=time_at(app_wrapper, "metadata", "creationTimestamp"),
        started_at=started_at(found),
        finished_at=ended,
    )


def _read_outcome(wrapper: AppWrapper, replicas: Sequence[ReplicaStatus], pods: int | None, *, going: bool) -> Outcome:
    """Return state and reason by the AppWrapper and its pods.

    `pods` is the number of pods that were read, or None if pods may not be read. `going` says whether the AppWrapper is
    being deleted.
    """
    state, reason = wrapper.state, wrapper.reason
    if going and wrapper.phase == "Deleted":
        return JobState.UNKNOWN, Reason.NOT_FOUND
    if state.terminal and (going or (wrapper.ends_by_pods and pods is None and wrapper.phase != "Deleted")):
        return JobState.RUNNING, Reason.STOPPING
    failed = [replica.reason for replica in replicas if replica.state is JobState.FAILED]
    failure = (JobState.FAILED, failed[0] if failed else Reason.FAILED)
    exhausted = (JobState.FAILED, Reason.RETRIES_EXHAUSTED)
    succeeded = bool(replicas) and all(replica.state is JobState.SUCCEEDED for replica in replicas)
    if wrapper.ends_by_pods and wrapper.restarts > wrapper.limit > 0 and not succeeded:
        # MCAD goes on beyond the limit, for ever.
        return exhausted
    if state is JobState.FAILED:
        by_retries = reason is Reason.RETRIES_EXHAUSTED or (wrapper.limit and not wrapper.retries_left)
        return exhausted if by_retries and not wrapper.lost else failure
    if state is JobState.SUCCEEDED:
        return failure if wrapper.ends_by_pods and (failed or wrapper.counts.get(JobState.FAILED)) else (state, reason)
    if state is not JobState.RUNNING or reason in (Reason.RESTARTING, Reason.STOPPING):
        return state, reason
    if wrapper.ends_by_pods and replicas and all(replica.state.terminal for replica in replicas):
        if not failed:
            return JobState.SUCCEEDED, Reason.COMPLETED
        if wrapper.retries_left:
            return JobState.RUNNING, Reason.RESTARTING
        return exhausted if wrapper.limit else failure
    return _read_active(replicas, failed) if pods else (state, reason)


def _read_active(replicas: Sequence[ReplicaStatus], failed: Sequence[Reason]) -> Outcome:
    """Return state and reason of an AppWrapper that says that it runs, from its pods."""
    if failed:
        return JobState.RUNNING, failed[0]
    if any(replica.reason is Reason.STOPPING for replica in replicas):
        # Its controller deletes pods to start them again.
        return JobState.RUNNING, Reason.RESTARTING
    outcome = sum_up(replicas)
    if outcome[0] is JobState.RUNNING or any(replica.state is JobState.SUCCEEDED for replica in replicas):
        stuck = [replica.reason for replica in replicas if replica.reason in STUCK]
        return JobState.RUNNING, stuck[0] if stuck else Reason.RUNNING
    return outcome
