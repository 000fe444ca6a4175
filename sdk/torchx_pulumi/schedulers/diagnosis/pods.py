"""What is wrong with the pods of a run: each by itself, then those that suffer from the same as one diagnosis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from torchx_pulumi.model.object_fields import items_at, text_at, time_at
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.containers import container_findings, refused
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, Finding, Observed, ref

PATIENCE: Final = timedelta(seconds=60)
"""Time that a controller or a scheduler may take to look at something new."""

MAX_OBJECTS: Final = 8
"""Objects that a diagnosis names at most."""

AWAY: Final[Mapping[str, tuple[Reason, str, str]]] = {
    "Evicted": (
        Reason.EVICTED, "was evicted by its node",
        "see which resource the node ran out of; ask for as much of it as the job uses",
    ),
    "EvictionByEvictionAPI": (
        Reason.EVICTED, "was evicted, as when a node is drained",
        "launch again, or set max_retries so that it is done for you",
    ),
    "TerminationByKubelet": (
        Reason.EVICTED, "was ended by its node",
        "see the node's events: it was short of a resource, or shut down; then launch again",
    ),
    "Evict": (
        Reason.PREEMPTED, "had to make room for another job",
        "launch again, give the job a higher priority class, or use a queue with a share of its own",
    ),
    "PreemptionByScheduler": (
        Reason.PREEMPTED, "had to make room for a pod of higher priority",
        "launch again, or give the job a higher priority class",
    ),
    "Preempting": (
        Reason.PREEMPTED, "had to make room for a critical pod",
        "launch again, or select other nodes",
    ),
    "DeletionByTaintManager": (
        Reason.NODE_LOST, "was deleted because its node was tainted: it does not answer, or is being taken out",
        "check the node, then launch again; max_retries does that for you",
    ),
    "DeletionByPodGC": (
        Reason.NODE_LOST, "was deleted because its node is gone",
        "launch again; max_retries does that for you",
    ),
    "NodeLost": (
        Reason.NODE_LOST, "is on a node that does not answer",
        "check the node; the pod is given up when the node stays away",
    ),
    "NodeStatusUnknown": (
        Reason.NODE_LOST, "is on a node that does not answer",
        "check the node; the pod is given up when the node stays away",
    ),
    "Shutdown": (Reason.NODE_LOST, "was ended because its node shut down", "launch again on another node"),
    "Terminated": (Reason.NODE_LOST, "was ended because its node shut down", "launch again on another node"),
    "DeadlineExceeded": (
        Reason.FAILED, "ran longer than its activeDeadlineSeconds",
        "raise activeDeadlineSeconds of the pod overlay",
    ),
}  # fmt: skip
"""Kubernetes' and Volcano's words for a pod that was taken away -> what they mean, and what to do."""


def diagnose_pods(evidence: Evidence) -> Iterator[tuple[Diagnosis, Finding]]:
    """Yield one diagnosis for each thing that pods suffer from, with the first finding of it."""
    by_pod: dict[str, list[Observed]] = defaultdict(list)
    for event in evidence.events:
        by_pod[text_at(event, "involvedObject", "name") or ""].append(event)
    groups: dict[tuple[Reason, str], list[tuple[Observed, Finding]]] = {}
    for pod in evidence.pods:
        name = text_at(pod, "metadata", "name") or ""
        for finding in find_in_pod(pod, by_pod[name], evidence.now, evidence.last_lines.get(name, "")):
            groups.setdefault((finding.reason, finding.what), []).append((pod, finding))
    for found in groups.values():
        yield _as_one(found, len(evidence.pods))


def find_in_pod(pod: Observed, events: list[Observed], now: datetime | None, log: str = "") -> Iterator[Finding]:
    """Yield what is wrong with one pod; the end of its log is for containers that failed and left no message."""
    phase = text_at(pod, "status", "phase")
    if phase == "Succeeded":
        return
    away = _taken_away(pod, phase)
    if away is not None:
        yield away
        return
    found = list(container_findings(pod, events, log))
    yield from found
    if phase == "Failed" and not found:
        said = text_at(pod, "status", "message") or text_at(pod, "status", "reason") or ""
        yield Finding(
            reason=Reason.FAILED,
            what="failed, and its containers do not say why",
            detail=said,
            resolution="read its log and its events; launch again",
        )
    if phase in ("Pending", None) and not found:
        yield from _pending(pod, events, now)


def _taken_away(pod: Observed, phase: str | None) -> Finding | None:
    words = [text_at(pod, "status", "reason")]
    details = [text_at(pod, "status", "message")]
    at = None
    for condition in items_at(pod, "status", "conditions"):
        kind, status, word = (text_at(condition, key) for key in ("type", "status", "reason"))
        target = kind == "DisruptionTarget" and status == "True"
        lost = kind == "Ready" and status in ("False", "Unknown") and word in ("Evict", "NodeStatusUnknown")
        if target or lost:
            words.append(word)
            details.append(text_at(condition, "message"))
            at = time_at(condition, "lastTransitionTime")
    if phase == "Unknown":
        words.append("NodeLost")
    word = next((word for word in words if word in AWAY), None)
    if word is None:
        return None
    reason, what, resolution = AWAY[word]
    detail = next((text for text in details if text), "")
    return Finding(reason=reason, what=what, detail=detail, resolution=resolution, at=at)


def _pending(pod: Observed, events: list[Observed], now: datetime | None) -> Iterator[Finding]:
    scheduled = [one for one in items_at(pod, "status", "conditions") if text_at(one, "type") == "PodScheduled"]
    for condition in scheduled:
        if text_at(condition, "reason") == "SchedulingGated":
            yield Finding(
                reason=Reason.SUSPENDED,
                what="is held back by a scheduling gate",
                detail=text_at(condition, "message") or "",
                resolution="wait for whoever set the gate (spec.schedulingGates), for example Kueue",
            )
            return
    if text_at(pod, "spec", "nodeName"):
        yield from _not_made(events)
    elif not scheduled and is_old(pod, now):
        scheduler = text_at(pod, "spec", "schedulerName") or "default-scheduler"
        yield Finding(
            reason=Reason.SCHEDULER_ABSENT,
            what=f"scheduler {scheduler!r} has not looked at the pod for a minute",
            detail="",
            resolution=f"see that {scheduler!r} runs in the cluster, and that its name is right "
            "(`torchx-pulumi doctor` checks it)",
        )


def _not_made(events: list[Observed]) -> Iterator[Finding]:
    """Judge a pod that has its node and no container by the events of the kubelet."""
    for event in reversed(events):
        if text_at(event, "type") == "Warning" and text_at(event, "reason") in (
            "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedMapVolume",
        ):  # fmt: skip
            yield refused(text_at(event, "message") or "", None)
            return


def is_old(found: Observed | None, now: datetime | None) -> bool:
    """Say whether an object is there for so long that somebody should have looked at it."""
    made = time_at(found, "metadata", "creationTimestamp")
    return now is not None and made is not None and now - made > PATIENCE


def _as_one(found: Sequence[tuple[Observed, Finding]], pods: int) -> tuple[Diagnosis, Finding]:
    known = [finding for _, finding in found if finding.at is not None]
    first_at = min((finding.at for finding in known if finding.at), default=None)
    pod, finding = next(((pod, one) for pod, one in found if one.at == first_at and one.at), found[0])
    node = text_at(pod, "spec", "nodeName")
    where = f"pod {text_at(pod, 'metadata', 'name') or '?'}" + (f" on node {node}" if node else "")
    more = f" ({len(found)} of {pods} replicas)" if pods > 1 else ""
    detail = finding.detail or next((one.detail for _, one in found if one.detail), "")
    objects = [ref(pod, "Pod"), *(ref(other, "Pod") for other, _ in found if other is not pod)]
    return (
        Diagnosis(
            reason=finding.reason,
            summary=f"{where}: {finding.what}{more}",
            detail=detail,
            resolution=finding.resolution,
            objects=tuple(objects[:MAX_OBJECTS]),
        ),
        finding,
    )
