"""The order of causes, and the diagnosis of a status for which no other cause was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timezone
from typing import Final

from torchx_pulumi.model.status import MAX_DIAGNOSES, MAX_OBJECTS, Diagnosis, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, PodProblem, ref


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason as the cause of a state."""

    advice: str | None = None
    """Advice for a status with the reason and no better cause. None: the status is never a diagnosis of it."""
    _: KW_ONLY
    leads: bool = False
    """A status with it comes before the causes of its pods, and says what to do in any case."""
    ends: bool = False
    """It ends a pod. Such causes are ordered by time among themselves."""


CAUSES: Final[Mapping[Reason, Cause]] = {
    Reason.RETRIES_EXHAUSTED: Cause(
        "see why it fails, put it right, and launch again; or raise max_retries", leads=True
    ),
    Reason.RESTARTING: Cause(
        "wait: it is started again; see why it failed, below or in the log of the previous attempt", leads=True
    ),
    Reason.STOPPING: Cause("wait until its pods have ended", leads=True),
    Reason.CANCELLED: Cause(
        "launch again; or resume it, where its object is still there (`torchx-pulumi resume HANDLE`)", leads=True
    ),
    Reason.NOT_FOUND: Cause(
        "see whether somebody deleted it, and that cluster and namespace are right; launch again", leads=True
    ),
    Reason.NOT_OBSERVED: Cause("see whether its cluster can be reached (`torchx-pulumi doctor`)", leads=True),
    Reason.UNREADABLE: Cause(
        "see the object with kubectl; a newer release of torchx-pulumi may know what it says", leads=True
    ),
    Reason.REFUSED: Cause(),
    Reason.SUSPENDED: Cause("resume it (`torchx-pulumi resume HANDLE`; suspend: false), or delete it", leads=True),
    Reason.POD_GONE: Cause("see the log where it is collected; {lost}"),
    Reason.OUT_OF_MEMORY: Cause("ask for more memory (memMB of the role's resource), or use less", ends=True),
    Reason.INIT_FAILED: Cause(ends=True),
    Reason.PREEMPTED: Cause(ends=True),
    Reason.EVICTED: Cause("{lost}", ends=True),
    Reason.NODE_LOST: Cause(ends=True),
    Reason.EXIT_CODE: Cause("read the log: the last lines say what the program complained about", ends=True),
    Reason.SIDECAR_FAILED: Cause(ends=True),
    Reason.CONTAINER_REFUSED: Cause("correct what the message names in the job, and launch again"),
    Reason.IMAGE_UNAVAILABLE: Cause("check the image's name and that nodes can pull it"),
    Reason.CRASH_LOOP: Cause("read the log of the previous attempt"),
    Reason.FAILED: Cause("read its log and its events; launch again", ends=True),
    Reason.QUEUE_MISSING: Cause(),
    Reason.QUEUE_CLOSED: Cause(),
    Reason.NEVER_SCHEDULABLE: Cause(),
    Reason.OVER_QUOTA: Cause(),
    Reason.UNSCHEDULABLE: Cause("wait until there is room, stop what runs there, or ask for less"),
    Reason.GANG_WAITING: Cause(),
    Reason.CONTROLLER_ABSENT: Cause(),
    Reason.SCHEDULER_ABSENT: Cause(),
    Reason.WAITING_IN_QUEUE: Cause("wait, or see what else the queue holds"),
}
"""Causes, the most specific first. `{lost}` stands for the advice about a pod that was deleted."""

_ORDER: Final = tuple(CAUSES)

LATE: Final = datetime.max.replace(tzinfo=timezone.utc)


def rank(found: Iterable[tuple[Diagnosis, PodProblem | None]]) -> tuple[Diagnosis, ...]:
    """Return causes in order: those that ended pods by time, consequences last, one of each kind of waiting."""
    ordered = sorted(found, key=_key)
    kept: list[Diagnosis] = []
    for diagnosis, problem in ordered:
        same = next((one for one in kept if problem is None and one.reason is diagnosis.reason), None)
        if same is None:
            kept.append(diagnosis)
            continue
        objects = tuple(dict.fromkeys((*same.objects, *diagnosis.objects)))[:MAX_OBJECTS]
        kept[kept.index(same)] = replace(same, objects=objects)
    return tuple(kept[:MAX_DIAGNOSES])


def _key(found: tuple[Diagnosis, PodProblem | None]) -> tuple[int, int, datetime, int]:
    diagnosis, problem = found
    place = _ORDER.index(diagnosis.reason) if diagnosis.reason in CAUSES else len(_ORDER)
    if not CAUSES.get(diagnosis.reason, Cause()).ends:
        return place, 0, LATE, 0
    at = problem.at if problem is not None and problem.at is not None else LATE
    return _ORDER.index(Reason.OUT_OF_MEMORY), int(problem is not None and problem.follows), at, place


def diagnose_status(evidence: Evidence, *, found: bool = False) -> Diagnosis | None:
    """Return the diagnosis of the status itself, or None if it needs none or other causes say more.

    `found` says whether there are other causes.
    """
    status = evidence.status
    cause = CAUSES.get(status.reason, Cause())
    if cause.advice is None or (found and not cause.leads):
        return None
    summary, _, detail = status.message.partition("\n")
    objects = () if evidence.job_object is None else (ref(evidence.job_object),)
    advice = cause.advice.replace("{lost}", evidence.lost_pod_advice)
    return Diagnosis(reason=status.reason, summary=summary, detail=detail, resolution=advice, objects=objects)
