"""The problems of the pods of a run, each once for all pods that have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import items_at, text_at, time_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import LOST_POD_ADVICE, MAX_OBJECTS, STUCK, Diagnosis, JobState, Reason, ReplicaStatus
from torchx_pulumi.schedulers.diagnosis.claims import find_unbound
from torchx_pulumi.schedulers.diagnosis.containers import find_container_problem, refused_container, termination_problem
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, PodProblem, ref
from torchx_pulumi.schedulers.pods.containers import (
    CRASH_LOOP,
    IMAGE_WAITS,
    REFUSED_WAITS,
    START_ERRORS,
    read_containers,
)

MAX_MESSAGE: Final = 500
"""Characters of a message that is made of a summary and its details."""

BEING_DELETED: Final = "being deleted"
"""Message of a replica whose pod has a deletionTimestamp. On a lost node it stays so."""

MOUNT_EVENTS: Final = frozenset({"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedMapVolume"})
"""Reasons of the kubelet's events about a pod whose containers cannot be created."""

AWAY: Final[Mapping[str, tuple[Reason, str, str]]] = {
    "Evicted": (
        Reason.EVICTED, "was evicted by its node",
        "see which resource the node ran out of; ask for as much of it as the job uses",
    ),
    "EvictionByEvictionAPI": (
        Reason.EVICTED, "was evicted, as when a node is drained",
        "{lost}",
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
        Reason.NODE_LOST, "was deleted because its node was tainted: it does not answer, or is being removed",
        "check the node, then {lost}",
    ),
    "DeletionByPodGC": (
        Reason.NODE_LOST, "was deleted because its node is gone",
        "{lost}",
    ),
    "NodeLost": (
        Reason.NODE_LOST, "is on a node that does not answer",
        "check the node; Kubernetes deletes the pod if the node does not return",
    ),
    "NodeStatusUnknown": (
        Reason.NODE_LOST, "is on a node that does not answer",
        "check the node; Kubernetes deletes the pod if the node does not return",
    ),
    "Shutdown": (Reason.NODE_LOST, "was ended because its node shut down", "launch again on another node"),
    "Terminated": (Reason.NODE_LOST, "was ended because its node shut down", "launch again on another node"),
    "DeadlineExceeded": (
        Reason.FAILED, "ran longer than its activeDeadlineSeconds",
        "raise activeDeadlineSeconds of the pod overlay",
    ),
}  # fmt: skip
"""Reason that Kubernetes or Volcano gives for a removed pod -> reason, problem, and what to do.

`{lost}` stands for the advice about a pod that was deleted. Each other pod stays, and its phase is Failed.
"""

EVICTIONS: Final = frozenset({"Evicted", "Preempting", "NodeLost", "Shutdown", "Terminated"})
"""Reasons in the status of a failed pod for which its replica counts as evicted, whatever its containers report."""

HEALTHY: Final = frozenset({"Running", "Completed"})
"""Words of kubectl's column STATUS for pods without a problem."""

NOT_READ: Final = "kubectl shows it as {}; of so many pods not each is read as a whole"
"""Message of a replica whose pod was read in short."""

PLACED: Final = "placed on its node; the container is being created"
UNPLACED: Final = "waiting to be placed on a node"

REPLICA_REASONS: Final[Mapping[Reason, Reason]] = {
    Reason.INIT_FAILED: Reason.EXIT_CODE,
    Reason.SIDECAR_FAILED: Reason.EXIT_CODE,
}
"""Reason of a problem -> reason of the replica, if stack outputs have a more general one."""


def diagnose_pods(evidence: Evidence) -> Iterator[tuple[Diagnosis, PodProblem]]:
    """Yield one diagnosis for each problem that pods have, with its first occurrence."""
    by_pod: dict[str, list[Observed]] = defaultdict(list)
    for event in evidence.events:
        by_pod[text_at(event, "involvedObject", "name") or ""].append(event)
    groups: dict[tuple[Reason, str], list[tuple[Observed, PodProblem]]] = {}
    for pod in evidence.pods or ():
        name = text_at(pod, "metadata", "name") or ""
        for problem in _find_problems(pod, by_pod[name], evidence, evidence.last_lines.get(name, "")):
            groups.setdefault((problem.reason, problem.what), []).append((pod, problem))
    # Whether pods failed, or wait, that were not read as a whole and may have the problem of others as well.
    read = {text_at(pod, "metadata", "name") for pod in evidence.pods or ()}
    short = [row for name, row in (evidence.rows or {}).items() if name not in read and row.status not in HEALTHY]
    unread = {row.phase == "Failed" for row in short}
    for found in groups.values():
        least = "at least " if any((text_at(pod, "status", "phase") == "Failed") in unread for pod, _ in found) else ""
        yield _merge(found, evidence.pod_count, least)


