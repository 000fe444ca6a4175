"""From the replicas of a job to what they say together, whoever schedules them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at
from torchx_pulumi.model.status import Condition, JobState, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.pods.status import Verdict, read_replica


def role_of(task: str, found: Mapping[str, Any]) -> tuple[str, int]:
    """Return role name and replica id, by TorchX's labels or else by the task's name `<role>-<index>`.

    >>> role_of("my-train-1", {})
    ('my-train', 1)
    """
    match = re.fullmatch(r"(.*)-(\d+)", task)
    role, index = (match[1], int(match[2])) if match else (task, 0)
    labelled = number_at(found, labels.REPLICA_ID)
    return text_at(found, labels.ROLE_NAME) or role, index if labelled is None else labelled


def group_pods(pods: Sequence[Mapping[str, Any]]) -> tuple[RoleStatus, ...]:
    """Group pods by the labels that the renderer gave them, roles in the order of the AppDef."""
    roles: dict[tuple[int, str], list[ReplicaStatus]] = {}
    for pod in pods:
        carried = mapping_at(pod, "metadata", "labels")
        role, replica_id = role_of(text_at(pod, "metadata", "name") or "pod", carried)
        key = (number_at(carried, labels.ROLE_INDEX) or 0, role)
        roles.setdefault(key, []).append(read_replica(replica_id, pod))
    ordered = sorted(roles.items())
    return tuple(
        RoleStatus(name=name, replicas=tuple(sorted(found, key=lambda r: r.id))) for (_, name), found in ordered
    )


def sum_up(replicas: Sequence[ReplicaStatus]) -> Verdict:
    """Read a gang's state from its replicas: it goes on while one of them does."""
    states = {replica.state for replica in replicas}
    if not states:
        return JobState.SUBMITTED, Reason.SUBMITTED, "no pod is there yet"
    if states == {JobState.SUCCEEDED}:
        return JobState.SUCCEEDED, Reason.COMPLETED, "all replicas exited with code 0"
    if JobState.RUNNING in states:
        return JobState.RUNNING, Reason.RUNNING, "running"
    if JobState.PENDING in states:
        return JobState.PENDING, Reason.WAITING_FOR_PODS, "waiting for pods"
    if JobState.FAILED in states and JobState.UNKNOWN not in states:
        return JobState.FAILED, Reason.FAILED, "a replica failed"
    return JobState.UNKNOWN, Reason.UNREADABLE, "a pod does not say what it does"


def being_deleted(
    head: Mapping[str, Any] | None, what: str, state: JobState, reason: Reason, message: str
) -> tuple[Reason, str]:
    """Return reason and message of a run, which are other ones while its object is being deleted."""
    if state.terminal or text_at(head, "metadata", "deletionTimestamp") is None:
        return reason, message
    return Reason.STOPPING, f"{what} is being deleted"


def blame(guilty: Sequence[ReplicaStatus], replicas: Sequence[ReplicaStatus]) -> str:
    """Say which replica, where, and what; and how many more."""
    first = guilty[0]
    where = f"pod {first.pod}" + (f" on node {first.node}" if first.node else "")
    more = f" ({len(guilty)} of {len(replicas)} replicas)" if len(replicas) > 1 else ""
    return f"{where}: {first.message}{more}"


def job_conditions(
    state: JobState,
    reason: Reason,
    message: str,
    replicas: Sequence[ReplicaStatus],
    admitted: bool | None,
    ended: datetime | None,
    *,
    missing: int = 0,
) -> tuple[Condition, ...]:
    """Return what is true of the job, by fixed types, whatever the scheduler's own conditions are.

    Args:
        state: Of the job.
        reason: Of the job.
        message: Of the job.
        replicas: All that are known.
        admitted: The queue has let the job in. None: not known.
        ended: When it ended.
        missing: Replicas that have no pod, although nothing will make one.
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
        Condition(
            type="PodsScheduled",
            status="True" if placed else "False",
            reason=reason,
            message="" if placed else message,
        ),
        Condition(
            type="Finished",
            status="True" if state.terminal else "False",
            reason=reason,
            message=message if state.terminal else "",
            since=ended,
        ),
    )
