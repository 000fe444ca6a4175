"""What else is looked at when a run waits: events, its queue and who is in it, and nodes; each only where it explains.

What may not be read, or is not served, explains nothing, and the status says less then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from torchx_pulumi.kube import Cluster, run_concurrently
from torchx_pulumi.kube.kinds import EVENT, NODE, Kind
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.containers import is_pull_error_unknown
from torchx_pulumi.schedulers.permissions import (
    GET_QUEUE,
    LIST_APP_WRAPPERS,
    LIST_EVENTS,
    LIST_NODES,
    LIST_POD_GROUPS,
    Permission,
    if_permitted,
)
from torchx_pulumi.schedulers.pods.containers import read_containers
from torchx_pulumi.schedulers.pods.last_lines import read_last_lines
from torchx_pulumi.schedulers.protocol import ObservedObjects
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_POD_GROUP, VOLCANO_QUEUE

Answer = TypeVar("Answer")

WAITS = (JobState.PENDING, JobState.SUBMITTED)
UNPLACED = (Reason.UNSCHEDULABLE, Reason.WAITING_IN_QUEUE)


def look_further(cluster: Cluster, namespace: str, seen: ObservedObjects, status: JobStatus) -> ObservedObjects:
    """Look at what can say why a run on Volcano waits."""
    seen = with_last_lines(cluster, namespace, seen, status)
    if status.state not in WAITS and status.reason is not Reason.IMAGE_UNAVAILABLE:
        return seen
    queued = status.reason is Reason.WAITING_IN_QUEUE
    events, nodes, queue, neighbours = run_concurrently(
        _only(queued or _needs_events(seen, status), lambda: events_of(cluster, namespace, _names(seen))),
        _only(status.reason in UNPLACED, lambda: _nodes(cluster)),
        _only(queued, lambda: _queue(cluster, seen)),
        _only(queued, lambda: _same_queue(cluster, namespace, seen)),
    )
    return replace(seen, events=tuple(events or ()), nodes=nodes, queues=queue, neighbours=tuple(neighbours or ()))


def with_last_lines(cluster: Cluster, namespace: str, seen: ObservedObjects, status: JobStatus) -> ObservedObjects:
    """Read the end of the log of the replica that failed first."""
    if status.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return seen
    return replace(seen, last_lines=read_last_lines(cluster, namespace, seen.pods or ()))


def look_further_at_line(
    cluster: Cluster, kind: Kind, namespace: str, seen: ObservedObjects, status: JobStatus
) -> ObservedObjects:
    """Look at what can say why an AppWrapper waits."""
    if status.state not in WAITS:
        return seen
    pending = text_at(seen.job_object, "status", "state") == "Pending"
    nodes, neighbours = run_concurrently(
        _only(status.reason is Reason.UNSCHEDULABLE, lambda: _nodes(cluster)),
        _only(pending, lambda: _everywhere(cluster, kind, namespace)),
    )
    return replace(seen, nodes=nodes, neighbours=tuple(neighbours or ()))


def events_of(cluster: Cluster, namespace: str, names: Collection[str | None]) -> tuple[Manifest, ...]:
    """Return the events of objects by the objects' names."""
    listed = if_allowed(cluster, LIST_EVENTS, namespace, lambda: cluster.list(EVENT, namespace)) or ()
    return tuple(event for event in listed if text_at(event, "involvedObject", "name") in names)


def if_allowed(
    cluster: Cluster, permission: Permission, namespace: str | None, read: Callable[[], Answer]
) -> Answer | None:
    """Read what only explains a wait. None: not allowed, or not served; see `if_permitted`."""
    try:
        return if_permitted(cluster, permission, namespace, read)
    except ClusterError as error:
        if error.retryable:
            raise
        return None


def _only(wanted: bool, read: Callable[[], Any]) -> Callable[[], Any]:
    return read if wanted else (lambda: None)


def _nodes(cluster: Cluster) -> list[Manifest] | None:
    return if_allowed(cluster, LIST_NODES, None, lambda: cluster.list(NODE, None))


def _needs_events(seen: ObservedObjects, status: JobStatus) -> bool:
    if status.reason is Reason.IMAGE_UNAVAILABLE:
        return any(is_pull_error_unknown(one) for pod in seen.pods or () for one in read_containers(pod))
    return status.reason in (Reason.STARTING, Reason.WAITING_FOR_PODS)


def _names(seen: ObservedObjects) -> set[str | None]:
    return {text_at(one, "metadata", "name") for one in (seen.job_object, *(seen.pods or ()), *seen.pod_groups)}


def _queue_name(seen: ObservedObjects) -> str:
    names = (text_at(one, "spec", "queue") for one in (seen.job_object, *seen.pod_groups))
    return next((name for name in names if name), "default")


def _queue(cluster: Cluster, seen: ObservedObjects) -> list[Manifest] | None:
    def read() -> list[Manifest]:
        found = cluster.get(VOLCANO_QUEUE, None, _queue_name(seen))
        return [] if found is None else [found]

    return if_allowed(cluster, GET_QUEUE, None, read)


def _same_queue(cluster: Cluster, namespace: str, seen: ObservedObjects) -> list[Manifest]:
    name = _queue_name(seen)
    groups = _everywhere(cluster, VOLCANO_POD_GROUP, namespace)
    return [group for group in groups or () if (text_at(group, "spec", "queue") or "default") == name]


def _everywhere(cluster: Cluster, kind: Kind, namespace: str) -> list[Manifest] | None:
    """List a kind in all namespaces, or in the run's own where no more is allowed."""
    everywhere = LIST_POD_GROUPS if kind is VOLCANO_POD_GROUP else replace(LIST_APP_WRAPPERS, kind=kind)
    found = if_allowed(cluster, everywhere, None, lambda: cluster.list(kind, None))
    if found is not None:
        return found
    own = replace(everywhere, everywhere=False, without="what else waits in the queue is not known")
    return if_allowed(cluster, own, namespace, lambda: cluster.list(kind, namespace))