def explain_row(row: PodRow, state: JobState) -> tuple[Reason, str]:
    """Return reason and message of a replica in a state whose pod was read in short."""
    word = row.status.removeprefix("Init:")
    if state is JobState.RUNNING:
        return (Reason.CRASH_LOOP, NOT_READ.format(word)) if word == CRASH_LOOP else (Reason.RUNNING, "running")
    if state is JobState.SUCCEEDED:
        return Reason.COMPLETED, "exited with code 0"
    if word in IMAGE_WAITS:
        return Reason.IMAGE_UNAVAILABLE, NOT_READ.format(word)
    if word in REFUSED_WAITS or word in START_ERRORS:
        return Reason.CONTAINER_REFUSED, NOT_READ.format(word)
    if state is JobState.FAILED:
        if word in AWAY:
            return AWAY[word][0], AWAY[word][1]
        reason = Reason.OUT_OF_MEMORY if word == "OOMKilled" else Reason.EXIT_CODE if word == "Error" else Reason.FAILED
        return reason, NOT_READ.format(word)
    if state is not JobState.PENDING:
        return Reason.UNREADABLE, NOT_READ.format(word)
    return (Reason.STARTING, PLACED) if row.node else (Reason.WAITING_FOR_PODS, UNPLACED)


def explain_pod(pod: Observed, state: JobState) -> tuple[Reason, str]:
    """Return reason and message of a replica in a state by its pod."""
    if state is JobState.FAILED:
        # Its own reason comes first, then the first exit code: a condition may be a consequence.
        problem, reason = next(_find_problems(pod)), Reason.FAILED
        ends = ((one, one.ended) for one in read_containers(pod) if one.ended and one.ended.exit_code)
        if text_at(pod, "status", "reason") in EVICTIONS:
            reason = Reason.EVICTED
        elif failed := next(ends, None):
            problem = termination_problem(*failed)
            reason = REPLICA_REASONS.get(problem.reason, problem.reason)
        return reason, in_one_line(problem.what, problem.detail)
    problems = [find_container_problem(one, ()) for one in read_containers(pod) if one.waiting]
    stuck = next((problem for problem in problems if problem is not None and problem.reason in STUCK), None)
    if stuck is not None and state in (JobState.RUNNING, JobState.PENDING):
        return stuck.reason, in_one_line(stuck.what, stuck.detail)
    if state is JobState.PENDING:
        return _explain_pending(pod)
    if state is JobState.RUNNING:
        return Reason.RUNNING, "running"
    if state is JobState.SUCCEEDED:
        return Reason.COMPLETED, "exited with code 0"
    phase = text_at(pod, "status", "phase")
    unknown = f"pod phase {phase!r} is not one that Kubernetes documents"
    return Reason.UNREADABLE, unknown if phase else "the pod has neither name nor phase"


def explain_replicas(replicas: Sequence[ReplicaStatus], of: Sequence[ReplicaStatus]) -> str:
    """Return the message of the first of some replicas, its pod and node, and how many of all replicas these are."""
    first = replicas[0]
    place = f"pod {first.pod}" if first.pod else f"replica {first.id}"
    return _cause_and_place(first.message, place, first.node, len(replicas), len(of))


def in_one_line(summary: str, detail: str) -> str:
    """Return summary and detail as one line of at most 500 characters."""
    detail = " / ".join(line.strip() for line in detail.splitlines() if line.strip())
    text = f"{summary}: {detail}" if detail and detail not in summary else summary
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."


def _find_problems(
    pod: Observed, events: Sequence[Observed] = (), evidence: Evidence | None = None, log: str = ""
) -> Iterator[PodProblem]:
    phase = text_at(pod, "status", "phase")
    if phase == "Succeeded":
        return
    removed = _removal(pod, phase, LOST_POD_ADVICE if evidence is None else evidence.lost_pod_advice)
    if removed is not None:
        yield removed
        return
    containers = [find_container_problem(one, events, log) for one in read_containers(pod)]
    found = [problem for problem in containers if problem is not None]
    yield from found
    if phase == "Failed" and not found:
        yield PodProblem(
            reason=Reason.FAILED,
            what="failed, and its containers do not say why",
            detail=text_at(pod, "status", "message") or text_at(pod, "status", "reason") or "",
            resolution="read its log and its events; launch again",
        )
    if phase in ("Pending", None) and not found and evidence is not None:
        yield from _pending_problems(pod, events, evidence)


