"""What a Volcano queue says about a job that it has not admitted: missing, closed, full, and what runs in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torchx_pulumi.model.object_fields import items_at, mapping_at, text_at
from torchx_pulumi.model.status import Diagnosis, ObjectRef, Reason
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.diagnosis.evidence import MAX_NEIGHBOURS, MAX_OBJECTS, Evidence, Observed, key_of, ref
from torchx_pulumi.schedulers.diagnosis.nodes import amount, requests_of, written_amount
from torchx_pulumi.schedulers.diagnosis.placement import Request


def queue_of(evidence: Evidence) -> str:
    """Return the name of the run's queue."""
    names = (text_at(found, "spec", "queue") for found in (evidence.job_object, *evidence.pod_groups))
    return next((name for name in names if name), "default")


def what_runs(evidence: Evidence) -> str:
    """Return what else runs in the queue, the oldest first. Empty: nothing, or the queue was not read."""
    names = [_job_name(group) for group in _running(evidence)]
    return f"in it: {listed(names, MAX_NEIGHBOURS)}" if names else ""


def _running(evidence: Evidence) -> list[Observed]:
    """Return the PodGroups of other jobs that the queue has admitted, the oldest first."""
    own = {key_of(one) for one in (evidence.job_object, *evidence.pod_groups)}
    others = [
        one
        for one in evidence.neighbours
        if key_of(one) not in own
        and text_at(one, "status", "phase") in ("Running", "Inqueue", "Unknown")
        and text_at(one, "spec", "queue") in (queue_of(evidence), None)
    ]
    return sorted(others, key=lambda one: (text_at(one, "metadata", "creationTimestamp") or "", _job_name(one)))


def _job_name(pod_group: Observed) -> str:
    """Return namespace and name of the job that owns a PodGroup."""
    owner = next(iter(items_at(pod_group, "metadata", "ownerReferences")), None)
    namespace, name = key_of(pod_group)
    return f"{namespace or 'default'}/{text_at(owner, 'name') or name or '?'}"


def diagnose_queue(evidence: Evidence, request: Request) -> Iterator[Diagnosis]:
    """Yield why the queue has not admitted a run. Nothing: the queue was not read, or it has room."""
    if evidence.queues is None:
        return
    name = queue_of(evidence)
    queue = next((one for one in evidence.queues if text_at(one, "metadata", "name") == name), None)
    if queue is None:
        yield missing_queue(name)
        return
    state = text_at(queue, "status", "state") or text_at(queue, "spec", "state")
    if state in ("Closed", "Closing"):
        yield closed_queue(name, state)
    elif over := _over_capability(request, queue):
        groups = (ref(one, "PodGroup") for one in _running(evidence))
        yield Diagnosis(
            reason=Reason.OVER_QUOTA,
            summary=f"queue {name!r} has no room for it: {over}",
            detail=what_runs(evidence),
            resolution="wait until something in the queue ends, stop it, ask for less, or use another queue",
            objects=(ObjectRef(kind="Queue", name=name), *groups)[:MAX_OBJECTS],
        )


def missing_queue(name: str, detail: str = "") -> Diagnosis:
    """Return the diagnosis of a queue that does not exist."""
    return Diagnosis(
        reason=Reason.QUEUE_MISSING,
        summary=f"queue {name!r} does not exist",
        detail=detail,
        resolution="correct the option queue (`kubectl get queues` lists them), or have the queue created",
        objects=(ObjectRef(kind="Queue", name=name),),
    )


def closed_queue(name: str, state: str, detail: str = "") -> Diagnosis:
    """Return the diagnosis of a queue that accepts no jobs."""
    return Diagnosis(
        reason=Reason.QUEUE_CLOSED,
        summary=f"queue {name!r} is {state.lower()}: it takes no jobs",
        detail=detail,
        resolution="use another queue, or have it opened (`vcctl queue operate -a open -n NAME`)",
        objects=(ObjectRef(kind="Queue", name=name),),
    )


def _over_capability(request: Request, queue: Observed) -> str:
    """Return which bounds of its queue a run would exceed. Empty: none."""
    wanted: Counter[str] = Counter()
    for spec in request.specs:
        wanted.update(requests_of(spec))
    bound, used = mapping_at(queue, "spec", "capability"), mapping_at(queue, "status", "allocated")
    exceeded = []
    for resource, value in sorted(wanted.items()):
        most, taken = amount(bound.get(resource)), amount(used.get(resource))
        if resource in bound and taken + value > most + 1e-9:
            may, has = written_amount(resource, most), written_amount(resource, taken)
            exceeded.append(f"it asks for {written_amount(resource, value)}, the queue may use {may} and uses {has}")
    return "; ".join(exceeded)
