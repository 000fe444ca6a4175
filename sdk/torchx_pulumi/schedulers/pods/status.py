"""Status of replicas and roles from observed pods, and the parts of a job's status that schedulers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import earliest, is_being_deleted, latest, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import Condition, JobState, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.diagnosis.evidence import PATIENCE
from torchx_pulumi.schedulers.diagnosis.pods import BEING_DELETED, explain_pod, explain_row
from torchx_pulumi.schedulers.pods.containers import (
    CRASH_LOOP,
    IMAGE_WAITS,
    REFUSED_WAITS,
    Container,
    read_containers,
)

Outcome = tuple[JobState, Reason]

POD_PHASES: Final[Mapping[str, Outcome]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_FOR_PODS),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "Succeeded": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Failed": (JobState.FAILED, Reason.FAILED),
}
"""State of a replica by the phase of its pod. The reason is that of a pod whose phase alone is known."""

UNREADABLE: Final[Outcome] = (JobState.UNKNOWN, Reason.UNREADABLE)

RUNS: Final = frozenset({"Running", "NotReady"})
WAITS: Final = frozenset({"Pending", "SchedulingGated", "PodInitializing"})
WAITS_FOR_CONTAINER: Final = frozenset({"ContainerCreating"}) | IMAGE_WAITS | REFUSED_WAITS
"""Words of kubectl's column STATUS by the state of the pod; the last ones only for pods with one container."""


def read_evidence(replica_id: int, pod: Observed) -> ReplicaStatus:
    """Return the status of a replica as evidence of how its run ends: a pod that is being deleted shows no end.

    The kubelet may end it with any exit code, and gives a pod that never started one of its own.
    """
    replica = read_replica(replica_id, pod)
    if not is_being_deleted(pod) or replica.state is JobState.PENDING:
        return replica
    message = BEING_DELETED
    return replace(
        replica, state=JobState.RUNNING, reason=Reason.STOPPING, message=message, exit_code=None, finished_at=None
    )


def read_replica(replica_id: int, pod: Observed) -> ReplicaStatus:
    """Return the status of a replica by its pod; UNKNOWN if the pod's phase is not one that Kubernetes documents."""
    phase, name = text_at(pod, "status", "phase"), text_at(pod, "metadata", "name")
    state, _ = POD_PHASES.get(phase or "Pending", UNREADABLE)
    if state is JobState.PENDING and name is None:
        state, _ = UNREADABLE
    reason, message = explain_pod(pod, state)
    containers = read_containers(pod)
    codes = [one.ended.exit_code for one in containers if one.ended and one.ended.exit_code is not None]
    return ReplicaStatus(
        id=replica_id,
        pod=name,
        state=state,
        reason=reason,
        message=message,
        exit_code=max(codes, key=bool, default=None),
        node=text_at(pod, "spec", "nodeName"),
        restarts=sum(one.restarts for one in containers),
        started_at=_started_at(containers),
        finished_at=_finished_at(containers) if state.terminal else None,
    )


def _started_at(containers: Sequence[Container]) -> datetime | None:
    return earliest(one.started_at for one in containers if not one.init)


def _finished_at(containers: Sequence[Container]) -> datetime | None:
    return latest(one.ended.finished_at for one in containers if one.ended and not one.init)


def state_of_row(row: PodRow) -> JobState | None:
    """Return the state of a replica by the row of its pod, or None if the row does not say.

    A row has no exit code and no times. Rows of failed pods have their phase; see `rows.read_many`.
    """
    if row.phase is not None:
        return POD_PHASES.get(row.phase, UNREADABLE)[0]
    if row.status in RUNS:
        return JobState.RUNNING
    if row.status == "Completed":
        return JobState.SUCCEEDED
    if row.status in WAITS or row.status.startswith("Init:"):
        return JobState.PENDING
    if row.containers == 1 and row.status in WAITS_FOR_CONTAINER:
        return JobState.PENDING
    return JobState.RUNNING if row.containers == 1 and row.status == CRASH_LOOP else None


def read_row(replica_id: int, row: PodRow) -> ReplicaStatus | None:
    """Return the status of a replica by the row of its pod, or None if the row does not say."""
    state = state_of_row(row)
    if state is None:
        return None
    reason, message = explain_row(row, state)
    return ReplicaStatus(
        id=replica_id, pod=row.name, state=state, reason=reason, message=message, node=row.node, restarts=row.restarts
    )


def started_at(pods: Iterable[Observed]) -> datetime | None:
    """Return when the first container of some pods ran, as far as reported."""
    return earliest(_started_at(read_containers(pod)) for pod in pods)


