"""The last observation of an app, kept for the time after its objects were deleted. Data only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.model.codec import Fallbacks, check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.model.timestamps import EPOCH
from torchx_pulumi.outputs.building import build_observed, listed_replicas
from torchx_pulumi.outputs.newer import is_newer

OBSERVATION_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""

MOST_NOTED = 500
"""Replicas of a role up to which each is noted. An observation is written whenever something in it changes."""

_LATER: Fallbacks = {JobState: JobState.UNKNOWN, Reason: Reason.UNREADABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The last observation of an app."""

    state: JobState
    reason: Reason
    message: str
    observed_at: str
    """When it was observed, ISO 8601 in UTC."""
    attempt: int = 1
    phase: str | None = None
    """The scheduler's own word for the state."""
    roles: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """Role name to its replicas."""
    uid: str | None = None
    """Uid of the observed job object. None: not known."""
    queued_at: str | None = None
    """When the job object was made, ISO 8601 in UTC. None: not known."""
    started_at: str | None = None
    """When the first container ran, ISO 8601 in UTC. None: none did yet, or not known."""
    finished_at: str | None = None
    """When the job ended, ISO 8601 in UTC. None: it did not, or not known."""
    recorded: str | None = None
    """Outcome of recording this end in the app's stack (`driver.Recorded`). None: it was not tried."""
    recorded_at: str | None = None
    """When that was tried last, ISO 8601 in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """The roles in the shape of the output `torchx.observed`."""

    roles: tuple[Mapping[str, Any], ...] = ()


def observed(status: JobStatus, at: str) -> Observation:
    """Return a status as an observation.

    Args:
        status: The observed status. Its conditions and diagnoses are not part of the observation, nor are replicas of a
            role that has more than `MOST_NOTED`, but for those that failed.
        at: Time of the observation, ISO 8601 in UTC.
    """
    roles = {
        role.name: [without_none(to_json(replica)) for replica in listed_replicas(role, MOST_NOTED)]
        for role in status.roles
    }
    plain = to_json(dataclasses.replace(status, roles=()))
    return from_json(Observation, {**plain, "roles": roles, "observed_at": at})


def remembered(observation: Observation) -> JobStatus:
    """Return an observation as a status; states and reasons of replicas that a later release added are not known.

    Raises:
        ValueError: A replica of it cannot be read.
    """
    roles = [{"name": name, "replicas": replicas} for name, replicas in observation.roles.items()]
    return from_json(JobStatus, {**to_json(observation), "roles": roles}, fallbacks=_LATER)


def from_stack(value: Mapping[str, Any]) -> Observation:
    """Return `observed` of the stack output `torchx` as an observation.

    Raises:
        ValueError: It is not in the shape of the output, or a later release wrote it.
    """
    listed = from_json(_Listed, value).roles
    roles = {str(role.get("name")): role.get("replicas") or () for role in listed}
    found = from_json(Observation, {**value, "roles": roles}, fallbacks={Reason: Reason.UNREADABLE})
    remembered(found)
    return found


def newer(last: Observation | None, now: Observation) -> Observation:
    """Return which of two observations to keep, by the rule of `outputs.newer`.

    `observed_at` moves only when something else does. That an end was written to the stack stays known as long as it
    is the same end.
    """
    if last is None:
        return now
    if is_newer(_standing(last), _standing(now)):
        return last
    if (last.uid, last.attempt, last.state) == (now.uid, now.attempt, now.state):
        now = dataclasses.replace(now, recorded=last.recorded, recorded_at=last.recorded_at)
    same = dataclasses.replace(now, observed_at=last.observed_at)
    return last if same == last else now


def _standing(observation: Observation) -> dict[str, Any]:
    """Return what decides which of two observations is newer."""
    names = ("attempt", "uid", "queued_at", "observed_at")
    words = {"state": observation.state.value, "reason": observation.reason.value}
    return {**words, **{name: getattr(observation, name) for name in names}}


def as_observed(observation: Observation) -> dict[str, Any]:
    """Return an observation in the shape of the output `torchx.observed`, its time as it is noted."""
    shape = build_observed(remembered(observation), observed_at=EPOCH, source="record")
    return {**shape, "observed_at": observation.observed_at}


def write_observation(observation: Observation) -> dict[str, Any]:
    """Return an observation as plain JSON values."""
    return {"version": OBSERVATION_VERSION, **without_none(to_json(observation))}


def read_observation(value: Any, where: str) -> Observation:
    """Return what `write_observation` wrote.

    Args:
        value: The JSON value.
        where: Place that it was read from, for messages.

    Raises:
        DeployError: It was written by a newer release, or is not an observation.
    """
    what = "an observation of an app"
    check_version(value, where, what, OBSERVATION_VERSION)
    try:
        found = from_json(Observation, value, fallbacks={Reason: Reason.UNREADABLE})
        # Replicas are kept as they were written. One that cannot be read is found here, not when it is shown.
        remembered(found)
        return found
    except ValueError as error:
        raise DeployError(f"{where} is not {what}: {error}; it was changed by hand") from error
