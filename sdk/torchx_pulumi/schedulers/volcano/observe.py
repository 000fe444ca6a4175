"""Read the objects of a run on Volcano from the cluster."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from torchx_pulumi.kube import PodReader, run_concurrently
from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Expected, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.schedulers.permissions import LIST_PODS, if_permitted
from torchx_pulumi.schedulers.pods.observe import (
    AT_ONCE,
    UNPLACED,
    WAITS,
    events_of,
    get_pods,
    if_allowed,
    list_everywhere,
    list_nodes,
    needs_events,
    object_names,
    read_if,
    with_last_lines,
)
from torchx_pulumi.schedulers.pods.rows import MOST_WHOLE, read_many
from torchx_pulumi.schedulers.volcano.cluster_checks import GET_POD_GROUP, GET_QUEUE, LIST_POD_GROUPS
from torchx_pulumi.schedulers.volcano.diagnosis import queue_of
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from torchx_pulumi.schedulers.volcano.status import read_gang_pods, read_volcano
from torchx_pulumi.schedulers.volcano.tasks import tasks_of


def observe_job(cluster: PodReader, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    """Read a Volcano Job, its pods, and what explains why it waits."""
    many = sum(map(len, (expected or {}).values())) > MOST_WHOLE
    job_object, read = run_concurrently(
        lambda: cluster.get(VOLCANO_JOB, namespace, name),
        lambda: read_many(cluster, namespace, {VOLCANO_JOB_NAME: name}, many=many),
    )
    if job_object is None:
        return ObservedObjects()
    pods, rows = read or (get_pods(cluster, namespace, telling_pods(job_object)), None)
    observed = ObservedObjects(
        job_object=job_object,
        pods=pods,
        rows=rows,
        listed=read is not None,
        expected=expected,
        at=datetime.now(timezone.utc),
    )
    status = read_job(observed)
    is_placed = status.replicas and all(replica.node for replica in status.replicas)
    if status.state not in WAITS or is_placed:
        # Its PodGroup says no more.
        return _explain_wait(cluster, namespace, observed, status)
    uid = job_object["metadata"].get("uid")
    group = if_allowed(
        cluster, GET_POD_GROUP, namespace, lambda: cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{uid}")
    )
    observed = replace(observed, pod_groups=() if group is None else (group,))
    return _explain_wait(cluster, namespace, observed, read_job(observed))


def telling_pods(job_object: Manifest) -> list[str]:
    """Return the names of pods that explain more than the counts of a Volcano Job: at most 16.

    Pods of tasks with failed pods come first, then those of tasks without a started pod; of each task the first ones.
    """
    tasks = [*tasks_of(job_object)]
    counts = {
        task: mapping_at(found, "phase") for task, found in mapping_at(job_object, "status", "taskStatusCount").items()
    }
    failed = [task for task in tasks if counts.get(task.name, {}).get("Failed")]
    others = [
        task
        for task in tasks
        if task.name in counts and not counts[task.name].keys() & {"Running", "Succeeded", "Failed"}
    ]
    places = itertools.product((failed, others), range(AT_ONCE))
    told = (task.pod_name(place) for group, place in places for task in group if place < task.count)
    return list(itertools.islice(told, AT_ONCE))


def observe_pods(cluster: PodReader, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    """Read a PodGroup, its pods, and what explains why it waits."""
    job_object, found = run_concurrently(
        lambda: cluster.get(VOLCANO_POD_GROUP, namespace, name),
        lambda: if_permitted(
            cluster, LIST_PODS, namespace, lambda: cluster.list_pods(namespace, {VOLCANO_JOB_NAME: name})
        ),
    )
    if job_object is None:
        return ObservedObjects(pods=())
    listed, pods = found is not None, None if found is None else found.pods
    if not listed and expected:
        pods = get_pods(cluster, namespace, [pod for role in expected.values() for pod in role])
    observed = ObservedObjects(
        job_object=job_object,
        pods=pods,
        version=None if found is None else found.version,
        listed=listed,
        expected=expected,
        at=datetime.now(timezone.utc),
    )
    return _explain_wait(cluster, namespace, observed, read_pods(observed))


def read_job(observed: ObservedObjects) -> JobStatus:
    """Read the status of a Volcano Job."""
    return read_volcano(observed.job_object, observed.pods, next(iter(observed.pod_groups), None), observed.rows)


def read_pods(observed: ObservedObjects) -> JobStatus:
    """Read the status of the pods of a PodGroup."""
    return read_gang_pods(observed.job_object, observed.pods, observed.expected)


def queue_amounts(queue: Manifest) -> tuple[dict[str, float], dict[str, float]]:
    """Return what the jobs of a queue may use and what they were given; see `SchedulerBackend.queue_amounts`."""

    def read(values: Mapping[str, object]) -> dict[str, float]:
        return {name: amount(values[key]) for name, key in (("cpu", "cpu"), ("gpu", labels.GPU)) if key in values}

    return read(mapping_at(queue, "spec", "capability")), read(mapping_at(queue, "status", "allocated"))


def _explain_wait(cluster: PodReader, namespace: str, observed: ObservedObjects, status: JobStatus) -> ObservedObjects:
    """Read the objects that can explain why a run waits: events, nodes, its queue and the other jobs of the queue."""
    observed = with_last_lines(cluster, namespace, observed, status)
    if status.state not in WAITS and status.reason is not Reason.IMAGE_UNAVAILABLE:
        return observed
    queued, name = status.reason is Reason.WAITING_IN_QUEUE, queue_of(observed)

    def queue() -> list[Manifest] | None:
        def read() -> list[Manifest]:
            found = cluster.get(VOLCANO_QUEUE, None, name)
            return [] if found is None else [found]

        return if_allowed(cluster, GET_QUEUE, None, read)

    def same_queue() -> list[Manifest]:
        groups = list_everywhere(cluster, LIST_POD_GROUPS, namespace)
        return [group for group in groups if (text_at(group, "spec", "queue") or "default") == name]

    events, nodes, queues, neighbours = run_concurrently(
        read_if(
            queued or needs_events(observed, status), lambda: events_of(cluster, namespace, object_names(observed))
        ),
        read_if(status.reason in UNPLACED, lambda: list_nodes(cluster)),
        read_if(queued, queue),
        read_if(queued, same_queue),
    )
    return replace(observed, events=tuple(events or ()), nodes=nodes, queues=queues, neighbours=tuple(neighbours or ()))
