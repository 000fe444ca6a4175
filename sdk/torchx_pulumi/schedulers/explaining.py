"""Reads that explain why a run waits or failed: events, nodes and last lines. All of them are optional."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import EVENT, NODE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.containers import is_pull_error_unknown
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.permissions import LIST_EVENTS, LIST_NODES, Permission, if_permitted
from torchx_pulumi.schedulers.pods.containers import read_containers
from torchx_pulumi.schedulers.pods.last_lines import read_last_lines

Answer = TypeVar("Answer")

WAITS = (JobState.PENDING, JobState.SUBMITTED)
UNPLACED = (Reason.UNSCHEDULABLE, Reason.WAITING_IN_QUEUE)


def with_last_lines(cluster: Cluster, namespace: str, seen: ObservedObjects, status: JobStatus) -> ObservedObjects:
    """Read the end of the log of the replica that failed first."""
    if status.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return seen
    return replace(seen, last_lines=read_last_lines(cluster, namespace, seen.pods or ()))


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


def read_if(wanted: bool, read: Callable[[], Any]) -> Callable[[], Any]:
    """Return a read, or one that returns None without a request."""
    return read if wanted else (lambda: None)


def list_nodes(cluster: Cluster) -> list[Manifest] | None:
    """Return all nodes. None: they may not be listed."""
    return if_allowed(cluster, LIST_NODES, None, lambda: cluster.list(NODE, None))


def needs_events(seen: ObservedObjects, status: JobStatus) -> bool:
    """Return whether only events can explain a status."""
    if status.reason is Reason.IMAGE_UNAVAILABLE:
        return any(is_pull_error_unknown(one) for pod in seen.pods or () for one in read_containers(pod))
    return status.reason in (Reason.STARTING, Reason.WAITING_FOR_PODS)


def object_names(seen: ObservedObjects) -> set[str | None]:
    """Return the names of the observed objects."""
    return {text_at(one, "metadata", "name") for one in (seen.job_object, *(seen.pods or ()), *seen.pod_groups)}


def list_everywhere(cluster: Cluster, permission: Permission, namespace: str) -> list[Manifest]:
    """List a kind in all namespaces, or in one namespace where no more is allowed. Empty: neither is.

    Args:
        cluster: The cluster.
        permission: Permission to list the kind in all namespaces.
        namespace: The one namespace.
    """
    kind = permission.kind
    found = if_allowed(cluster, permission, None, lambda: cluster.list(kind, None))
    if found is None:
        own = replace(permission, everywhere=False, without="what else waits in the queue is not known")
        found = if_allowed(cluster, own, namespace, lambda: cluster.list(kind, namespace))
    return found or []
