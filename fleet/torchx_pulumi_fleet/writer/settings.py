"""ControllerSettings: what a controller watches and writes. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What a controller watches and writes."""

    backends: Sequence[str]
    """URLs of Pulumi backends, without credentials (`choose_backend`). At least one."""
    kubeconfig: str | None = None
    """Path of the kubeconfig. None: the ambient one, or the pod's own account."""
    contexts: Sequence[str] = field(default_factory=tuple)
    """Contexts that are watched. Empty: the current one."""
    namespaces: Sequence[str] = field(default_factory=tuple)
    """Namespaces that are watched. Empty: all."""
    program_stacks: bool = False
    """Write also the outputs of the stacks of users' own programs."""
    once: bool = False
    """End as soon as the stacks are current."""
    workers: int = 8
    """Apps of one backend that are looked at and written at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTiming:
    """Times between the steps of a controller, in seconds."""

    write_every_s: float = 10.0
    """Shortest time between two writes of an app that has not ended."""
    recheck_s: float = 60.0
    """Time until an app that waits is looked at again: some reasons depend on the time."""
    left_again_s: float = 300.0
    """Time until a stack is tried again that may not be written."""
    retry_s: float = 0.5
    """Time until an app is tried again after a failure. Doubled by each further one in a row."""
    longest_retry_s: float = 30.0
    """Longest of these times."""
    locked_retry_s: float = 2.0
    """Longest of these times for an app that has ended and whose stack is locked."""
    quiet_s: float = 5.0
    """Time for which a stack is left alone after a foreign lock: pipelines run several commands."""
    failing_s: float = 11.0
    """Time of failures in a row after which a line says that a stack is not written."""
    unwatched_s: float = 30.0
    """Time until an app is looked at again whose job object cannot be watched."""
    refresh_s: float = 30.0
    """Pause between two listings of the backends while nothing points to a new stack."""
    relist_s: float = 0.5
    """Shortest pause between two listings."""
    listing_s: float = 10.0
    """Longest wait for the listing of a backend; the others are used meanwhile, and it follows when it ends."""
    outage_s: float = 1.0
    """Time between two checks whether a cluster answers, for the ages of what is shown."""
    sync_s: float = 15.0
    """Longest wait for the first lists of the clusters before stacks are written."""
    flush_s: float = 3.0
    """Longest time in which pending writes are completed after a stop."""
    stop_s: float = 1.0
    """Longest time in which watches and archive are stopped after that."""
    once_s: float = 300.0
    """Longest time that a controller takes which ends by itself."""
