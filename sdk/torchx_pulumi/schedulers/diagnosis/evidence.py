"""The observed objects of a run, which are the input of a diagnosis, and the problems of single pods. Data only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Final

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import LOST_POD_ADVICE, Diagnosis, JobStatus, ObjectRef, Reason

PATIENCE: Final = timedelta(seconds=60)
"""Time within which a controller or a scheduler acts on a new object."""

FIRST_LOOK: Final = timedelta(seconds=10)
"""Time after which a scheduler has looked at a new object, unless something keeps it from doing so."""

MAX_QUOTE: Final = 600
"""Characters of an error message that a diagnosis shows."""

MAX_NEIGHBOURS: Final = 5
"""Jobs of a queue that a sentence names at most."""

Expected = Mapping[str, Sequence[str]] | None
"""Role name to the names of its created pods in rank order, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedObjects:
    """The observed objects of one run. Without any field: the run has no objects."""

    job_object: Manifest | None = None
    """The object that stands for the run. None: it does not exist."""
    pods: Sequence[Manifest] | None = None
    """None: not read, or the credentials may not read pods. With `rows`, some of them."""
    rows: Mapping[str, PodRow] | None = None
    """All pods in short, by name, if there are too many to read each. None: `pods` has all."""
    version: str | None = None
    """`metadata.resourceVersion` of the list of pods, if known."""
    listed: bool = True
    """False: pods may not be listed, and `pods` has only those that were requested by name."""
    expected: Expected = None
    """The pods that were created."""
    pod_groups: Sequence[Manifest] = ()
    lacks_group: bool = False
    """The PodGroup that a controller makes was asked for and does not exist."""
    namespace: Manifest | None = None
    """The namespace of the run, if read."""
    jobs: Sequence[Manifest] = ()
    """The Jobs that a controller makes and that make the pods, if read."""
    events: Sequence[Manifest] = ()
    """Events of these objects that can explain why the run waits."""
    queues: Sequence[Manifest] | None = None
    """The queue of the run, if read; empty if it does not exist."""
    admission: Mapping[Kind, Sequence[Manifest]] = field(default_factory=dict)
    """Objects by which another controller lets the run in, by kind. Left out: not read, or they may not be read."""
    neighbours: Sequence[Manifest] = ()
    """Other objects that wait or run in the same queue."""
    nodes: Sequence[Manifest] | None = None
    """All nodes, if read."""
    at: datetime | None = None
    """When the cluster was read; aware. None: the objects are not from a cluster."""
    last_lines: Mapping[str, str] = field(default_factory=dict)
    """Pod name to the last lines of its log, for the pod that failed first."""

    @property
    def uid(self) -> str | None:
        """Return the uid of the job object, or None if it does not exist."""
        return text_at(self.job_object, "metadata", "uid")

    @property
    def pod_count(self) -> int:
        """Return how many pods the run has, as far as they were read."""
        return len(self.pods or ()) if self.rows is None else len(self.rows)

    @property
    def placed_count(self) -> int:
        """Return how many of them are on a node."""
        if self.rows is not None:
            return sum(row.node is not None for row in self.rows.values())
        return sum(text_at(pod, "spec", "nodeName") is not None for pod in self.pods or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(ObservedObjects):
    """The observed objects of one run, and its status without messages."""

    status: JobStatus
    lost_pod_advice: str = LOST_POD_ADVICE
    """What to do about a pod that was deleted; see `Variant.lost_pod_advice`."""

    @classmethod
    def of(cls, observed: ObservedObjects, *, status: JobStatus, lost_pod_advice: str) -> Evidence:
        """Return the evidence of observed objects."""
        values = {one.name: getattr(observed, one.name) for one in fields(observed)}
        return cls(**values, status=status, lost_pod_advice=lost_pod_advice)

    def is_old(self, found: Observed | None) -> bool:
        """Return whether an object has existed for longer than a controller takes to act on it."""
        age = self._age(found)
        return age is not None and age > PATIENCE

    def is_new(self, found: Observed | None) -> bool:
        """Return whether a scheduler may not have looked at an object yet, as it was made seconds ago."""
        age = self._age(found)
        return age is not None and age < FIRST_LOOK

    def _age(self, found: Observed | None) -> timedelta | None:
        created = time_at(found, "metadata", "creationTimestamp")
        return None if self.at is None or created is None else self.at - created


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """The problem of one pod."""

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