def finished_at(pods: Iterable[Observed]) -> datetime | None:
    """Return when the last container of some pods ended, as far as reported."""
    return latest(_finished_at(read_containers(pod)) for pod in pods)


def has_been_over(replicas: Sequence[ReplicaStatus], pods: Sequence[Observed], at: datetime | None) -> bool:
    """Return whether all replicas ended longer ago than a controller takes to act on it; `pods` have the times."""
    if at is None or not replicas or not all(replica.state.terminal for replica in replicas):
        return False
    ended = finished_at(pods)
    return ended is not None and at - ended > PATIENCE


def without_pod(state: JobState, waits: Outcome) -> Outcome:
    """Return state and reason of a replica without an observed pod, from the state of its job.

    While the job has not ended, these are `waits`.
    """
    ended = {
        JobState.SUCCEEDED: (state, Reason.COMPLETED),
        JobState.CANCELLED: (state, Reason.CANCELLED),
        JobState.FAILED: (JobState.UNKNOWN, Reason.POD_GONE),
    }
    return ended.get(state, waits)


def role_of(task: str, found: Observed) -> tuple[str, int]:
    """Return role name and replica id, by TorchX's labels or else by the task's name `<role>-<index>`.

    >>> role_of("my-train-1", {})
    ('my-train', 1)
    """
    match = re.fullmatch(r"(.*)-(\d+)", task)
    role, index = (match[1], int(match[2])) if match else (task, 0)
    labelled = number_at(found, labels.REPLICA_ID)
    return text_at(found, labels.ROLE_NAME) or role, index if labelled is None else labelled


def make_roles(replicas: Mapping[str, Iterable[ReplicaStatus]]) -> tuple[RoleStatus, ...]:
    """Return roles with their replicas in rank order."""
    return tuple(
        RoleStatus(name=role, replicas=tuple(sorted(found, key=lambda replica: replica.id)))
        for role, found in replicas.items()
    )


def group_pods(pods: Sequence[Observed]) -> tuple[RoleStatus, ...]:
    """Return roles by the labels of their pods, in the order of the AppDef."""
    roles: dict[tuple[int, str], list[ReplicaStatus]] = {}
    for pod in pods:
        carried = mapping_at(pod, "metadata", "labels")
        role, replica_id = role_of(text_at(pod, "metadata", "name") or "pod", carried)
        key = (number_at(carried, labels.ROLE_INDEX) or 0, role)
        roles.setdefault(key, []).append(read_evidence(replica_id, pod))
    return tuple(role for (_, name), found in sorted(roles.items()) for role in make_roles({name: found}))


def sum_up(replicas: Sequence[ReplicaStatus]) -> Outcome:
    """Return state and reason of a gang from its replicas: it runs while one of them does."""
    states = {replica.state for replica in replicas}
    if not states:
        return JobState.SUBMITTED, Reason.SUBMITTED
    if states == {JobState.SUCCEEDED}:
        return JobState.SUCCEEDED, Reason.COMPLETED
    if JobState.RUNNING in states:
        return JobState.RUNNING, Reason.RUNNING
    if JobState.PENDING in states:
        return JobState.PENDING, Reason.WAITING_FOR_PODS
    if JobState.FAILED in states and JobState.UNKNOWN not in states:
        return JobState.FAILED, Reason.FAILED
    return UNREADABLE


def job_conditions(
    state: JobState,
    reason: Reason,
    replicas: Sequence[ReplicaStatus],
    admitted: bool | None,
    ended: datetime | None,
    *,
    missing: int = 0,
) -> tuple[Condition, ...]:
    """Return the conditions of a job: `Admitted`, `PodsScheduled` and `Finished`, whatever the scheduler's own are.

    Args:
        state: State of the job.
        reason: Reason of the job.
        replicas: All known replicas.
        admitted: Whether the queue has admitted the job, if known.
        ended: When it ended.
        missing: Replicas that have no pod, and no controller will create one.
    """
    begun = (state is JobState.RUNNING and not missing) or state.terminal
    placed = begun or (bool(replicas) and not missing and all(replica.node for replica in replicas))
    status, why = {
        True: ("True", reason),
        False: ("False", Reason.WAITING_IN_QUEUE),
        None: ("Unknown", Reason.SUBMITTED),
    }[admitted]
    return (
        Condition(type="Admitted", status=status, reason=why),
        Condition(type="PodsScheduled", status="True" if placed else "False", reason=reason),
        Condition(type="Finished", status="True" if state.terminal else "False", reason=reason, since=ended),
    )
