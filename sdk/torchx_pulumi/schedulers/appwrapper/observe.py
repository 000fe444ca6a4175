"""Read the objects of a run in an AppWrapper, of either version, from the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from torchx_pulumi.kube import PodReader, run_concurrently
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.cluster_checks import GET_COSCHEDULERS_GROUP, LIST_APP_WRAPPERS
from torchx_pulumi.schedulers.appwrapper.objects import SIGS_POD_GROUP, X_K8S_POD_GROUP
from torchx_pulumi.schedulers.appwrapper.phases import wrapped_objects
from torchx_pulumi.schedulers.appwrapper.status import read_mcad
from torchx_pulumi.schedulers.diagnosis.evidence import Expected, ObservedObjects
from torchx_pulumi.schedulers.pods.observe import (
    WAITS,
    events_of,
    get_pods,
    if_allowed,
    list_everywhere,
    list_nodes,
    list_pods,
    object_names,
    read_if,
    with_last_lines,
)

POD_GROUPS = {kind.api_version: kind for kind in (X_K8S_POD_GROUP, SIGS_POD_GROUP)}


def observe_app_wrapper(
    kind: Kind, cluster: PodReader, namespace: str, name: str, expected: Expected = None
) -> ObservedObjects:
    """Read a run whose AppWrapper is of some kind; the other parameters as of `protocol.Observe`."""
    try:
        job_object, listed = run_concurrently(
            lambda: cluster.get(kind, namespace, name),
            lambda: list_pods(cluster, namespace, {labels.UNIQUE_NAME: name}),
        )
    except ClusterError as error:
        # No object can exist of a kind that is not served; the checks of a launch report it.
        if error.retryable or error.reason == "Forbidden" or cluster.serves(kind):
            raise
        return ObservedObjects()
    if job_object is None:
        return ObservedObjects()
    wrapped = wrapped_objects(job_object)
    mine = [text_at(item, "metadata", "name") or "" for item in wrapped if item.get("kind") == POD.kind]
    may_list = listed is not None
    if not may_list:
        # Only its pods show how an AppWrapper ends.
        listed = get_pods(cluster, namespace, mine)
    known = set(mine)
    pods = None if listed is None else tuple(pod for pod in listed if text_at(pod, "metadata", "name") in known)
    observed = ObservedObjects(
        job_object=job_object, pods=pods, listed=may_list, expected=expected, at=datetime.now(timezone.utc)
    )
    status = read_status(observed)
    observed = with_last_lines(cluster, namespace, observed, status)
    if status.state.terminal or pods is None:
        settled = status.state not in WAITS
    else:
        settled = len(pods) == len(mine) and all(text_at(pod, "status", "phase") != "Pending" for pod in pods)
    if settled:
        # No pod waits for anything.
        return observed
    groups, events = run_concurrently(
        lambda: tuple(_pod_groups_in(cluster, namespace, wrapped)),
        lambda: events_of(
            cluster, namespace, object_names(observed) | {text_at(one, "metadata", "name") for one in wrapped}
        ),
    )
    observed = replace(observed, pod_groups=groups, events=events)
    return _explain_wait(cluster, kind, namespace, observed, read_status(observed))


def _pod_groups_in(cluster: PodReader, namespace: str, wrapped: Sequence[Observed]) -> Iterator[Manifest]:
    for item in wrapped:
        kind = POD_GROUPS.get(text_at(item, "apiVersion") or "")
        if kind is None:
            continue
        asked = replace(GET_COSCHEDULERS_GROUP, kind=kind)
        group = if_allowed(cluster, asked, namespace, partial(cluster.get, kind, namespace, item["metadata"]["name"]))
        if group is not None:
            yield group


def read_status(observed: ObservedObjects) -> JobStatus:
    """Read the status of an AppWrapper and its pods."""
    return read_mcad(observed.job_object, observed.pods, observed.pod_groups, observed.events, at=observed.at)


def _explain_wait(
    cluster: PodReader, kind: Kind, namespace: str, observed: ObservedObjects, status: JobStatus
) -> ObservedObjects:
    """Read the objects that can explain why an AppWrapper waits: nodes and the other AppWrappers."""
    if status.state not in WAITS:
        return observed
    pending = text_at(observed.job_object, "status", "state") == "Pending"
    nodes, neighbours = run_concurrently(
        read_if(status.reason is Reason.UNSCHEDULABLE, lambda: list_nodes(cluster)),
        read_if(pending, lambda: list_everywhere(cluster, replace(LIST_APP_WRAPPERS, kind=kind), namespace)),
    )
    return replace(observed, nodes=nodes, neighbours=tuple(neighbours or ()))
