"""The last observation of an app, kept for the time after its objects were deleted. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.model.codec import Fallbacks, check_version, from_json, without_none
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason, read_state
from torchx_pulumi.outputs.building import observe_role

OBSERVATION_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""

MOST_NOTED = 500
"""Replicas of a role up to which each is noted. An observation is written whenever something in it changes."""

_LATER: Fallbacks = {JobState: JobState.UNKNOWN, Reason: Reason.UNREADABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The last observation of an app in the index."""

    observed: Mapping[str, Any]
    """It, in the shape of the output `torchx.observed`; each role lists up to `MOST_NOTED` replicas."""
    recorded: str | None = None
    """Outcome of writing an end to the app's stack (`driver.Recorded`). None: not tried."""
    recorded_at: str | None = None
    """When that was tried last, ISO 8601 in UTC. None: not tried."""

    @property
    def state(self) -> JobState:
        """Return the observed state."""
        return read_state(self.observed.get("state"))

    @property
    def of_end(self) -> tuple[str | None, int, JobState]:
        """Return the part that two observations of one end have in common."""
        return end_of(self.observed)


def end_of(observed: Mapping[str, Any]) -> tuple[str | None, int, JobState]:
    """Return uid, attempt and state of an observation, which say whether two are of the same end."""
    return text_at(observed, "uid"), number_at(observed, "attempt") or 1, read_state(observed.get("state"))


def status_of(observed: Mapping[str, Any]) -> JobStatus:
    """Return an observation as a status, to show it; states and reasons that a later release added are not known.

    Raises:
        ValueError: It is not in the shape of the output.
    """
    return from_json(JobStatus, observed, fallbacks=_LATER)


def with_replicas(observed: Mapping[str, Any], status: JobStatus | None) -> Mapping[str, Any]:
    """Return an observation with as many replicas as the index notes.

    Args:
        observed: The observation, with as many replicas as an output lists.
        status: The status that it was made of. None: no status was read, and it stays as it is.
    """
    if status is None or not observed.get("roles"):
        return observed
    return {**observed, "roles": [observe_role(role, MOST_NOTED) for role in status.roles]}


def write_noted(noted: Noted) -> dict[str, Any]:
    """Return an observation as plain JSON values."""
    outcome = {"recorded": noted.recorded, "recorded_at": noted.recorded_at}
    return {"version": OBSERVATION_VERSION, "observed": dict(noted.observed), **without_none(outcome)}


def read_noted(value: object, where: str) -> Noted:
    """Read what `write_noted` wrote.

    Args:
        value: The JSON value.
        where: Place that it was read from, for messages.

    Raises:
        DeployError: It was written by a newer release, or is not an observation.
    """
    what = "an observation of an app"
    check_version(value, where, what, OBSERVATION_VERSION)
    try:
        noted = from_json(Noted, value)
        # What cannot be read is found here, not when it is shown.
        status_of(noted.observed)
        return noted
    except ValueError as error:
        raise DeployError(f"{where} is not {what}: {error}; it was changed by hand") from error
