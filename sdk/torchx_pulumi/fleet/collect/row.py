"""Data of a fleet: one row for each app, and the stacks that could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchx_pulumi.model.status import JobState
from torchx_pulumi.stack_state.stacks import StackName

STALE_AFTER_S = 900.0
"""Age from which an observation of an unfinished app is stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One app, from its stack and the observations of this machine."""

    app_id: str
    """`namespace:job_name`."""
    handle: str
    """Handle by which TorchX finds the app."""
    scheduler: str
    """`volcano` or `mcad`."""
    name: str
    """App name as the user wrote it."""
    namespace: str
    queue: str | None
    """None: the scheduler has no queues, or the app names none."""
    state: JobState
    reason: str
    """Reason of the state: a CamelCase word."""
    message: str
    """Explanation of the reason. Empty: there is none."""
    phase: str | None
    """The scheduler's phase. None: not known."""
    roles: Sequence[Mapping[str, Any]]
    """Requested and observed roles: name, image, digest, wanted, ready, counts, omitted, replicas."""
    replicas_ready: int
    """Replicas that run or have succeeded."""
    replicas_wanted: int
    resources_total: Mapping[str, Any]
    """Resources of all replicas: cpu, gpu, memory_mb, devices."""
    user: str | None
    """User who launched the app. None: not known."""
    attempt: int
    """1 for the first launch."""
    age_s: float | None
    """Seconds since it was launched. None: not known."""
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    observed_at: datetime | None
    """Time of the last change of the observation. None: never observed."""
    checked_at: datetime | None
    """Time of the last observation: `observed_at`, or now if the cluster was queried."""
    freshness_s: float | None
    """Seconds since `checked_at`. None: never observed."""
    stale: bool
    """The app had not ended at its last observation, which is older than `STALE_AFTER_S`.

    A stack records changes only; `live` queries the cluster."""
    source: str
    """Source of the observation: `state` (the stack), `local` (this machine, newer) or `live` (the cluster, now)."""
    diagnoses: Sequence[Mapping[str, Any]]
    """Diagnoses, the most likely first: reason, summary, detail, resolution, objects."""
    stack: StackName
    updating: bool
    """The stack is locked by a running update."""
    log_command: str | None
    ui_url: str | None
    note: str = ""
    """Why the cluster was not queried although `live` was requested. Empty: no problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenStack:
    """A stack that cannot be read."""

    stack: StackName
    why: str
    """The problem, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All apps of a backend."""

    backend: str
    """URL of the Pulumi backend."""
    read_at: datetime
    """UTC."""
    rows: Sequence[FleetRow]
    """Unfinished ones first, the youngest first among them."""
    broken: Sequence[BrokenStack] = ()
    others: int = 0
    """Number of stacks without an app."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Name of each cluster that did not respond, to the reason."""
    warnings: Sequence[str] = ()
    """Other problems while reading; the rows then show the observation in the stack."""
