"""What a diagnosis is made of: the evidence that goes in, and the findings about pods on the way. Data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.status import Diagnosis, JobStatus, ObjectRef, Reason

__all__ = ["Diagnosis", "Evidence", "Finding", "ObjectRef", "ref"]

Observed = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was seen of one run and of what it waits for. What is empty was not looked at, or is not there."""

    scheduler: str
    """`volcano` or `mcad`."""
    status: JobStatus
    """The run as the readers of `status` have it."""
    head: Observed | None = None
    """The object that stands for the run."""
    pods: Sequence[Observed] = ()
    pod_groups: Sequence[Observed] = ()
    events: Sequence[Observed] = ()
    """Events of the run's objects."""
    queues: Sequence[Observed] | None = None
    """The queue of the run; empty where it does not exist. None: not looked at."""
    neighbours: Sequence[Observed] = ()
    """PodGroups of the same queue, or AppWrappers of the same MCAD; the run's own may be among them."""
    nodes: Sequence[Observed] | None = None
    """All nodes. None: not looked at."""
    last_lines: Mapping[str, str] = field(default_factory=dict)
    """Pod to the end of its log."""
    now: datetime | None = None
    """When all this was seen. None: what needs time to tell is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is wrong with one pod."""

    reason: Reason
    what: str
    """In one line, without the pod's name: equal for all pods that suffer from the same."""
    detail: str
    resolution: str
    at: datetime | None = None
    """When it happened. None: it lasts, or nobody noted it."""
    follows: bool = False
    """Rather a consequence than a cause: stopped from outside."""
    container: str | None = None


def ref(found: Observed | None, kind: str | None = None) -> ObjectRef:
    """Name an observed object."""
    return ObjectRef(
        kind=kind or text_at(found, "kind") or "Pod",
        name=text_at(found, "metadata", "name") or "?",
        namespace=text_at(found, "metadata", "namespace"),
    )
