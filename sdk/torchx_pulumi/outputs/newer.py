"""The rule by which one of two observations is newer, for the index, stacks, fleet and components."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.model.object_fields import number_at, text_at, time_at
from torchx_pulumi.model.status import JobState, Reason

_NEVER = datetime.min.replace(tzinfo=timezone.utc)


def is_newer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether an observation is newer than another one of the same app.

    A later object (another uid) or a higher attempt is newer. Of one attempt, an end is newer than anything else,
    unless the run was cancelled and resumed. Only then do the times count: the clocks of two machines differ.

    Args:
        one: In the shape of the output `torchx.observed`; absent fields are not known.
        other: The other one.
    """
    uids = text_at(one, "uid"), text_at(other, "uid")
    if None not in uids and uids[0] != uids[1]:
        made = time_at(one, "queued_at"), time_at(other, "queued_at")
        if made[0] is not None and made[1] is not None and made[0] != made[1]:
            return made[0] > made[1]
        return _time(one) > _time(other)
    attempts = number_at(one, "attempt") or 1, number_at(other, "attempt") or 1
    if attempts[0] != attempts[1]:
        return attempts[0] > attempts[1]
    states = read_state(one.get("state")), read_state(other.get("state"))
    if states[0].terminal != states[1].terminal:
        return not _resumed(one, other) if states[0].terminal else _resumed(other, one)
    lost = [states[0].terminal and text_at(each, "reason") == Reason.POD_GONE.value for each in (one, other)]
    if lost[0] != lost[1]:
        # An end that was observed before the pods were deleted says more than the absence of the pods.
        return lost[1]
    return _time(one) > _time(other)


def standing(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies an observation: two with equal values say the same of one run, from one look at it."""
    return {
        "state": text_at(observed, "state"),
        "reason": text_at(observed, "reason"),
        "attempt": number_at(observed, "attempt") or 1,
        "uid": text_at(observed, "uid"),
        "queued_at": text_at(observed, "queued_at"),
        "observed_at": text_at(observed, "observed_at"),
    }


def read_state(value: object) -> JobState:
    """Return a state by its name. Any other value is UNKNOWN."""
    return JobState[value] if isinstance(value, str) and value in JobState.__members__ else JobState.UNKNOWN


def _resumed(ended: Mapping[str, Any], active: Mapping[str, Any]) -> bool:
    """Return whether the second observation shows that the end in the first one was left again."""
    cancelled = read_state(ended.get("state")) is JobState.CANCELLED
    active_again = read_state(active.get("state")) is not JobState.UNKNOWN
    return cancelled and active_again and _time(active) > _time(ended)


def _time(observed: Mapping[str, Any]) -> datetime:
    return time_at(observed, "observed_at") or _NEVER
