"""How a run stands: the only place that decides it, for every surface. docs/decisions/0021 has the rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any

from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.object_fields import MAX_DIGITS, number_at, text_at, time_at, version_number
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.model.status import JobState, JobStatus, Reason, read_state
from torchx_pulumi.outputs.building import build_observed, same
from torchx_pulumi.outputs.types import Observed
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.ranking import diagnose_status

Observation = Observed
"""How a run stands, in the shape of the output `torchx.observed`."""


TAKEN_AWAY = (Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_LOST)
"""Reasons for which a pod was removed, as other pods of its gang show."""


class Weight(IntEnum):
    """What an observation rests on. Within an attempt, a lighter one never replaces a heavier one."""

    ACTIVE = 0
    """The run goes on, or its objects do not say how it stands."""
    ABSENCE = 1
    """Objects are gone and their end was not seen: UNKNOWN (NotFound) or FAILED (PodGone)."""
    REQUEST = 2
    """Its objects are gone as requested: CANCELLED without a phase."""
    SEEN = 3
    """Its objects showed the end."""


def judge(look: Look, requested: Requested | None, previous: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return how a run stands.

    Args:
        look: What was read of it now.
        requested: The last request to cancel or resume it. None: there was none.
        previous: The last observation, of the stack or of the index; absent fields are unknown. None: not observed yet.

    Returns:
        `previous` itself if nothing has changed or `previous` says more, else an `Observation`. None: unknown.
    """
    if look.uid is not None and text_at(previous, "uid") not in (None, look.uid):
        # It is of another run.
        previous = None
    request = requested if requested is not None and requested.is_about(look.uid) else None
    status = _status(look, request, previous)
    if status is None or (look.lacks_pods and previous is not None):
        return previous
    found = build_observed(status, observed_at=look.at, previous=previous, resource_version=look.resource_version)
    if previous is not None and (same(previous, found) or _stays(previous, found, request, confirmed=look.confirmed)):
        return previous
    return found


def may_depend_on_request(look: Look) -> bool:
    """Return whether an unknown request could change the state of a run."""
    cancel = Requested(action=RequestedAction.CANCEL, at="", attempt=sys.maxsize)
    resume = Requested(action=RequestedAction.RESUME, at="", resource_version="9" * MAX_DIGITS)
    return len({(judge(look, request, None) or {}).get("state") for request in (None, cancel, resume)}) > 1


def latest(one: Mapping[str, Any], other: Mapping[str, Any], requested: Requested | None = None) -> Mapping[str, Any]:
    """Return the observation of two that says more by the rule of `judge`, the first if both say the same.

    Of two runs it is that of the later one, by the time at which the API server made the job object. `requested` is the
    last request to cancel or resume the app: a run that was resumed is not cancelled any more.
    """
    uids = text_at(one, "uid"), text_at(other, "uid")
    if None not in uids and uids[0] != uids[1]:
        made = [text_at(each, "queued_at") or "" for each in (one, other)]
        return other if made[1] > made[0] else one
    return one if same(one, other) or _stays(one, other, requested, confirmed=True) else other


def weight(observed: Mapping[str, Any]) -> Weight:
    """Return the evidence of an observation."""
    state, reason = read_state(observed.get("state")), observed.get("reason")
    if state is JobState.CANCELLED:
        return Weight.REQUEST if text_at(observed, "phase") is None else Weight.SEEN
    if state.terminal:
        return Weight.ABSENCE if reason == Reason.POD_GONE.value else Weight.SEEN
    return Weight.ABSENCE if reason == Reason.NOT_FOUND.value else Weight.ACTIVE


def _status(look: Look, request: Requested | None, previous: Mapping[str, Any] | None) -> JobStatus | None:
    """Return the status by the objects and the request. None: no evidence."""
    if look.objects is None:
        return None
    status = look.status
    if status is None or (look.gone and (not status.state.terminal or look.by_absence(status))):
        return _gone(look, request, previous) if look.gone else None
    cancel = request if request is not None and request.action is RequestedAction.CANCEL else None
    if cancel is not None and status.state is not JobState.SUCCEEDED:
        return _cancelled(look, status, cancel)
    if request is not None and cancel is None:
        if _is_before_resume(look, status, request):
            if look.gone:
                return _gone(look, request, previous)
            active = replace(status, state=JobState.PENDING, reason=Reason.RESTARTING, message=request.words)
            return replace(active, conditions=(), diagnoses=(), finished_at=None)
        if status.reason is Reason.RESTARTING and status.attempt == request.attempt + 1:
            # The resume is what starts it again: no failure of it is to be looked for.
            return replace(status, message=request.words, diagnoses=())
    if look.by_absence(status) and look.changing:
        return replace(status, state=JobState.RUNNING, reason=Reason.STOPPING, diagnoses=(), finished_at=None)
    if look.by_absence(status) and status.reason not in TAKEN_AWAY:
        # A diagnosis may only say why the run waited before.
        return replace(status, reason=Reason.POD_GONE)
    return status


