"""The order of causes, and the diagnosis of a status for which no other cause was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Final

from torchx_pulumi.model.status import Diagnosis, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import MAX_OBJECTS, Evidence, PodProblem, ref

MAX_DIAGNOSES: Final = 8
"""Diagnoses of one run; later ones are consequences of the first."""

LED_BY_STATUS: Final[Mapping[Reason, str]] = {
    Reason.RESTARTING: "wait: it is started again; see why it failed, below or in the log of the previous attempt",
    Reason.STOPPING: "wait until its pods have ended",
    Reason.RETRIES_EXHAUSTED: "see why it fails, put it right, and launch again; or raise max_retries",
    Reason.SUSPENDED: "resume it (`torchx-pulumi resume HANDLE`; suspend: false), or delete it",
    Reason.CANCELLED: "launch again; or resume it, where its object is still there (`torchx-pulumi resume HANDLE`)",
    Reason.NOT_FOUND: "see whether somebody deleted it, and that cluster and namespace are right; launch again",
    Reason.UNREADABLE: "see the object with kubectl; a newer release of torchx-pulumi may know what it says",
}
"""Reasons of a status that come before those of its pods, and what to do."""

FALLBACK: Final[Mapping[Reason, str]] = {
    Reason.UNSCHEDULABLE: "wait until there is room, stop what runs there, or ask for less",
    Reason.WAITING_IN_QUEUE: "wait, or see what else the queue holds",
    Reason.IMAGE_UNAVAILABLE: "check the image's name and that nodes can pull it",
    Reason.CONTAINER_REFUSED: "correct what the message names in the job, and launch again",
    Reason.EXIT_CODE: "read the log: the last lines say what the program complained about",
    Reason.OUT_OF_MEMORY: "ask for more memory (memMB of the role's resource), or use less",
    Reason.EVICTED: "launch again, or set max_retries so that it is done for you",
    Reason.CRASH_LOOP: "read the log of the previous attempt",
    Reason.FAILED: "read its log and its events; launch again",
    Reason.POD_GONE: "see the log where it is collected; launch again",
}
"""Reasons of a status for which no cause was found, and what to do."""

ORDER: Final = (
    Reason.RETRIES_EXHAUSTED,
    Reason.RESTARTING,
    Reason.STOPPING,
    Reason.CANCELLED,
    Reason.NOT_FOUND,
    Reason.UNREADABLE,
    Reason.REFUSED,
    Reason.SUSPENDED,
    Reason.OUT_OF_MEMORY,
    Reason.INIT_FAILED,
    Reason.PREEMPTED,
    Reason.EVICTED,
    Reason.NODE_LOST,
    Reason.EXIT_CODE,
    Reason.SIDECAR_FAILED,
    Reason.CONTAINER_REFUSED,
    Reason.IMAGE_UNAVAILABLE,
    Reason.CRASH_LOOP,
    Reason.FAILED,
    Reason.QUEUE_MISSING,
    Reason.QUEUE_CLOSED,
    Reason.NEVER_SCHEDULABLE,
    Reason.OVER_QUOTA,
    Reason.UNSCHEDULABLE,
    Reason.GANG_WAITING,
    Reason.CONTROLLER_ABSENT,
    Reason.SCHEDULER_ABSENT,
    Reason.WAITING_IN_QUEUE,
    Reason.POD_GONE,
)
"""Causes, the most specific first. Those of pods that ended are ordered by time among themselves."""

ENDED: Final = frozenset(
    {
        Reason.OUT_OF_MEMORY, Reason.INIT_FAILED, Reason.PREEMPTED, Reason.EVICTED, Reason.NODE_LOST,
        Reason.EXIT_CODE, Reason.SIDECAR_FAILED, Reason.FAILED,
    }
)  # fmt: skip
"""Causes that end a pod."""

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
    place = ORDER.index(diagnosis.reason) if diagnosis.reason in ORDER else len(ORDER)
    if diagnosis.reason not in ENDED:
        return place, 0, LATE, 0
    at = problem.at if problem is not None and problem.at is not None else LATE
    return ORDER.index(Reason.OUT_OF_MEMORY), int(problem is not None and problem.follows), at, place


def diagnose_status(evidence: Evidence, *, found: bool) -> Diagnosis | None:
    """Return the diagnosis of the status itself. None: it needs none, or other causes were found that say more."""
    status = evidence.status
    advice = LED_BY_STATUS.get(status.reason) or (None if found else FALLBACK.get(status.reason))
    if advice is None:
        return None
    summary, _, detail = status.message.partition("\n")
    objects = () if evidence.job_object is None else (ref(evidence.job_object),)
    return Diagnosis(reason=status.reason, summary=summary, detail=detail, resolution=advice, objects=objects)
