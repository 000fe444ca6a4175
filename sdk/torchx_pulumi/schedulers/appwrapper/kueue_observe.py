"""Read Kueue's objects of a job from the cluster: its Workload and its queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from torchx_pulumi.kube import PodReader, Reader, run_concurrently
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.appwrapper.kueue import Objects, preemptor_uid
from torchx_pulumi.schedulers.appwrapper.objects import (
    CLUSTER_QUEUE,
    COHORT,
    KUEUE_JOB_UID,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    WORKLOAD,
)
from torchx_pulumi.schedulers.appwrapper.phases import kueue_queue
from torchx_pulumi.schedulers.permissions import Permission
from torchx_pulumi.schedulers.pods.observe import if_allowed

LIST_WORKLOADS: Final = Permission(
    verb="list", kind=WORKLOAD, without="why Kueue holds a job back, or evicted it, is not known"
)
GET_LOCAL_QUEUE: Final = Permission(
    verb="get", kind=LOCAL_QUEUE, without="whether Kueue's LocalQueue is missing or stopped is not known"
)
LIST_CLUSTER_QUEUES: Final = Permission(
    verb="list",
    kind=CLUSTER_QUEUE,
    everywhere=True,
    without="how much of Kueue's quota is free, and whether a job can ever have as much, is not known",
)
LIST_COHORTS: Final = Permission(
    verb="list", kind=COHORT, everywhere=True, without="the quota that a ClusterQueue can borrow is not known"
)
LIST_FLAVORS: Final = Permission(
    verb="list", kind=RESOURCE_FLAVOR, everywhere=True, without="which flavors take a job is seen once Kueue judges it"
)
OF_OTHERS: Final = replace(LIST_WORKLOADS, everywhere=True, without="who preempts a job is seen in its namespace only")
PERMISSIONS: Final = (LIST_WORKLOADS, GET_LOCAL_QUEUE, LIST_CLUSTER_QUEUES, LIST_COHORTS, LIST_FLAVORS, OF_OTHERS)


def read_admission(cluster: PodReader, namespace: str, job_object: Manifest, *, waits: bool) -> Objects:
    """Read the Workload of an AppWrapper, and its queues if it waits. Empty: Kueue does not manage it."""
    queue, uid = kueue_queue(job_object), text_at(job_object, "metadata", "uid")
    if queue is None or uid is None:
        return {}
    workloads, queues = run_concurrently(
        lambda: if_allowed(
            cluster, LIST_WORKLOADS, namespace, lambda: cluster.list(WORKLOAD, namespace, {KUEUE_JOB_UID: uid})
        ),
        (lambda: read_queues(cluster, namespace, queue)) if waits else None,
    )
    found: dict[Kind, Sequence[Manifest]] = dict(queues or {})
    if workloads is not None:
        preemptor = preemptor_uid(next(iter(workloads), None))
        found[WORKLOAD] = [*workloads, *(_preemptors(cluster, namespace, preemptor) if preemptor else ())]
    return found


def _preemptors(cluster: PodReader, namespace: str, uid: str) -> list[Manifest]:
    """Read the Workload of a job of any namespace; of its own one, if no more is allowed."""
    selector = {KUEUE_JOB_UID: uid}
    found = if_allowed(cluster, OF_OTHERS, None, lambda: cluster.list(WORKLOAD, None, selector))
    if found is None:
        found = if_allowed(cluster, LIST_WORKLOADS, namespace, lambda: cluster.list(WORKLOAD, namespace, selector))
    return found or []


def read_queues(cluster: Reader, namespace: str, name: str) -> Objects:
    """Read a LocalQueue, all ClusterQueues and Cohorts; of ClusterQueues that may not be listed its own."""
    local, queues, cohorts = run_concurrently(
        lambda: if_allowed(cluster, GET_LOCAL_QUEUE, namespace, lambda: [cluster.get(LOCAL_QUEUE, namespace, name)]),
        lambda: if_allowed(cluster, LIST_CLUSTER_QUEUES, None, lambda: cluster.list(CLUSTER_QUEUE, None)),
        lambda: if_allowed(cluster, LIST_COHORTS, None, lambda: cluster.list(COHORT, None)),
    )
    found: dict[Kind, Sequence[Manifest]] = {}
    if local is not None:
        found[LOCAL_QUEUE] = [one for one in local if one is not None]
    if queues is not None:
        found[CLUSTER_QUEUE] = queues
        if cohorts is not None:
            found[COHORT] = cohorts
    elif own := text_at(next(iter(found.get(LOCAL_QUEUE, ())), None), "spec", "clusterQueue"):
        get = Permission(verb="get", kind=CLUSTER_QUEUE, everywhere=True, without=LIST_CLUSTER_QUEUES.without)
        one = if_allowed(cluster, get, None, partial(cluster.get, CLUSTER_QUEUE, None, own))
        if one is not None:
            found[CLUSTER_QUEUE] = [one]
    return found
