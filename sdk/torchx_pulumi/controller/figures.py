"""What a controller tells of itself, for metrics and pages. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """One watch of a cluster."""

    cluster: str
    """Name of the cluster, as in messages."""
    kind: str
    """Kind of the watched objects, as kubectl names it, for example `pods`."""
    namespace: str | None
    """Namespace of the watched objects. None: all namespaces, or objects without one."""
    lag_s: float
    """Seconds since the watch was last current. 0.0: it is connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFigures:
    """Numbers of a controller since its start."""

    pending: int
    """Apps that wait to be looked at or written."""
    writes: Mapping[tuple[str, str], int]
    """Backend and outcome to the number of writes of stacks.

    Outcomes are those of `Recorded` and `error`, a write that ended unexpectedly."""
    read_at: datetime | None
    """When the backends were last listed: the oldest of their times. None: one of them was never listed."""
    broken: int
    """Stacks that cannot be read at present."""
