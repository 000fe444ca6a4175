"""What a fleet is made of: one row for each app, and what could not be read. Data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchx_pulumi.model.status import JobState
from torchx_pulumi.stack_state.stacks import StackName

STALE_AFTER_S = 900.0
"""News of an unfinished app that are older than this are called stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One app, as its stack and this machine's record of observations have it."""

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
    """None: the scheduler has none, or the app names none."""
    state: JobState
    reason: str
    """Reason of the state, in one word."""
    message: str
    """The reason in full. Empty: there is no more to say."""
    phase: str | None
    """The scheduler's own word for the state. None: not known."""
    roles: Sequence[Mapping[str, Any]]
    """Roles as asked for and as seen: name, image, digest, wanted, ready, counts, omitted, replicas."""
    replicas_ready: int
    """Replicas that run or have ended well."""
    replicas_wanted: int
    resources_total: Mapping[str, Any]
    """What the app asks for: cpu, gpu, memory_mb, devices."""
    user: str | None
    """Who asked for the app. None: not known."""
    attempt: int
    """1 for the first launch."""
    age_s: float | None
    """Seconds since it was launched. None: not known."""
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    observed_at: datetime | None
    """When what was seen last changed. None: nothing was ever seen."""
    checked_at: datetime | None
    """Time of the last news: `observed_at`, or just now where the cluster was asked."""
    freshness_s: float | None
    """Seconds since `checked_at`. None: nothing was ever seen."""
    stale: bool
    """The app had not ended by the last news of it, which are older than `STALE_AFTER_S`.

    A stack does not tell how often nothing had changed; only `live` does."""
    source: str
    """`state`: the stack says so; `local`: this machine saw it later; `live`: the cluster said so just now."""
    diagnoses: Sequence[Mapping[str, Any]]
    """Why, the likeliest first: reason, summary, detail, resolution, objects."""
    stack: StackName
    updating: bool
    """Somebody works on the stack at this moment."""
    log_command: str | None
    ui_url: str | None
    note: str = ""
    """Why `source` is not what was asked for. Empty: it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenStack:
    """A stack that could not be read."""

    stack: StackName
    why: str
    """What was found, and what to do next."""


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
    """Stacks that hold no app."""
    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Clusters that were asked and gave no answer: what they are called, to why."""
    warnings: Sequence[str] = ()
    """What else could not be read; the rows say what their stacks say then."""
