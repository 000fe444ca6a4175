"""What an AppWrapper says of itself, in the same words for MCAD's (v1beta1) and the operator's (v1beta2).

Its pods know better how a run ended; what the two say together is in `mcad`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from torchx_pulumi.model.object_fields import at, items_at, latest, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.appwrapper.objects import KUEUE_QUEUE, RETRY_LIMIT
from torchx_pulumi.schedulers.pods.status import Verdict

MCAD_STATES: Final[Mapping[str, tuple[JobState, Reason]]] = {
    "Pending": (JobState.PENDING, Reason.WAITING_IN_QUEUE),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "RunningHoldCompletion": (JobState.RUNNING, Reason.RUNNING),
    "Completed": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Deleted": (JobState.FAILED, Reason.FAILED),
    "Failed": (JobState.FAILED, Reason.FAILED),
}
"""What the state of an AppWrapper v1beta1 means in TorchX's words.

`Deleted` is CANCELLED only while the object is being deleted: MCAD also deletes the pods of, and calls so, an
AppWrapper that was requeued as often as `maxNumRequeuings` allows."""

OPERATOR_PHASES: Final[Mapping[str, tuple[JobState, Reason]]] = {
    "Suspended": (JobState.PENDING, Reason.SUSPENDED),
    "Resuming": (JobState.PENDING, Reason.WAITING_FOR_PODS),
    "Running": (JobState.RUNNING, Reason.RUNNING),
    "Resetting": (JobState.RUNNING, Reason.RESTARTING),
    "Suspending": (JobState.RUNNING, Reason.STOPPING),
    "Succeeded": (JobState.SUCCEEDED, Reason.COMPLETED),
    "Failed": (JobState.FAILED, Reason.FAILED),
    "Terminating": (JobState.RUNNING, Reason.STOPPING),
}
"""What the phase of an AppWrapper v1beta2 means in TorchX's words."""

