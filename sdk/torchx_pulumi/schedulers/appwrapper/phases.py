"""Fields of an observed AppWrapper that tell its state, in one form for v1beta1 (MCAD) and v1beta2 (the operator)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from torchx_pulumi.model.object_fields import at, items_at, latest, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.appwrapper.objects import KUEUE_QUEUE, RETRY_LIMIT
from torchx_pulumi.schedulers.appwrapper.tasks import WrappedTask, tasks_of
from torchx_pulumi.schedulers.pods.status import UNREADABLE, Outcome

MCAD_STATES: Final[Mapping[str, Outcome]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_IN_QUEUE),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "RunningHoldCompletion": (JobState.RUNNING, Reason.RUNNING),
    "Completed": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Deleted": (JobState.FAILED, Reason.RETRIES_EXHAUSTED),
    "Failed": (JobState.FAILED, Reason.FAILED),
}
"""State and reason of each `status.state` of an AppWrapper v1beta1 (MCAD: `AppWrapperState`).

MCAD sets `Deleted`, and deletes the pods, when the AppWrapper was requeued as often as `maxNumRequeuings` allows, and
while it is being deleted."""

OPERATOR_PHASES: Final[Mapping[str, Outcome]] = {
    "Suspended": (JobState.PENDING, Reason.SUSPENDED),
    "Resuming": (JobState.PENDING, Reason.WAITING_FOR_PODS),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "Resetting": (JobState.RUNNING, Reason.RESTARTING),
    "Suspending": (JobState.RUNNING, Reason.STOPPING),
    "Succeeded": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Failed": (JobState.FAILED, Reason.FAILED),
    "Terminating": (JobState.RUNNING, Reason.STOPPING),
}
"""State and reason of each `status.phase` of an AppWrapper v1beta2."""

OPERATOR_RETRY_LIMIT: Final = 3
"""Retries of an AppWrapper v1beta2 without the annotation for them (the operator's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppWrapper:
    """One AppWrapper as observed."""

    controller: str
    """Name of its controller in messages."""
    ends_by_pods: bool
    """Its pods show the end while it says that it runs (v1beta1). False: its phase does (v1beta2)."""
    phase: str | None
    """Its own word for its state. None: its controller has not set one."""
    state: JobState
    """State before its pods are considered."""
    reason: Reason
    said: str
    """Statement of the controller about its state, in one line. Empty: there is none."""
    tasks: tuple[WrappedTask, ...]
    """The Pods and Jobs that it wraps, in rank order."""
    counts: Mapping[JobState, int]
    """Number of pods by state. Empty: the controller does not count them."""
    restarts: int
    """How often it was started again."""
    limit: int
    """How often it may be started again."""
    lost: int = 0
    """Number of its objects whose deletion ended it, whatever its limit is."""
    admitted: bool | None
    """Whether it may create its pods, if known."""
    waits: tuple[tuple[Reason, str], ...]
    """Waits by its own conditions, the most specific first."""
    changed_at: datetime | None
    """When its newest condition changed."""

    @property
    def retries_left(self) -> bool:
        """Return whether it is started again after a failure."""
        return self.restarts < self.limit


def read_app_wrapper(observed: Observed) -> AppWrapper:
    """Return the fields of an AppWrapper of either version."""
    version = (text_at(observed, "apiVersion") or "").rpartition("/")[2]
    by_operator = version == "v1beta2" or at(observed, "spec", "components") is not None
    return _read_v1beta2(observed) if by_operator else _read_v1beta1(observed)


def _read_v1beta1(observed: Observed) -> AppWrapper:
    status = mapping_at(observed, "status")
    phase, queue_state = text_at(status, "state"), text_at(status, "queuejobstate")
    last = _last_condition(status, "lastUpdateMicroTime", "lastTransitionMicroTime")
    requeuing = mapping_at(observed, "spec", "schedulingSpec", "requeuing")
    said, message = _said(queue_state, last), text_at(last, "message") or ""
    # MCAD found too few free resources in the cluster.
    short = queue_state == "Backoff" and "insufficient resources" in message.lower()
    state, reason = _outcome(observed, phase, MCAD_STATES)
    queue = [(Reason.UNSCHEDULABLE if short else Reason.WAITING_IN_QUEUE, said)] if phase == "Pending" and said else []
    if phase == "Pending" and short:
        reason = Reason.UNSCHEDULABLE
    pending_pods = [
        (Reason.UNSCHEDULABLE, f"pod {text_at(pod, 'podname') or '?'}: {text_at(condition, 'message')}")
        for pod in items_at(status, "pendingpodconditions")
        for condition in items_at(pod, "conditions")
        if text_at(condition, "message")
    ]
    return AppWrapper(
        controller="MCAD's controller",
        ends_by_pods=True,
        phase=phase,
        state=state,
        reason=reason,
        said=text_at(status, "message") or said,
        tasks=tuple(tasks_of(observed)),
        counts={
            state: count
            for state, word in (
                (JobState.PENDING, "pending"),
                (JobState.RUNNING, "running"),
                (JobState.SUCCEEDED, "Succeeded"),
                (JobState.FAILED, "failed"),
            )
            if (count := number_at(status, word) or 0) > 0
        },
        restarts=max(number_at(status, "numberOfRequeueings") or 0, 0),
        limit=max(number_at(requeuing, "maxNumRequeuings") or 0, 0),
        admitted=None if phase is None else phase != "Pending",
        waits=(*pending_pods, *queue),
        changed_at=_time_of(last, "lastUpdateMicroTime", "lastTransitionMicroTime"),
    )


def _read_v1beta2(observed: Observed) -> AppWrapper:
    status = mapping_at(observed, "status")
    phase = text_at(status, "phase")
    conditions = {text_at(condition, "type"): condition for condition in items_at(status, "conditions")}
    limit = number_at(observed, "metadata", "annotations", RETRY_LIMIT)
    quota = text_at(conditions.get("QuotaReserved"), "status")
    relevant = (
        ("QuotaReserved", "False", Reason.WAITING_IN_QUEUE),
        ("PodsReady", "False", Reason.WAITING_FOR_PODS),
        ("Unhealthy", "True", Reason.WAITING_FOR_PODS),
    )
    waits = [
        (reason, _said(None, conditions[kind]))
        for kind, word, reason in relevant
        # A condition that only repeats a phase explains nothing.
        if text_at(conditions.get(kind), "status") == word
        and text_at(conditions[kind], "reason") not in OPERATOR_PHASES
    ]
    state, reason = _outcome(observed, phase, OPERATOR_PHASES)
    if phase == "Suspended" and kueue_queue(observed) is not None:
        reason = Reason.WAITING_IN_QUEUE
    elif phase == "Suspended" and at(observed, "spec", "suspend") is not True:
        reason = Reason.WAITING_FOR_PODS
    return AppWrapper(
        controller="the AppWrapper operator",
        ends_by_pods=False,
        phase=phase,
        state=state,
        reason=reason,
        said=_said(None, conditions.get("Unhealthy", {})) if state is JobState.FAILED else "",
        tasks=tuple(tasks_of(observed)),
        counts={},
        restarts=max(number_at(status, "resettingCount") or 0, 0),
        limit=OPERATOR_RETRY_LIMIT if limit is None else max(limit, 0),
        lost=_lost(conditions.get("Unhealthy", {})) if state is JobState.FAILED else 0,
        admitted=None if phase is None else quota == "True" or phase not in ("Suspended", "Suspending"),
        waits=tuple(wait for wait in waits if wait[1]),
        changed_at=_time_of(_last_condition(status, "lastTransitionTime"), "lastTransitionTime"),
    )


def _lost(unhealthy: Observed) -> int:
    """Return how many objects the operator missed.

    >>> message = "Only found 2 deployed components, but was expecting 3"
    >>> _lost({"status": "True", "reason": "MissingComponent", "message": message})
    1
    """
    if (text_at(unhealthy, "status"), text_at(unhealthy, "reason")) != ("True", "MissingComponent"):
        return 0
    counts = re.findall(r"\b\d{1,9}\b", text_at(unhealthy, "message") or "")
    return max(int(counts[1]) - int(counts[0]), 1) if len(counts) == 2 else 1


def kueue_queue(observed: Observed | None) -> str | None:
    """Return the queue of Kueue that admits an AppWrapper, or None if Kueue does not manage it."""
    return text_at(observed, "metadata", "labels", KUEUE_QUEUE)


def _outcome(observed: Observed, phase: str | None, phases: Mapping[str, Outcome]) -> Outcome:
    if phase is None and text_at(observed, "metadata", "name"):
        return JobState.SUBMITTED, Reason.SUBMITTED
    return phases.get(phase or "", UNREADABLE)


def _last_condition(status: Observed, *times: str) -> Observed:
    """Return the condition that changed last; of several, the last in the list."""
    conditions = items_at(status, "conditions")
    newest = latest(_time_of(condition, *times) for condition in conditions)
    return next((one for one in reversed(conditions) if _time_of(one, *times) == newest), {})


def _time_of(condition: Observed, *times: str) -> datetime | None:
    return latest(time_at(condition, time) for time in times)


def _said(queue_state: str | None, condition: Observed) -> str:
    """Return a condition in one line: `Backoff: AppWrapperNotRunnable: Insufficient resources`."""
    words = [queue_state or text_at(condition, "type"), text_at(condition, "reason"), text_at(condition, "message")]
    known = [word.strip().rstrip(".") for word in words if word]
    return ": ".join(dict.fromkeys(word for word in known if word))
