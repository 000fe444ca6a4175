"""From one observed Pod to the status of its replica. What a gang means is for the schedulers' modules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_pulumi.model.object_fields import earliest, items_at, latest, number_at, text_at, time_at
from torchx_pulumi.model.status import JobState, Reason, ReplicaStatus
from torchx_pulumi.schedulers.pods.pull_errors import pull_cause, pull_words

IMAGE_WAITS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
    }
)
"""Words of the kubelet for an image that is not there (yet)."""

REFUSED_WAITS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)
"""Words of the kubelet for a container that cannot be made or started."""

Verdict = tuple[JobState, Reason, str]


def read_replica(replica_id: int, pod: Mapping[str, Any]) -> ReplicaStatus:
    """Read the status of a replica from its pod; a pod that says nothing is UNKNOWN."""
    containers = [*items_at(pod, "status", "initContainerStatuses"), *items_at(pod, "status", "containerStatuses")]
    state, reason, message = read_pod(pod)
    codes = [code for status in containers if (code := exit_code(status)) is not None]
    return ReplicaStatus(
        id=replica_id,
        pod=text_at(pod, "metadata", "name"),
        state=state,
        reason=reason,
        message=message,
        exit_code=max(codes, key=bool, default=None),
        node=text_at(pod, "spec", "nodeName"),
        restarts=sum(number_at(status, "restartCount") or 0 for status in containers),
        started_at=started_at(pod),
        finished_at=finished_at(pod) if state.terminal else None,
    )


def exit_code(status: Mapping[str, Any], *, before: bool = False) -> int | None:
    """Return the exit code of a container. None: it has not ended.

    Args:
        status: The container's status.
        before: Of its run before the last restart.
    """
    return number_at(status, "lastState" if before else "state", "terminated", "exitCode")


def read_pod(pod: Mapping[str, Any]) -> Verdict:
    """Read state, reason and message of a pod: container statuses first, then conditions, then the phase."""
    phase = text_at(pod, "status", "phase")
    if phase == "Succeeded":
        return JobState.SUCCEEDED, Reason.COMPLETED, "exited with code 0"
    if phase == "Failed":
        return (JobState.FAILED, *read_failure(pod))
    if phase == "Running":
        # A container that stopped for good while the pod runs on is what the user wants to hear about.
        waiting = read_waiting(pod)
        return (JobState.RUNNING, *waiting) if waiting else (JobState.RUNNING, Reason.RUNNING, "running")
    if phase in ("Pending", None) and text_at(pod, "metadata", "name"):
        return (JobState.PENDING, *read_pending(pod))
    found = (
        f"pod phase {phase!r} is not one that Kubernetes documents" if phase else "the pod has neither name nor phase"
    )
    return JobState.UNKNOWN, Reason.UNREADABLE, found


def read_failure(pod: Mapping[str, Any]) -> tuple[Reason, str]:
    """Read why a pod failed."""
    if text_at(pod, "status", "reason") in ("Evicted", "Preempting", "NodeLost", "Shutdown", "Terminated"):
        return Reason.EVICTED, text_at(pod, "status", "message") or "the pod was evicted"
    for status in [*items_at(pod, "status", "initContainerStatuses"), *items_at(pod, "status", "containerStatuses")]:
        code = exit_code(status)
        if not code:
            continue
        word = text_at(status, "state", "terminated", "reason")
        said = text_at(status, "state", "terminated", "message")
        tail = f": {said.strip()}" if said else ""
        if word == "OOMKilled":
            return (
                Reason.OUT_OF_MEMORY,
                f"killed by the kernel for using more memory than its limit (exit code {code}){tail}",
            )
        if word in ("StartError", "ContainerCannotRun"):
            return Reason.CONTAINER_REFUSED, f"cannot start (exit code {code}){tail}"
        return Reason.EXIT_CODE, f"exited with code {code}{tail}"
    return Reason.FAILED, text_at(pod, "status", "message") or "the pod failed and does not say why"


def read_waiting(pod: Mapping[str, Any]) -> tuple[Reason, str] | None:
    """Read why a container waits. None: none waits for anything worth a word."""
    for status in [*items_at(pod, "status", "initContainerStatuses"), *items_at(pod, "status", "containerStatuses")]:
        word = text_at(status, "state", "waiting", "reason")
        said = text_at(status, "state", "waiting", "message") or ""
        if word in IMAGE_WAITS:
            image = text_at(status, "image") or "unknown"
            words = ": ".join(text for text in (pull_cause(word, said), pull_words(said)) if text)
            return Reason.IMAGE_UNAVAILABLE, f"image {image!r} cannot be pulled: {words}"
        if word in REFUSED_WAITS:
            return Reason.CONTAINER_REFUSED, said or word
        if word == "CrashLoopBackOff":
            return Reason.CRASH_LOOP, said or word
    return None


def read_pending(pod: Mapping[str, Any]) -> tuple[Reason, str]:
    """Read what a pod that does not run yet waits for."""
    waiting = read_waiting(pod)
    if waiting:
        return waiting
    scheduled = [one for one in items_at(pod, "status", "conditions") if text_at(one, "type") == "PodScheduled"]
    for condition in scheduled:
        if text_at(condition, "status") == "False":
            return Reason.UNSCHEDULABLE, text_at(condition, "message") or "no node was found"
    if text_at(pod, "spec", "nodeName"):
        return Reason.STARTING, "placed on its node; the container is being made"
    scheduler = text_at(pod, "spec", "schedulerName")
    if scheduler and not scheduled:
        return Reason.WAITING_FOR_PODS, f"scheduler {scheduler!r} has not looked at the pod yet; see that it runs"
    return Reason.WAITING_FOR_PODS, "waiting to be placed on a node"


def started_at(pod: Mapping[str, Any]) -> datetime | None:
    """Return when a pod's first container ran."""
    statuses = items_at(pod, "status", "containerStatuses")
    return earliest(
        time_at(status, "state", word, "startedAt") for status in statuses for word in ("running", "terminated")
    )


def finished_at(pod: Mapping[str, Any]) -> datetime | None:
    """Return when a pod's last container ended."""
    statuses = items_at(pod, "status", "containerStatuses")
    return latest(time_at(status, "state", "terminated", "finishedAt") for status in statuses)
