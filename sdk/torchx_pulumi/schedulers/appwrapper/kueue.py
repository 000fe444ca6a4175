"""Kueue, which lets an AppWrapper v1beta2 run when its LocalQueue has quota: what it says in its Workload, and queues.

Kueue makes one Workload for each AppWrapper with the label of a LocalQueue. Its conditions have the reasons; numbers
come from the ClusterQueue and its cohort (`appwrapper.quotas`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.object_fields import at, items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.schedulers.appwrapper.objects import (
    CLUSTER_QUEUE,
    COHORT,
    KUEUE_JOB_UID,
    LOCAL_QUEUE,
    WORKLOAD,
)
from torchx_pulumi.schedulers.appwrapper.quotas import FlavorResource, Quota, cohort_of, quotas_of
from torchx_pulumi.schedulers.appwrapper.tasks import tasks_of
from torchx_pulumi.schedulers.diagnosis.nodes import requests_of

MAX_UID: Final = 63
"""Characters of the longest uid, which is the value of a label."""

Objects = Mapping[Kind, Sequence[Manifest]]
"""Kueue's objects by kind. Left out: not read, or they may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Equal pods, which Kueue admits together, all of them in one flavor for each resource."""

    name: str
    count: int
    spec: Observed
    """Spec of one of the pods."""

    @property
    def requests(self) -> dict[str, float]:
        """Return the sum of the requests of its pods, by resource."""
        return {resource: self.count * value for resource, value in requests_of(self.spec).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueObjects:
    """The queues of a job, as far as they were read."""

    local_queue: Manifest | None = None
    cluster_queue: Manifest | None = None
    quotas: Mapping[FlavorResource, Quota]
    """Quotas of the ClusterQueue; empty if it was not read."""

    @property
    def words(self) -> str:
        """Return the name of the ClusterQueue, with that of its cohort, for messages."""
        if self.cluster_queue is None:
            name = text_at(self.local_queue, "spec", "clusterQueue")
            return f"ClusterQueue {name!r}" if name else "its ClusterQueue"
        cohort = cohort_of(self.cluster_queue)
        return f"ClusterQueue {self.cluster_queue['metadata']['name']!r}" + (f" (cohort {cohort!r})" if cohort else "")


def queues_in(objects: Objects) -> QueueObjects:
    """Return the queues among Kueue's objects."""
    local = next(iter(objects.get(LOCAL_QUEUE, ())), None)
    name = text_at(local, "spec", "clusterQueue")
    queues = objects.get(CLUSTER_QUEUE, ())
    own = next((one for one in queues if name is not None and text_at(one, "metadata", "name") == name), None)
    quotas = {} if own is None else quotas_of(own, queues, objects.get(COHORT))
    return QueueObjects(local_queue=local, cluster_queue=own, quotas=quotas)


def workload_in(objects: Objects, uid: str | None) -> Manifest | None:
    """Return the Workload of the job with a uid, or None if there is none, or it was not read."""
    found = objects.get(WORKLOAD, ())
    return next((one for one in found if text_at(one, "metadata", "labels", KUEUE_JOB_UID) == uid), None)


def condition_of(found: Observed | None, name: str) -> Observed:
    """Return a condition of an object; empty if it does not have it."""
    return next((one for one in items_at(found, "status", "conditions") if one.get("type") == name), {})


def is_true(found: Observed | None, name: str) -> bool:
    """Return whether a condition of an object is True."""
    return condition_of(found, name).get("status") == "True"


def is_selected(cluster_queue: Observed | None, labels: Observed) -> bool:
    """Return whether a ClusterQueue takes jobs of a namespace with these labels. Without a selector it takes none.

    >>> one = {"key": "team", "operator": "In", "values": ["a"]}
    >>> queue = {"spec": {"namespaceSelector": {"matchLabels": {"pool": "gpu"}, "matchExpressions": [one]}}}
    >>> is_selected(queue, {"pool": "gpu", "team": "a"}), is_selected(queue, {"pool": "gpu"}), is_selected({}, {})
    (True, False, False)
    """
    selector = at(cluster_queue, "spec", "namespaceSelector")
    if not isinstance(selector, Mapping):
        return False
    wanted = mapping_at(selector, "matchLabels").items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _matches(one, labels.get(str(one.get("key")))) for one in items_at(selector, "matchExpressions")
    )


def _matches(rule: Observed, value: Any) -> bool:
    values = rule.get("values") or ()
    matches = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return matches.get(str(rule.get("operator")), True)


def preemptor_uid(workload: Observed | None) -> str | None:
    """Return the uid of the job that a job had to make room for, or None if it had not to, or runs again.

    >>> message = "Preempted to accommodate a workload (UID: a1, JobUID: b2) due to prioritization in the ClusterQueue"
    >>> condition = {"type": "Preempted", "status": "True", "message": message}
    >>> preemptor_uid({"status": {"conditions": [condition]}})
    'b2'
    """
    condition = condition_of(workload, "Preempted")
    if condition.get("status") != "True":
        return None
    _, mark, rest = (text_at(condition, "message") or "").partition("JobUID: ")
    uid = rest.partition(")")[0].strip()
    return uid if mark and uid and uid != "UNKNOWN" and len(uid) <= MAX_UID else None


def evictions_of(workload: Observed | None) -> dict[str, int]:
    """Return how often Kueue has evicted a job, by its reason; empty if it never did."""
    counts: dict[str, int] = {}
    for one in items_at(workload, "status", "schedulingStats", "evictions"):
        reason, count = text_at(one, "reason") or "?", number_at(one, "count") or 0
        counts[reason] = counts.get(reason, 0) + max(count, 0)
    return {reason: count for reason, count in counts.items() if count}


def pod_sets_of(found: Observed | None) -> Iterator[PodSet]:
    """Yield the pod sets of a Workload, or of an AppWrapper v1beta2."""
    for one in items_at(found, "spec", "podSets"):
        spec = mapping_at(one, "template", "spec")
        yield PodSet(name=text_at(one, "name") or "?", count=_count(one.get("count")), spec=spec)
    for task in tasks_of(found):
        yield PodSet(name=task.name, count=task.count, spec=mapping_at(task.template, "spec"))


def _count(value: Any) -> int:
    return 1 if value is None else max(number_at({"count": value}, "count") or 0, 0)