def _cancelled(look: Look, status: JobStatus, cancel: Requested) -> JobStatus:
    """Return the status of a run that was asked to stop and whose job object exists."""
    noted = replace(status, reason=Reason.CANCELLED, message=cancel.words, diagnoses=())
    if status.phase in look.variant.cancelled_phases:
        # An end that pods showed before wins over a phase that only says that the object is deleted.
        phase = None if look.variant.ends_by_pods else status.phase
        return replace(noted, state=JobState.CANCELLED, phase=phase)
    if look.by_absence(status):
        # The request deletes pods before the job object is seen to go.
        return replace(noted, state=JobState.RUNNING, finished_at=None)
    if status.state.terminal or status.attempt > cancel.attempt:
        return status
    return noted


def _is_before_resume(look: Look, status: JobStatus, resume: Requested) -> bool:
    """Return whether a suspended run has not changed since it was asked to resume, or is still being suspended."""
    control = look.variant.control
    if control is None or not control.is_suspended(status.phase):
        return False
    if not status.state.terminal and status.attempt <= resume.attempt and not look.gone:
        # Its pods end one after the other, and each changes the object; a resume would have counted an attempt.
        return True
    last = text_at(look.remembered.last, "metadata", "resourceVersion") if look.gone else look.resource_version
    return version_number(last) <= version_number(resume.resource_version)


def _gone(look: Look, request: Requested | None, previous: Mapping[str, Any] | None) -> JobStatus:
    """Return the status of a run whose job object is gone and whose end was not seen."""
    known = previous or {}
    seen_at = text_at(known, "observed_at")
    seen = f"last seen {known.get('state')} at {seen_at}" if seen_at else "its state was never seen"
    status = JobStatus(
        state=JobState.UNKNOWN,
        reason=Reason.NOT_FOUND,
        message=f"its objects are gone from the cluster; {seen}",
        attempt=_attempt(known),
        queued_at=time_at(known, "queued_at"),
        started_at=time_at(known, "started_at"),
        uid=look.uid,
    )
    if request is None or request.action is not RequestedAction.CANCEL:
        own = diagnose_status(Evidence.of(ObservedObjects(), status=status, lost_pod_advice=""))
        return status if own is None else replace(status, diagnoses=(own,))
    return replace(status, state=JobState.CANCELLED, reason=Reason.CANCELLED, message=request.words)


def _stays(
    previous: Mapping[str, Any], found: Mapping[str, Any], request: Requested | None, *, confirmed: bool
) -> bool:
    """Return whether the last observation says more than one that was made now."""
    before, now = weight(previous), weight(found)
    later = _attempt(found) - _attempt(previous)
    if before is Weight.ACTIVE and now is Weight.ACTIVE:
        return later < 0 or (later == 0 and _is_older(found, previous))
    if now is Weight.ACTIVE:
        if before is Weight.ABSENCE or before is Weight.REQUEST:
            return not (later > 0 and previous.get("reason") == Reason.POD_GONE.value)
        return not (
            later > 0 or (_is_suspended(previous) and _is_older(previous, found)) or was_resumed(previous, request)
        )
    if now > before:
        # An end of an earlier attempt was left again; one that is never left tells that the cluster was restored.
        left = now is Weight.SEEN and later < 0 and before is Weight.ACTIVE
        final = confirmed and read_state(found.get("state")) is not JobState.CANCELLED
        return left and not final
    if was_resumed(previous, request):
        return False
    return not (now is Weight.SEEN and later > 0)


def was_resumed(observed: Mapping[str, Any], request: Requested | None) -> bool:
    """Return whether an observation shows a suspended run before it was asked to resume."""
    if request is None or request.action is not RequestedAction.RESUME or not _is_suspended(observed):
        return False
    return _version(observed) <= version_number(request.resource_version)


def _is_suspended(observed: Mapping[str, Any]) -> bool:
    return read_state(observed.get("state")) is JobState.CANCELLED and weight(observed) is Weight.SEEN


def _is_older(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether the objects of an observation were read before those of another one; False if not known."""
    return 0 <= _version(one) < _version(other)


def _version(observed: Mapping[str, Any]) -> int:
    return version_number(text_at(observed, "resource_version"))


def _attempt(observed: Mapping[str, Any]) -> int:
    return number_at(observed, "attempt") or 1
