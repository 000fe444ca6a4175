"""Read the objects of a run in an AppWrapper, of either version, from the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from torchx_pulumi.kube import PodReader, run_concurrently
from torchx_pulumi.kube.kinds import JOB, Kind
from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.cluster_checks import (
    GET_COSCHEDULERS_GROUP,
    LIST_APP_WRAPPERS,
    LIST_JOBS,
)
from torchx_pulumi.schedulers.appwrapper.kueue_observe import read_admission
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, SIGS_POD_GROUP, X_K8S_POD_GROUP
from torchx_pulumi.schedulers.appwrapper.status import read_mcad
from torchx_pulumi.schedulers.appwrapper.tasks import pods_of_tasks, tasks_of, wrapped_objects
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
from torchx_pulumi.schedulers.pods.rows import read_many

POD_GROUPS = {kind.api_version: kind for kind in (X_K8S_POD_GROUP, SIGS_POD_GROUP)}


def observe_app_wrapper(
    kind: Kind, cluster: PodReader, namespace: str, name: str, expected: Expected = None
) -> ObservedObjects:
    """Read a run whose AppWrapper is of some kind; the other parameters as of `protocol.Observe`."""
    try:
        job_object, listed = run_concurrently(
            lambda: cluster.get(kind, namespace, name),
            lambda: _read_pods(kind, cluster, namespace, name),
        )
    except ClusterError as error:
        # No object can exist of a kind that is not served; the checks of a launch report it.
        if error.retryable or error.reason == "Forbidden" or cluster.serves(kind):
            raise
        return ObservedObjects()
    if job_object is None:
        return ObservedObjects()
    wrapped, tasks = wrapped_objects(job_object), [*tasks_of(job_object)]
    rows = None
    if listed is not None:
        pods, rows = listed
    elif any(task.is_job for task in tasks):
        # The names of its pods are not known.
        pods = None
    else:
        # Only its pods show how an AppWrapper ends.
        pods = get_pods(cluster, namespace, [task.name for task in tasks])
    pods = None if pods is None else tuple(pods_of_tasks(tasks, pods).values())
    observed = ObservedObjects(
        job_object=job_object,
        pods=pods,
        rows=rows,
        listed=listed is not None,
        expected=expected,
        at=datetime.now(timezone.utc),
    )
    lacks_pods = observed.pod_count < sum(task.count for task in tasks)
    if lacks_pods and any(task.is_job for task in tasks):
        observed = replace(observed, jobs=_jobs_of(cluster, namespace, name))
    status = read_status(observed)
    if not status.state.terminal:
        waits = status.state in WAITS
        observed = replace(observed, admission=read_admission(cluster, namespace, job_object, waits=waits))
    observed = with_last_lines(cluster, namespace, observed, status)
    if status.state.terminal or pods is None:
        settled = status.state not in WAITS
    else:
        settled = not lacks_pods and all(replica.state is not JobState.PENDING for replica in status.replicas)
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


def _read_pods(
    kind: Kind, cluster: PodReader, namespace: str, name: str
) -> tuple[Sequence[Manifest], Mapping[str, PodRow] | None] | None:
    """Read the pods as `read_many`. Only its pods, all of them, show how an AppWrapper v1beta1 ends."""
    selector = {labels.UNIQUE_NAME: name}
    if kind == APP_WRAPPER_V1BETA2:
        return read_many(cluster, namespace, selector, many=False)
    pods = list_pods(cluster, namespace, selector)
    return None if pods is None else (pods, None)


def _jobs_of(cluster: PodReader, namespace: str, name: str) -> Sequence[Manifest]:
    """Return the Jobs of an AppWrapper; empty if they may not be listed."""
    selector = {labels.UNIQUE_NAME: name}
    return if_allowed(cluster, LIST_JOBS, namespace, lambda: cluster.list(JOB, namespace, selector)) or ()


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
    return read_mcad(
        observed.job_object,
        observed.pods,
        observed.pod_groups,
        observed.events,
        rows=observed.rows,
        jobs=observed.jobs,
        at=observed.at,
    )


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
