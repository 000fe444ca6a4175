"""Why a job on Volcano does not run: its controller, its queue, its scheduler, its retries."""

from __future__ import annotations

from collections.abc import Iterator

from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, ObjectRef, ref
from torchx_pulumi.schedulers.diagnosis.gangs import diagnose_gang
from torchx_pulumi.schedulers.diagnosis.placement import diagnose_placement, never_fits
from torchx_pulumi.schedulers.diagnosis.pods import is_old
from torchx_pulumi.schedulers.volcano.queues import diagnose_queue, queue_of, what_runs
from torchx_pulumi.schedulers.volcano.status import ADMITTED_PHASES


def diagnose_volcano(evidence: Evidence) -> Iterator[Diagnosis]:
    """Judge everything but the pods' own troubles."""
    head, state = evidence.head, evidence.status.state
    if state is JobState.FAILED:
        yield from _retries(evidence)
    if state not in (JobState.PENDING, JobState.SUBMITTED) or head is None:
        return
    is_job = text_at(head, "kind") != "PodGroup"
    groups = list(evidence.pod_groups) if is_job else [head]
    if is_job and not text_at(head, "status", "state", "phase") and is_old(head, evidence.now):
        yield absent_controller("Volcano's job controller", ref(head, "Job"))
        return
    if is_job and not groups and not evidence.pods and is_old(head, evidence.now):
        yield absent_controller("Volcano's job controller", ref(head, "Job"), "it has made neither PodGroup nor pods")
        return
    if any(text_at(group, "status", "phase") in ADMITTED_PHASES for group in groups):
        yield from diagnose_gang(evidence)
    elif groups:
        yield from _not_admitted(evidence)


def _not_admitted(evidence: Evidence) -> Iterator[Diagnosis]:
    """Judge a gang that its queue has not let in."""
    found = list(diagnose_queue(evidence))
    yield from found
    group = next(iter(evidence.pod_groups), evidence.head)
    where = ref(group, "PodGroup")
    said = [
        text
        for event in evidence.events
        if text_at(event, "involvedObject", "kind") == "PodGroup" and (text := text_at(event, "message"))
    ]
    gang = list(diagnose_gang(evidence))
    yield from gang
    if gang:
        return
    overused = [text for text in said if "overused" in text]
    if never_fits(evidence) or (overused and not found):
        yield diagnose_placement(evidence, overused or said, [where])
        return
    if found:
        return
    queue, running = queue_of(evidence), what_runs(evidence)
    looked = evidence.queues is not None
    if looked and not said and not running and is_old(group, evidence.now):
        yield Diagnosis(
            reason=Reason.SCHEDULER_ABSENT,
            summary="Volcano's scheduler has not looked at the gang for a minute",
            detail="",
            resolution="see that volcano-scheduler runs in the cluster (`torchx-pulumi doctor` checks it)",
            objects=(where,),
        )
        return
    yield Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"waiting for queue {queue!r} to admit the gang",
        detail="\n".join(text for text in (*dict.fromkeys(said), running) if text),
        resolution="wait, or see what else the queue holds (`kubectl describe queue NAME`); priority_class goes before",
        objects=(where, ObjectRef(kind="Queue", name=queue)),
    )


def _retries(evidence: Evidence) -> Iterator[Diagnosis]:
    done, most = (number_at(evidence.head, *path) or 0 for path in (("status", "retryCount"), ("spec", "maxRetry")))
    if 0 < most <= done:
        yield Diagnosis(
            reason=Reason.RETRIES_EXHAUSTED,
            summary=f"started again {'once' if done == 1 else f'{done} times'}, of which {most} were allowed",
            detail="",
            resolution="see why it fails (below), put it right, and launch again; or raise max_retries",
            objects=(ref(evidence.head, "Job"),),
        )


def absent_controller(who: str, where: ObjectRef, detail: str = "") -> Diagnosis:
    """Judge an object that its controller does not look at."""
    return Diagnosis(
        reason=Reason.CONTROLLER_ABSENT,
        summary=f"{who} has not looked at it for a minute",
        detail=detail,
        resolution=f"see that {who} runs in the cluster and may read this namespace (`torchx-pulumi doctor` checks it)",
        objects=(where,),
    )
