"""Why an AppWrapper does not run: who stands before it, what it asks for, who holds it back."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_pulumi.model.object_fields import items_at, number_at, text_at
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, Observed, ref
from torchx_pulumi.schedulers.diagnosis.gangs import diagnose_gang
from torchx_pulumi.schedulers.diagnosis.placement import diagnose_placement
from torchx_pulumi.schedulers.diagnosis.pods import MAX_OBJECTS, is_old
from torchx_pulumi.schedulers.volcano.diagnosis import absent_controller
from torchx_pulumi.schedulers.volcano.queues import MAX_NEIGHBOURS


def diagnose_mcad(evidence: Evidence) -> Iterator[Diagnosis]:
    """Judge everything but the pods' own troubles."""
    head, status = evidence.head, evidence.status
    if head is None or status.state not in (JobState.PENDING, JobState.SUBMITTED):
        return
    if status.phase is None:
        if is_old(head, evidence.now):
            who = "the AppWrapper operator" if items_at(head, "spec", "components") else "MCAD's controller"
            yield absent_controller(who, ref(head, "AppWrapper"))
        return
    gang = list(diagnose_gang(evidence))
    yield from gang
    if status.reason is Reason.UNSCHEDULABLE and not gang:
        yield diagnose_placement(evidence, [status.message], [ref(head, "AppWrapper")])
    if text_at(head, "status", "state") == "Pending":
        yield _in_line(evidence, head)


def _in_line(evidence: Evidence, head: Observed) -> Diagnosis:
    """Say where in MCAD's line an AppWrapper stands, and who stands before it."""
    own = (text_at(head, "metadata", "namespace"), text_at(head, "metadata", "name"))
    others = [
        one for one in evidence.neighbours if _name(one) != own and not text_at(one, "metadata", "deletionTimestamp")
    ]
    line = [one for one in others if text_at(one, "status", "state") in ("Pending", None)]
    before = sorted((one for one in line if _order(one) < _order(head)), key=_order)
    running = [one for one in others if text_at(one, "status", "state") in ("Running", "RunningHoldCompletion")]
    parts = []
    if before:
        parts.append(f"before it: {_listed(before)}")
    if running:
        parts.append(f"running: {_listed(sorted(running, key=_order))}")
    where = f"number {len(before) + 1} of {len(line) + 1}" if evidence.neighbours else "its place is not known"
    return Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"waiting in MCAD's line: {where}",
        detail="\n".join([*parts, evidence.status.message]),
        resolution="wait; MCAD takes one after the other, and one that cannot be placed holds up the rest: delete that "
        "one, or give this job a higher priority",
        objects=tuple(ref(one, "AppWrapper") for one in (head, *before, *running))[:MAX_OBJECTS],
    )


def _name(found: Observed) -> tuple[str | None, str | None]:
    return text_at(found, "metadata", "namespace"), text_at(found, "metadata", "name")


def _order(found: Observed) -> tuple[int, str, str]:
    priority = number_at(found, "status", "systempriority") or number_at(found, "spec", "priority") or 0
    return -priority, text_at(found, "metadata", "creationTimestamp") or "", text_at(found, "metadata", "name") or ""


def _listed(found: list[Observed]) -> str:
    shown = [
        f"{text_at(one, 'metadata', 'namespace') or 'default'}/{text_at(one, 'metadata', 'name')}" for one in found
    ]
    more = f" and {len(shown) - MAX_NEIGHBOURS} more" if len(shown) > MAX_NEIGHBOURS else ""
    return ", ".join(shown[:MAX_NEIGHBOURS]) + more
