"""What a Volcano queue says of a job that it has not let in: missing, closed, full, and what runs in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, ObjectRef, Observed, ref
from torchx_pulumi.schedulers.diagnosis.nodes import amount, requests_of, written_amount
from torchx_pulumi.schedulers.diagnosis.placement import wanted_specs
from torchx_pulumi.schedulers.diagnosis.pods import MAX_OBJECTS

MAX_NEIGHBOURS: Final = 5
"""Jobs of a queue that a sentence names at most."""


def queue_of(evidence: Evidence) -> str:
    """Name the run's queue."""
    for found in (evidence.head, *evidence.pod_groups):
        if name := text_at(found, "spec", "queue"):
            return name
    return "default"


def runs_in(evidence: Evidence) -> list[Observed]:
    """Return the PodGroups of other jobs that the queue has let in, the oldest first."""
    own = {(text_at(one, "metadata", "namespace"), text_at(one, "metadata", "name")) for one in evidence.pod_groups}
    own.add((text_at(evidence.head, "metadata", "namespace"), text_at(evidence.head, "metadata", "name")))
    others = [
        one
        for one in evidence.neighbours
        if (text_at(one, "metadata", "namespace"), text_at(one, "metadata", "name")) not in own
        and text_at(one, "status", "phase") in ("Running", "Inqueue", "Unknown")
        and text_at(one, "spec", "queue") in (queue_of(evidence), None)
    ]
    return sorted(others, key=lambda one: (text_at(one, "metadata", "creationTimestamp") or "", str(job_name(one))))


def job_name(pod_group: Observed) -> str:
    """Name the job of a PodGroup, with its namespace."""
    owners = (
        pod_group.get("metadata", {}).get("ownerReferences") if isinstance(pod_group.get("metadata"), Mapping) else None
    )
    owner = next((one for one in owners if isinstance(one, Mapping)), None) if isinstance(owners, list) else None
    name = text_at(owner, "name") or text_at(pod_group, "metadata", "name") or "?"
    return f"{text_at(pod_group, 'metadata', 'namespace') or 'default'}/{name}"


def what_runs(evidence: Evidence) -> str:
    """Say what runs in the queue. Empty: nothing, or it was not looked at."""
    others = [job_name(one) for one in runs_in(evidence)]
    if not others:
        return ""
    more = f" and {len(others) - MAX_NEIGHBOURS} more" if len(others) > MAX_NEIGHBOURS else ""
    return f"in it: {', '.join(others[:MAX_NEIGHBOURS])}{more}"


def diagnose_queue(evidence: Evidence) -> Iterator[Diagnosis]:
    """Judge the queue of a run that it has not let in."""
    if evidence.queues is None:
        return
    name = queue_of(evidence)
    whole = ObjectRef(kind="Queue", name=name)
    queue = next((one for one in evidence.queues if text_at(one, "metadata", "name") == name), None)
    if queue is None:
        yield missing_queue(name)
        return
    state = text_at(queue, "status", "state") or text_at(queue, "spec", "state") or "Open"
    if state in ("Closed", "Closing"):
        yield closed_queue(name, state)
        return
    over = over_quota(evidence, queue)
    running = what_runs(evidence)
    if over:
        yield Diagnosis(
            reason=Reason.OVER_QUOTA,
            summary=f"queue {name!r} has no room for it: {over}",
            detail=running,
            resolution="wait until something in the queue ends, stop it, ask for less, or use another queue",
            objects=(whole, *(ref(one, "PodGroup") for one in runs_in(evidence)))[:MAX_OBJECTS],
        )


def missing_queue(name: str, detail: str = "") -> Diagnosis:
    """Judge a queue that does not exist."""
    return Diagnosis(
        reason=Reason.QUEUE_MISSING,
        summary=f"queue {name!r} does not exist",
        detail=detail,
        resolution="correct the option queue (`kubectl get queues` lists them), or have the queue created",
        objects=(ObjectRef(kind="Queue", name=name),),
    )


def closed_queue(name: str, state: str, detail: str = "") -> Diagnosis:
    """Judge a queue that takes no jobs."""
    return Diagnosis(
        reason=Reason.QUEUE_CLOSED,
        summary=f"queue {name!r} is {state.lower()}: it takes no jobs",
        detail=detail,
        resolution="use another queue, or have it opened (`vcctl queue operate -a open -n NAME`)",
        objects=(ObjectRef(kind="Queue", name=name),),
    )


def over_quota(evidence: Evidence, queue: Observed) -> str:
    """Say which bounds of its queue a run would break. Empty: none."""
    wanted: dict[str, float] = {}
    for spec in wanted_specs(evidence):
        for resource, value in requests_of(spec).items():
            wanted[resource] = wanted.get(resource, 0.0) + value
    bound = mapping_at(queue, "spec", "capability")
    used = mapping_at(queue, "status", "allocated")
    broken = []
    for resource, value in sorted(wanted.items()):
        most, taken = amount(bound.get(resource)), amount(used.get(resource))
        if resource in bound and taken + value > most + 1e-9:
            may, has = written_amount(resource, most), written_amount(resource, taken)
            broken.append(f"it asks for {written_amount(resource, value)}, the queue may use {may} and uses {has}")
    return "; ".join(broken)
