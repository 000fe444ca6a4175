"""The last observation of an app, as it is kept for the time when the cluster has forgotten it. Data; no file here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.model.app_entry import check_fields, is_version
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import time_at
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.outputs.building import build_observed, written
from torchx_pulumi.outputs.newer import is_newer

EPOCH = datetime.fromtimestamp(0, timezone.utc)

OBSERVATION_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was last seen of an app."""

    state: JobState
    reason: Reason
    message: str
    observed_at: str
    """When it was seen, ISO 8601 in UTC."""
    attempt: int = 1
    phase: str | None = None
    """The scheduler's own word for the state."""
    roles: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """Role name to its replicas."""
    uid: str | None = None
    """Uid of the job object that was seen. None: not known, or 0.1.0 wrote the observation."""
    queued_at: str | None = None
    """When the job object was made, ISO 8601 in UTC. None: not known."""
    started_at: str | None = None
    """When the first container ran, ISO 8601 in UTC. None: none did yet, or not known."""
    finished_at: str | None = None
    """When the job ended, ISO 8601 in UTC. None: it did not, or not known."""
    recorded: str | None = None
    """What came of writing this end to the app's stack (`driver.Recorded`). None: it was not tried."""
    recorded_at: str | None = None
    """When that was tried last, ISO 8601 in UTC."""


def observed(status: JobStatus, at: str) -> Observation:
    """Return a status as an observation.

    Args:
        status: What was seen.
        at: When, ISO 8601 in UTC.
    """
    return Observation(
        state=status.state,
        reason=status.reason,
        message=status.message,
        observed_at=at,
        attempt=status.attempt,
        phase=status.phase,
        roles={role.name: tuple(_plain(replica) for replica in role.replicas) for role in status.roles},
        uid=status.uid,
        queued_at=written(status.queued_at),
        started_at=written(status.started_at),
        finished_at=written(status.finished_at),
    )


def remembered(observation: Observation) -> JobStatus:
    """Return an observation as the status that it was."""
    roles = tuple(
        RoleStatus(name=name, replicas=tuple(_replica(item) for item in replicas))
        for name, replicas in observation.roles.items()
    )
    known = dataclasses.asdict(observation)
    return JobStatus(
        state=observation.state,
        reason=observation.reason,
        message=observation.message,
        phase=observation.phase,
        attempt=observation.attempt,
        roles=roles,
        uid=observation.uid,
        queued_at=time_at(known, "queued_at"),
        started_at=time_at(known, "started_at"),
        finished_at=time_at(known, "finished_at"),
    )


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
    plain = {name: value for name, value in dataclasses.asdict(observation).items() if value is not None}
    return {
        "version": OBSERVATION_VERSION,
        **plain,
        "state": observation.state.value,
        "reason": observation.reason.value,
        "roles": {name: [dict(item) for item in items] for name, items in observation.roles.items()},
    }


def read_observation(value: Any, where: str) -> Observation:
    """Read what `write_observation` wrote.

    Raises:
        DeployError: It was written by a newer release, or is no observation.
    """
    if not isinstance(value, Mapping) or not is_version(value.get("version")):
        raise DeployError(f"{where} is no observation of an app: found {type(value).__name__} without a version")
    if int(value["version"]) > OBSERVATION_VERSION:
        raise DeployError(
            f"{where} has version {int(value['version'])}, this release of torchx-pulumi reads up to "
            f"{OBSERVATION_VERSION}; install the release that wrote it, or a newer one"
        )
    known = {item.name for item in dataclasses.fields(Observation)}
    fields = {name: item for name, item in value.items() if name in known}
    try:
        fields["state"] = JobState(fields["state"])
        fields["reason"] = _reason(fields["reason"])
        fields["roles"] = {name: tuple(items) for name, items in (fields.get("roles") or {}).items()}
        found = Observation(**fields)
        check_fields(found, str, "message observed_at")
        check_fields(found, (int, float), "attempt")
        check_fields(found, str, "phase uid queued_at started_at finished_at recorded recorded_at", optional=True)
        # A replica that cannot be read is found here, and not by everybody who shows it.
        remembered(found)
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeployError(f"{where} is no observation of an app: {error}; it was changed by hand") from error


def _plain(replica: ReplicaStatus) -> dict[str, Any]:
    times = {"started_at": written(replica.started_at), "finished_at": written(replica.finished_at)}
    whole = {**dataclasses.asdict(replica), **times, "state": replica.state.value, "reason": replica.reason.value}
    return {name: value for name, value in whole.items() if value is not None}


def _replica(value: Mapping[str, Any]) -> ReplicaStatus:
    known = {item.name for item in dataclasses.fields(ReplicaStatus)}
    fields = {"pod": None, **{name: item for name, item in value.items() if name in known}}
    fields |= {"started_at": time_at(value, "started_at"), "finished_at": time_at(value, "finished_at")}
    return ReplicaStatus(**{**fields, "state": _state(fields["state"]), "reason": _reason(fields["reason"])})


def _state(value: Any) -> JobState:
    """Read the state of a replica; one that a newer release added is not known here."""
    try:
        return JobState(value)
    except ValueError:
        return JobState.UNKNOWN


def _reason(value: Any) -> Reason:
    """Read a reason; one that a newer release added is not known here."""
    try:
        return Reason(value)
    except ValueError:
        return Reason.UNREADABLE
