"""What a gang waits for: how many of its replicas have a place, of how many that it needs at once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, ObjectRef, ref
from torchx_pulumi.schedulers.diagnosis.placement import diagnose_placement, unplaced
from torchx_pulumi.schedulers.volcano.status import unschedulable


def diagnose_gang(evidence: Evidence) -> Iterator[Diagnosis]:
    """Judge pods without nodes, and the gang that they hold up."""
    texts, objects = unplaced(evidence)
    gangs = [*evidence.pod_groups]
    if text_at(evidence.head, "kind") == "PodGroup":
        gangs.append(evidence.head or {})
    told = [(text, group) for group in gangs if (text := unschedulable(group))]
    if not objects and not told:
        return
    said = sorted((*texts, *(text for text, _ in told)), key=vagueness)
    where = [*(ref(group, "PodGroup") for _, group in told), *objects]
    if said:
        yield diagnose_placement(evidence, said, where)
    needed = max((number_at(group, "spec", "minMember") or 0 for group in gangs), default=0)
    pods = len(evidence.pods)
    placed = sum(bool(text_at(pod, "spec", "nodeName")) for pod in evidence.pods)
    could = max(placed, _schedulable(said))
    where = where or objects
    if needed > 1 and could < needed and could > 0:
        yield _waits(evidence, f"room for {could} of the {needed} replicas that it needs at once", where)
    elif 0 < pods < needed:
        yield _waits(evidence, f"{pods} of the {needed} replicas that it needs at once are there", where)


def _waits(evidence: Evidence, summary: str, where: list[ObjectRef]) -> Diagnosis:
    return Diagnosis(
        reason=Reason.GANG_WAITING,
        summary=f"the gang waits as a whole: {summary}",
        detail="",
        resolution="wait for the missing places; or set min_replicas, so that it starts with fewer",
        objects=tuple(where[:1]) or (ref(evidence.head),),
    )


def _schedulable(said: list[str]) -> int:
    """Return how many pods Volcano could place, as it says it.

    >>> _schedulable(["2/3 tasks in gang unschedulable: ...; Pending: 2 Unschedulable, 1 Schedulable. Origin ..."])
    1
    """
    found = [int(number) for text in said for number in re.findall(r"\b(\d{1,9}) Schedulable\b", text)]
    return max(found, default=0)


def vagueness(text: str) -> int:
    """Say how little a text tells; who refuses the whole gang hides why its first pod was refused."""
    if "rejection in" in text:
        return 2
    return 1 if "sibling pods" in text else 0
