"""Requests for the pods of a run, and for objects that explain a wait or a failure: events, nodes and last lines.

All but the pods is optional: without a permission the explanation has less detail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final, TypeVar

from torchx_pulumi.kube import PodReader, Reader, run_concurrently
from torchx_pulumi.kube.kinds import NODE, POD
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at, items_at, text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import STOP_CODES, JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.claims import claims_of
from torchx_pulumi.schedulers.diagnosis.containers import is_pull_error_unknown
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.permissions import GET_PODS, LIST_EVENTS, LIST_NODES, LIST_PODS, Permission, if_permitted
from torchx_pulumi.schedulers.pods.containers import CRASH_LOOP, START_ERRORS, read_containers

Answer = TypeVar("Answer")

AT_ONCE: Final = 16
"""Pods that are requested by name at the same time."""
WAITS = (JobState.PENDING, JobState.SUBMITTED)
UNPLACED = (Reason.UNSCHEDULABLE, Reason.WAITING_IN_QUEUE)
MAX_LINES: Final = 12
MAX_BYTES: Final = 16_000
SILENCE_S: Final = 3.0
"""Longest wait for the node that has the log, in seconds."""
GONE_LOG: Final = "unable to retrieve container logs for "
"""Beginning of the kubelet's text in place of the log of a container that it has removed."""

LATE: Final = datetime.max.replace(tzinfo=timezone.utc)


def list_pods(cluster: PodReader, namespace: str, selector: Mapping[str, str]) -> Sequence[Manifest] | None:
    """Return the pods that match a selector, trimmed, or None if pods may not be listed."""
    return if_permitted(cluster, LIST_PODS, namespace, lambda: cluster.list_pods(namespace, selector).pods)


def get_pods(cluster: PodReader, namespace: str, names: Sequence[str]) -> tuple[Manifest, ...] | None:
    """Return the existing pods among some names, or None if pods may not be read."""

    def read(name: str) -> list[Manifest | None] | None:
        return if_permitted(cluster, GET_PODS, namespace, lambda: [cluster.get(POD, namespace, name)])

    found: list[Manifest] = []
    for start in range(0, len(names), AT_ONCE):
        answers = run_concurrently(*(partial(read, name) for name in names[start : start + AT_ONCE]))
        if None in answers:
            return None
        found += [pod for pods in answers for pod in pods if pod is not None]
    return tuple(found)


def with_last_lines(
    cluster: PodReader, namespace: str, observed: ObservedObjects, status: JobStatus
) -> ObservedObjects:
    """Read the end of the log of the replica that failed first."""
    if status.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return observed
    return replace(observed, last_lines=read_last_lines(cluster, namespace, observed.pods or ()))


def events_of(cluster: PodReader, namespace: str, names: Collection[str | None]) -> tuple[Manifest, ...]:
    """Return the events of objects by the objects' names."""
    return tuple(if_allowed(cluster, LIST_EVENTS, namespace, lambda: cluster.events(namespace, names)) or ())


def if_allowed(
    cluster: Reader, permission: Permission, namespace: str | None, read: Callable[[], Answer]
) -> Answer | None:
    """Return a read that only explains a wait, or None if it is not allowed or not served; see `if_permitted`."""
    try:
        return if_permitted(cluster, permission, namespace, read)
    except ClusterError as error:
        if error.retryable:
            raise
        return None


def read_if(wanted: bool, read: Callable[[], Any]) -> Callable[[], Any] | None:
    """Return a read for `run_concurrently`, if it is wanted."""
    return read if wanted else None


def list_nodes(cluster: PodReader) -> list[Manifest] | None:
    """Return all nodes, or None if they may not be listed."""
    return if_allowed(cluster, LIST_NODES, None, lambda: cluster.list(NODE, None))


def needs_events(observed: ObservedObjects, status: JobStatus) -> bool:
    """Return whether only events can explain a status."""
    if status.reason is Reason.IMAGE_UNAVAILABLE:
        return any(is_pull_error_unknown(one) for pod in observed.pods or () for one in read_containers(pod))
    if status.reason is Reason.UNSCHEDULABLE:
        return any(map(claims_of, observed.pods or ()))
    return status.reason in (Reason.STARTING, Reason.WAITING_FOR_PODS)


def object_names(observed: ObservedObjects) -> set[str | None]:
    """Return the names of the observed objects, and of the claims of their pods."""
    found = (observed.job_object, *(observed.pods or ()), *observed.pod_groups)
    claims = (name for pod in observed.pods or () for name in claims_of(pod))
    return {*(text_at(one, "metadata", "name") for one in found), *claims}


def list_everywhere(cluster: PodReader, permission: Permission, namespace: str) -> list[Manifest]:
    """List the kind of a permission in all namespaces, or in one namespace if no more is allowed."""
    kind = permission.kind
    found = if_allowed(cluster, permission, None, lambda: cluster.list(kind, None))
    if found is None:
        own = replace(permission, everywhere=False, without="what else waits in the queue is not known")
        found = if_allowed(cluster, own, namespace, lambda: cluster.list(kind, namespace))
    return found or []


def read_last_lines(cluster: PodReader, namespace: str, pods: Sequence[Manifest]) -> Mapping[str, str]:
    """Return the last lines of one log by the name of its pod; empty if no pod failed or the log cannot be read."""
    failed = []
    for pod in pods:
        for container in read_containers(pod):
            looping = container.waiting == CRASH_LOOP
            end = container.previous if looping else container.ended
            if end is not None and end.exit_code and end.reason not in START_ERRORS:
                name = text_at(pod, "metadata", "name")
                order = (end.exit_code in STOP_CODES, end.finished_at or LATE, name or "")
                failed.append((order, name, pod, container.name, looping, end))
    if not failed:
        return {}
    _, name, pod, first, previous, end = min(failed, key=lambda one: one[0])
    if end.message is not None or name is None or has_secrets(pod):
        return {}
    try:
        log = cluster.logs(
            namespace,
            name,
            first,
            previous=previous,
            tail_lines=MAX_LINES,
            limit_bytes=MAX_BYTES,
            silence_s=SILENCE_S,
        )
        try:
            text = "\n".join(log)
        finally:
            log.close()
    except ClusterError:
        # The log only explains a failure that is known from the exit code.
        return {}
    return {name: text} if text.strip() and not text.startswith(GONE_LOG) else {}


def has_secrets(pod: Manifest) -> bool:
    """Return whether a pod gets values of Secrets: as variables or as files."""
    containers: list[Observed] = [
        *items_at(pod, "spec", "containers"),
        *items_at(pod, "spec", "initContainers"),
    ]
    variables = (one for container in containers for one in items_at(container, "env"))
    sources = (one for container in containers for one in items_at(container, "envFrom"))
    volumes = items_at(pod, "spec", "volumes")
    return (
        any(at(one, "valueFrom", "secretKeyRef") is not None for one in variables)
        or any(at(one, "secretRef") is not None for one in sources)
        or any(at(one, "secret") is not None for one in volumes)
        or any(at(one, "secret") is not None for volume in volumes for one in items_at(volume, "projected", "sources"))
    )