def removed_by(pod: Observed) -> Reason | None:
    """Return why a pod was taken away, or None if it was not, or if nothing says why."""
    removed = _removal(pod, text_at(pod, "status", "phase"))
    return None if removed is None else removed.reason


def _removal(pod: Observed, phase: str | None, lost_pod_advice: str = "") -> PodProblem | None:
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
    advice = resolution.format(lost=lost_pod_advice)
    return PodProblem(reason=reason, what=what, detail=detail, resolution=advice, at=at)


def _scheduled_conditions(pod: Observed) -> list[Observed]:
    return [one for one in items_at(pod, "status", "conditions") if text_at(one, "type") == "PodScheduled"]


def _pending_problems(pod: Observed, events: Iterable[Observed], evidence: Evidence) -> Iterator[PodProblem]:
    scheduled = _scheduled_conditions(pod)
    for condition in scheduled:
        if text_at(condition, "reason") == "SchedulingGated":
            yield PodProblem(
                reason=Reason.SUSPENDED,
                what="is held back by a scheduling gate",
                detail=text_at(condition, "message") or "",
                resolution="wait for the owner of the gate (spec.schedulingGates), for example Kueue",
            )
            return
    if text_at(pod, "spec", "nodeName"):
        failed = [
            text_at(event, "message") or ""
            for event in events
            if text_at(event, "type") == "Warning" and text_at(event, "reason") in MOUNT_EVENTS
        ]
        if failed:
            yield refused_container(failed[-1])
    elif not scheduled and (unbound := find_unbound([pod], evidence)):
        # A scheduler that has chosen a node waits for the volume, and says so after 10 minutes.
        for obstacle, event in unbound:
            yield PodProblem(
                reason=Reason.NEVER_SCHEDULABLE if obstacle.lasts else Reason.UNSCHEDULABLE,
                what=f"has no node: {obstacle.words}",
                detail=text_at(event, "message") or "",
                resolution=obstacle.advice,
            )
    elif not scheduled and evidence.is_old(pod):
        scheduler = text_at(pod, "spec", "schedulerName") or "default-scheduler"
        yield PodProblem(
            reason=Reason.SCHEDULER_ABSENT,
            what=f"scheduler {scheduler!r} has not looked at the pod for a minute",
            detail="",
            resolution=f"check that {scheduler!r} runs in the cluster, and that its name is right "
            "(`torchx-pulumi doctor` checks it)",
        )


def _explain_pending(pod: Observed) -> tuple[Reason, str]:
    scheduled = _scheduled_conditions(pod)
    for condition in scheduled:
        if text_at(condition, "status") == "False":
            return Reason.UNSCHEDULABLE, text_at(condition, "message") or "no node was found"
    if text_at(pod, "spec", "nodeName"):
        return Reason.STARTING, PLACED
    scheduler = text_at(pod, "spec", "schedulerName")
    if scheduler and not scheduled:
        return Reason.WAITING_FOR_PODS, f"scheduler {scheduler!r} has not looked at the pod yet; check that it runs"
    return Reason.WAITING_FOR_PODS, UNPLACED


def _cause_and_place(cause: str, place: str, node: str | None, count: int, total: int, least: str = "") -> str:
    """Return a cause first, as a narrow column shows the beginning only; then how many replicas have it, and one place.

    >>> _cause_and_place("exited with code 3", "pod train-0", "n1", 2, 4)
    'exited with code 3 (2 of 4 replicas; pod train-0 on node n1)'
    """
    share = f"{least}{count} of {total} replicas; " if total > 1 else ""
    return f"{cause} ({share}{place}{f' on node {node}' if node else ''})"


def _merge(found: Sequence[tuple[Observed, PodProblem]], pods: int, least: str) -> tuple[Diagnosis, PodProblem]:
    """Return one diagnosis for all pods with the same problem; it names the pod that had it first.

    `pods` is the number of pods of the run, and `least` precedes the number of those with the problem.
    """
    pod, problem = min(found, key=lambda one: (one[1].at is None, one[1].at.timestamp() if one[1].at else 0))
    name, node = text_at(pod, "metadata", "name") or "?", text_at(pod, "spec", "nodeName")
    objects = [ref(pod, "Pod"), *(ref(other, "Pod") for other, _ in found if other is not pod)]
    diagnosis = Diagnosis(
        reason=problem.reason,
        summary=_cause_and_place(problem.what, f"pod {name}", node, len(found), pods, least),
        detail=problem.detail or next((one.detail for _, one in found if one.detail), ""),
        resolution=problem.resolution,
        objects=tuple(objects[:MAX_OBJECTS]),
    )
    return diagnosis, problem