OPERATOR_RETRY_LIMIT: Final = 3
"""Retries of an AppWrapper v1beta2 whose annotations do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppWrapper:
    """One AppWrapper as observed."""

    phase: str | None
    """Its own word for its state."""
    verdict: Verdict
    """State, reason and message, before its pods are asked."""
    templates: tuple[Mapping[str, Any], ...]
    """The pods that it wraps, in rank order."""
    counts: Mapping[JobState, int]
    """Pods by state, as far as it counts them."""
    restarts: int
    """How often it was started again."""
    limit: int
    """How often it may be started again."""
    admitted: bool | None
    """It may have its pods. None: nobody said."""
    waits: tuple[tuple[Reason, str], ...]
    """What it says it waits for, the most telling first."""
    changed_at: datetime | None
    """When it last changed its mind."""

    @property
    def retries_left(self) -> bool:
        """Say whether a failure is not the end."""
        return self.restarts < self.limit


def read_app_wrapper(observed: Mapping[str, Any]) -> AppWrapper:
    """Read an AppWrapper of either version."""
    version = (text_at(observed, "apiVersion") or "").rpartition("/")[2]
    by_operator = version == "v1beta2" or at(observed, "spec", "components") is not None
    return _read_operators(observed) if by_operator else _read_mcads(observed)


def _read_mcads(observed: Mapping[str, Any]) -> AppWrapper:
    status = mapping_at(observed, "status")
    phase, queue_state = text_at(status, "state"), text_at(status, "queuejobstate")
    last = _last_condition(status, "lastUpdateMicroTime", "lastTransitionMicroTime")
    requeuing = mapping_at(observed, "spec", "schedulingSpec", "requeuing")
    items = items_at(observed, "spec", "resources", "GenericItems")
    said, short = _said(queue_state, last), _is_short(queue_state, last)
    queue = [(Reason.UNSCHEDULABLE if short else Reason.WAITING_IN_QUEUE, said)] if phase == "Pending" and said else []
    pending_pods = [
        (Reason.UNSCHEDULABLE, f"pod {text_at(pod, 'podname') or '?'}: {text_at(condition, 'message')}")
        for pod in items_at(status, "pendingpodconditions")
        for condition in items_at(pod, "conditions")
        if text_at(condition, "message")
    ]
    return AppWrapper(
        phase=phase,
        verdict=_mcads_verdict(observed, phase, said, short),
        templates=_pod_templates(items, "generictemplate"),
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


def _mcads_verdict(observed: Mapping[str, Any], phase: str | None, said: str, short: bool) -> Verdict:
    if phase is None:
        return _without_phase(observed, "MCAD's controller")
    if phase not in MCAD_STATES:
        return JobState.UNKNOWN, Reason.UNREADABLE, f"MCAD reports state {phase!r}, which this version does not know"
    state, reason = MCAD_STATES[phase]
    if phase == "Deleted" and text_at(observed, "metadata", "deletionTimestamp"):
        return JobState.CANCELLED, Reason.CANCELLED, "the AppWrapper was deleted"
    if phase == "Pending" and short:
        reason = Reason.UNSCHEDULABLE
    message = text_at(observed, "status", "message") or said or f"MCAD reports state {phase}"
    return state, reason, message


def _is_short(queue_state: str | None, condition: Mapping[str, Any]) -> bool:
    """Say whether MCAD found too little room in the cluster."""
    return queue_state == "Backoff" and "insufficient resources" in (text_at(condition, "message") or "").lower()


def _read_operators(observed: Mapping[str, Any]) -> AppWrapper:
    status = mapping_at(observed, "status")
    phase = text_at(status, "phase")
    conditions = {text_at(condition, "type"): condition for condition in items_at(status, "conditions")}
    unhealthy = conditions.get("Unhealthy", {})
    limit = number_at(observed, "metadata", "annotations", RETRY_LIMIT)
    quota = text_at(conditions.get("QuotaReserved"), "status")
    telling = (
        ("QuotaReserved", "False", Reason.WAITING_IN_QUEUE),
        ("PodsReady", "False", Reason.WAITING_FOR_PODS),
        ("Unhealthy", "True", Reason.WAITING_FOR_PODS),
    )
    waits = [
        (reason, _said(None, conditions[kind]))
        for kind, word, reason in telling
        # A condition that only repeats a phase explains nothing.
        if text_at(conditions.get(kind), "status") == word
        and text_at(conditions[kind], "reason") not in OPERATOR_PHASES
    ]
    return AppWrapper(
        phase=phase,
        verdict=_operators_verdict(observed, phase, unhealthy),
        templates=_pod_templates(items_at(observed, "spec", "components"), "template"),
        counts={},
        restarts=max(number_at(status, "resettingCount") or 0, 0),
        limit=OPERATOR_RETRY_LIMIT if limit is None else max(limit, 0),
        admitted=None if phase is None else quota == "True" or phase not in ("Suspended", "Suspending"),
        waits=tuple(wait for wait in waits if wait[1]),
        changed_at=_time_of(_last_condition(status, "lastTransitionTime"), "lastTransitionTime"),
    )


def _operators_verdict(observed: Mapping[str, Any], phase: str | None, unhealthy: Mapping[str, Any]) -> Verdict:
    if phase is None:
        return _without_phase(observed, "the AppWrapper operator")
    if phase not in OPERATOR_PHASES:
        found = f"the AppWrapper operator reports phase {phase!r}, which this version does not know"
        return JobState.UNKNOWN, Reason.UNREADABLE, found
    state, reason = OPERATOR_PHASES[phase]
    queue = text_at(observed, "metadata", "labels", KUEUE_QUEUE)
    if phase == "Suspended" and queue is not None:
        return state, Reason.WAITING_IN_QUEUE, f"waiting for Kueue's queue {queue!r} to admit the job"
    if phase == "Suspended" and at(observed, "spec", "suspend") is not True:
        return state, Reason.WAITING_FOR_PODS, "about to be started"
    if phase == "Suspended":
        return state, reason, "suspended; set suspend to false to run it"
    said = _said(None, unhealthy) if state is JobState.FAILED else ""
    return state, reason, said or f"the AppWrapper operator reports phase {phase}"


def _without_phase(observed: Mapping[str, Any], controller: str) -> Verdict:
    if not text_at(observed, "metadata", "name"):
        return JobState.UNKNOWN, Reason.UNREADABLE, "the observed object has neither name nor state"
    return JobState.SUBMITTED, Reason.SUBMITTED, f"submitted; {controller} has not taken it up yet"


def _pod_templates(items: list[Mapping[str, Any]], key: str) -> tuple[Mapping[str, Any], ...]:
    templates = (mapping_at(item, key) for item in items)
    return tuple(template for template in templates if text_at(template, "kind") == "Pod")


def _last_condition(status: Mapping[str, Any], *times: str) -> Mapping[str, Any]:
    """Return the condition that changed last; of equally old ones the last in the list."""
    conditions = items_at(status, "conditions")
    newest = latest(_time_of(condition, *times) for condition in conditions)
    return next((one for one in reversed(conditions) if _time_of(one, *times) == newest), {})


def _time_of(condition: Mapping[str, Any], *times: str) -> datetime | None:
    return latest(time_at(condition, time) for time in times)


def _said(queue_state: str | None, condition: Mapping[str, Any]) -> str:
    """Write a condition in one line: `Backoff: AppWrapperNotRunnable: Insufficient resources`."""
    words = [queue_state or text_at(condition, "type"), text_at(condition, "reason"), text_at(condition, "message")]
    known = [word.strip().rstrip(".") for word in words if word]
    return ": ".join(dict.fromkeys(word for word in known if word))
