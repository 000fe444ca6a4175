"""The message of a status: one line about the job and one about each replica, if no problem was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from torchx_pulumi.model.object_fields import is_being_deleted, text_at
from torchx_pulumi.model.status import STUCK, JobState, JobStatus, Reason, ReplicaStatus
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence
from torchx_pulumi.schedulers.diagnosis.pods import explain_replicas

MESSAGES: Final[Mapping[Reason, str]] = {
    Reason.SUBMITTED: "submitted; no controller has acted on it yet",
    Reason.WAITING_FOR_PODS: "waiting for its pods",
    Reason.STARTING: "its containers are being created",
    Reason.RUNNING: "running",
    Reason.RESTARTING: "being restarted",
    Reason.STOPPING: "being stopped",
    Reason.COMPLETED: "all replicas exited with code 0",
    Reason.FAILED: "failed, and the scheduler does not say why",
    Reason.CANCELLED: "stopped",
    Reason.NOT_FOUND: "the job's objects are not in the cluster",
    Reason.NOT_OBSERVED: "it was never observed",
    Reason.POD_GONE: "its pods were deleted before their end was seen",
}
"""Reason -> message of a job about which nothing else is known."""

WITHOUT_POD: Final[Mapping[Reason, str]] = {
    Reason.WAITING_FOR_PODS: "the pod is not made yet",
    Reason.WAITING_FOR_ROLE: "its role starts after another one",
    Reason.WAITING_IN_QUEUE: "the job has not been admitted yet",
    Reason.RUNNING: "the scheduler counts the pod as running",
    Reason.FAILED: "the scheduler counts the pod as failed",
    Reason.COMPLETED: "the job completed; the pod is gone",
    Reason.ROLE_ENDED: "stopped, as another role ended the job; the pod is gone",
    Reason.CANCELLED: "the job was stopped; the pod is gone",
    Reason.POD_GONE: "the pod was deleted before its end was seen",
}
"""Reason -> message of a replica without an observed pod."""


def explain_status(evidence: Evidence, words: str | None) -> str:
    """Return the message of a job whose replicas have theirs; `words` is a statement of the scheduler's own objects."""
    status, replicas = evidence.status, evidence.status.replicas
    if is_being_deleted(evidence.job_object) and not status.state.terminal:
        kind = text_at(evidence.job_object, "kind") or "Job"
        return f"the {'job' if kind == 'Job' else kind} is being deleted"
    failed = [replica for replica in replicas if replica.state is JobState.FAILED]
    message = words or MESSAGES.get(status.reason) or status.reason.value
    unreadable = [one for one in replicas if one.reason is status.reason is Reason.UNREADABLE]
    if status.reason is Reason.UNREADABLE and not unreadable:
        unknown = f"its controller reports {status.phase!r}, which this version does not know"
        return unknown if status.phase else "the observed object has neither name nor phase"
    if failed and status.reason in (Reason.RESTARTING, Reason.STOPPING):
        return f"{message}; {explain_replicas(failed, replicas)}"
    if failed and status.state is JobState.SUCCEEDED and words is None:
        succeeded = sum(replica.state is JobState.SUCCEEDED for replica in replicas)
        counts = f"completed: {succeeded} of {len(replicas)} replicas succeeded"
        return f"{counts}; {explain_replicas(failed, replicas)}"
    blamed = [one for one in failed if one.reason is status.reason and status.state is not JobState.SUCCEEDED]
    waiting = (*STUCK, Reason.UNSCHEDULABLE) if words is None else STUCK
    deleted = [one for one in replicas if one.reason is status.reason is Reason.STOPPING]
    if deleted:
        return f"{message}; {explain_replicas(deleted, replicas)}"
    blamed = blamed or unreadable or [one for one in replicas if one.reason is status.reason and one.reason in waiting]
    explained = explain_replicas(blamed, replicas) if blamed else message
    return message if explained in message else explained


def with_replica_messages(status: JobStatus, *, pods_read: bool, words: Mapping[Reason, str]) -> JobStatus:
    """Return a status in which replicas without a pod have their message.

    Args:
        status: The status without these messages.
        pods_read: Pods were read.
        words: Messages of the scheduler by reason; they come before the general ones.
    """
    messages = {**WITHOUT_POD, **words}
    if status.state is not JobState.SUCCEEDED:
        messages[Reason.COMPLETED] = "the scheduler counts the pod as succeeded"

    def explain(replica: ReplicaStatus) -> ReplicaStatus:
        if replica.message:
            return replica
        unread = not pods_read and replica.reason in (Reason.POD_GONE, Reason.WAITING_FOR_PODS)
        return replace(replica, message="its pod was not read" if unread else messages[replica.reason])

    roles = tuple(replace(role, replicas=tuple(map(explain, role.replicas))) for role in status.roles)
    return replace(status, roles=roles)
