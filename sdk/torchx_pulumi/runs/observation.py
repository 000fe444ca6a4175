"""The last observation of an app, as it is kept for the time when the cluster has forgotten it. Data; no file here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.errors import DeployError
from torchx_pulumi.status.model import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus

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
    )


def remembered(observation: Observation) -> JobStatus:
    """Return an observation as the status that it was."""
    roles = tuple(
        RoleStatus(name=name, replicas=tuple(_replica(item) for item in replicas))
        for name, replicas in observation.roles.items()
    )
    return JobStatus(
        state=observation.state,
        reason=observation.reason,
        message=observation.message,
        phase=observation.phase,
        attempt=observation.attempt,
        roles=roles,
    )


def newer(last: Observation | None, now: Observation) -> Observation:
    """Return which of two observations to keep; `observed_at` moves only when something else does.

    A final state stays: what cannot be told any more does not take its place, nor does an earlier phase of an object
    that was read late. A run that was resumed or retried may leave it.
    """
    if last is None:
        return now
    if last.state.terminal and now.state is JobState.UNKNOWN:
        return last
    same = dataclasses.replace(now, observed_at=last.observed_at)
    return last if same == last else now


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
    if not isinstance(value, Mapping) or not isinstance(value.get("version"), (int, float)):
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
        return Observation(**fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeployError(f"{where} is no observation of an app: {error}; it was changed by hand") from error


def _plain(replica: ReplicaStatus) -> dict[str, Any]:
    plain = {name: value for name, value in dataclasses.asdict(replica).items() if value is not None}
    return {**plain, "state": replica.state.value, "reason": replica.reason.value}


def _replica(value: Mapping[str, Any]) -> ReplicaStatus:
    known = {item.name for item in dataclasses.fields(ReplicaStatus)}
    fields = {"pod": None, **{name: item for name, item in value.items() if name in known}}
    return ReplicaStatus(**{**fields, "state": JobState(fields["state"]), "reason": _reason(fields["reason"])})


def _reason(value: Any) -> Reason:
    """Read a reason; one that a newer release added is not known here."""
    try:
        return Reason(value)
    except ValueError:
        return Reason.UNREADABLE
