"""Observed objects of an Indexed Job, and its status from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.kube import PodReader, run_concurrently
from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, text_at, time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, Expected, ObservedObjects
from torchx_pulumi.schedulers.pods.observe import list_pods, with_last_lines
from torchx_pulumi.schedulers.pods.status import Outcome, group_pods, job_conditions, sum_up

from tests.third_scheduler.indexed_job.manifests import JOB

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod: its index in the Job."""


# region observe
def observe(cluster: PodReader, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    """Read the Job and its pods: two requests, and the last lines of a pod that failed."""
    job, pods = run_concurrently(
        lambda: cluster.get(JOB, namespace, name),
        lambda: list_pods(cluster, namespace, {labels.UNIQUE_NAME: name}),
    )
    if job is None:
        return ObservedObjects()
    observed = ObservedObjects(
        job_object=job,
        pods=None if pods is None else _latest(pods),
        listed=pods is not None,
        expected=expected,
        at=datetime.now(timezone.utc),
    )
    return with_last_lines(cluster, namespace, observed, read_status(observed))


# endregion


# region status
def read_status(observed: ObservedObjects) -> JobStatus:
    """Read the status of a run. Its end comes from the conditions of the Job, everything else from its pods."""
    job = observed.job_object
    if job is None:
        return JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND)
    end = _end(job)
    roles = group_pods(observed.pods or ())
    replicas = [replica for role in roles for replica in role.replicas]
    state, reason = _judge(text_at(end, "type"), replicas)
    if is_being_deleted(job) and not state.terminal:
        reason = Reason.STOPPING
    ended = time_at(end, "lastTransitionTime")
    return JobStatus(
        state=state,
        reason=reason,
        phase=text_at(end, "type"),
        roles=roles,
        conditions=job_conditions(state, reason, replicas, True, ended),
        queued_at=time_at(job, "metadata", "creationTimestamp"),
        started_at=time_at(job, "status", "startTime"),
        finished_at=ended,
    )


def describe(evidence: Evidence) -> str | None:
    """Return the message of the condition by which a Job failed, for example that it exceeded its deadline."""
    return text_at(_end(evidence.job_object), "message") if evidence.status.state is JobState.FAILED else None


def _judge(end: str | None, replicas: Sequence[ReplicaStatus]) -> Outcome:
    if end == "Complete":
        return JobState.SUCCEEDED, Reason.COMPLETED
    if end == "Failed":
        return JobState.FAILED, next((one.reason for one in replicas if one.state is JobState.FAILED), Reason.FAILED)
    state, reason = sum_up(replicas)
    # Where all pods have ended, the controller is about to replace one, or to note the end of the Job.
    return (JobState.RUNNING, Reason.RUNNING) if state.terminal else (state, reason)


# endregion


def _end(job: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the condition by which a Job ended. Empty: it has not ended."""
    conditions = [one for one in items_at(job, "status", "conditions") if text_at(one, "status") == "True"]
    return next((one for one in conditions if text_at(one, "type") in ("Complete", "Failed")), {})


def _latest(pods: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Return the newest pod of each index, with the label by which all schedulers know a replica."""
    newest: dict[str, Manifest] = {}
    for pod in sorted(pods, key=lambda pod: text_at(pod, "metadata", "creationTimestamp") or ""):
        metadata = pod["metadata"]
        index = (metadata.get("annotations") or {}).get(INDEX, "0")
        own = {**(metadata.get("labels") or {}), labels.REPLICA_ID: index}
        newest[index] = {**pod, "metadata": {**metadata, "labels": own}}
    return tuple(newest.values())
