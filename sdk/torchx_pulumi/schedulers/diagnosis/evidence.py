"""The input of a diagnosis, and what it finds out about single pods. Data only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.status import Diagnosis, JobStatus, ObjectRef, Reason

__all__ = ["Diagnosis", "Evidence", "ObjectRef", "PodProblem", "ref"]

Observed = Mapping[str, Any]

PATIENCE: Final = timedelta(seconds=60)
"""Time within which a controller or a scheduler acts on a new object."""

MAX_OBJECTS: Final = 8
"""Objects that a diagnosis names at most."""

MAX_QUOTE: Final = 600
"""Characters of an error message that a diagnosis shows."""

MAX_NEIGHBOURS: Final = 5
"""Jobs of a queue that a sentence names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The observed objects of one run and of what it waits for. Empty: not read, or the cluster has none."""

    scheduler: str
    """Name of the scheduler backend."""
    status: JobStatus
    """State and facts of the run, without messages."""
    job_object: Observed | None = None
    """The job object."""
    pods: Sequence[Observed] | None = ()
    """None: pods may not be read."""
    expected: Mapping[str, Sequence[str]] | None = None
    """Role name to its pods in rank order. None: not known."""
    pod_groups: Sequence[Observed] = ()
    events: Sequence[Observed] = ()
    """Events of the run's objects."""
    queues: Sequence[Observed] | None = None
    """The queue of the run; empty where it does not exist. None: not read."""
    neighbours: Sequence[Observed] = ()
    """Other objects of the same queue; the run's own may be among them."""
    nodes: Sequence[Observed] | None = None
    """All nodes. None: not read."""
    last_lines: Mapping[str, str] = field(default_factory=dict)
    """Pod to the end of its log."""
    now: datetime | None = None
    """When the objects were read. None: nothing that depends on the time is diagnosed."""

    def is_old(self, found: Observed | None) -> bool:
        """Return whether an object has existed for longer than a controller takes to act on it."""
        created = time_at(found, "metadata", "creationTimestamp")
        return self.now is not None and created is not None and self.now - created > PATIENCE

    @property
    def is_being_deleted(self) -> bool:
        """Return whether the run stops because its job object is being deleted."""
        return not self.status.state.terminal and text_at(self.job_object, "metadata", "deletionTimestamp") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """What is wrong with one pod."""

    reason: Reason
    what: str
    """In one line, without the pod's name: equal for all pods with the same problem."""
    detail: str
    resolution: str
    at: datetime | None = None
    """When it happened. None: it lasts, or the time is not reported."""
    follows: bool = False
    """The pod was stopped from outside: a consequence, not a cause."""


def ref(found: Observed | None, kind: str | None = None) -> ObjectRef:
    """Return the reference of an observed object."""
    return ObjectRef(
        kind=kind or text_at(found, "kind") or "Pod",
        name=text_at(found, "metadata", "name") or "?",
        namespace=text_at(found, "metadata", "namespace"),
    )


def quote(match: re.Match[str]) -> str:
    """Return at most 600 characters of the text around a match."""
    return match.string[max(match.start() - MAX_QUOTE // 2, 0) :][:MAX_QUOTE].strip()


def absent_controller(who: str, where: ObjectRef, detail: str = "") -> Diagnosis:
    """Return the diagnosis of an object that its controller does not act on."""
    return Diagnosis(
        reason=Reason.CONTROLLER_ABSENT,
        summary=f"{who} has not looked at it for a minute",
        detail=detail,
        resolution=f"check that {who} runs in the cluster and may read this namespace "
        "(`torchx-pulumi doctor` checks it)",
        objects=(where,),
    )


def key_of(found: Observed | None) -> tuple[str | None, str | None]:
    """Return namespace and name of an observed object."""
    return text_at(found, "metadata", "namespace"), text_at(found, "metadata", "name")
