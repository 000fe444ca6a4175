"""Read the objects of a run on Volcano from the cluster."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from torchx_pulumi.kube import PodReader, run_concurrently
from torchx_pulumi.kube.kinds import NAMESPACE
from torchx_pulumi.model import labels
from torchx_pulumi.model.object_fields import is_being_deleted, mapping_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Expected, ObservedObjects
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.schedulers.permissions import GET_NAMESPACES, LIST_PODS, if_permitted
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
from torchx_pulumi.schedulers.pods.status import UNREADABLE
from torchx_pulumi.schedulers.volcano.cluster_checks import GET_POD_GROUP, GET_QUEUE, LIST_POD_GROUPS
from torchx_pulumi.schedulers.volcano.diagnosis import is_queue_gone, queue_of
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP, VOLCANO_QUEUE
from torchx_pulumi.schedulers.volcano.status import PHASES, read_gang_pods, read_volcano
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
    unattended = _may_be_unattended(observed, status)
    if status.state not in WAITS or is_placed:
        # Its PodGroup says no more.
        return _explain_wait(cluster, namespace, observed, status, unattended=unattended)
    uid = job_object["metadata"].get("uid")
    group = if_allowed(
        cluster, GET_POD_GROUP, namespace, lambda: [cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{uid}")]
    )
    groups = tuple(one for one in group or () if one is not None)
    observed = replace(observed, pod_groups=groups, lacks_group=group is not None and not groups)
    return _explain_wait(cluster, namespace, observed, read_job(observed), unattended=unattended)


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
    return read_volcano(
        observed.job_object,
        observed.pods,
        next(iter(observed.pod_groups), None),
        observed.rows,
        unattended=is_queue_gone(observed) or is_being_deleted(observed.namespace),
        at=observed.at,
    )


def read_pods(observed: ObservedObjects) -> JobStatus:
    """Read the status of the pods of a PodGroup."""
    return read_gang_pods(observed.job_object, observed.pods, observed.expected)


def queue_amounts(queue: Manifest) -> tuple[dict[str, float], dict[str, float]]:
    """Return limits and allocation of a queue; see `SchedulerBackend.queue_amounts`."""

    def read(values: Mapping[str, object]) -> dict[str, float]:
        return {name: amount(values[key]) for name, key in (("cpu", "cpu"), ("gpu", labels.GPU)) if key in values}

    return read(mapping_at(queue, "spec", "capability")), read(mapping_at(queue, "status", "allocated"))


def _explain_wait(
    cluster: PodReader, namespace: str, observed: ObservedObjects, status: JobStatus, *, unattended: bool = False
) -> ObservedObjects:
    """Read the objects that can explain why a run waits: events, nodes, its queue and the other jobs of the queue.

    `unattended`: its controller may not look at it.
    """
    observed = with_last_lines(cluster, namespace, observed, status)
    waits, name = status.state in WAITS, queue_of(observed)
    if not waits and not unattended and status.reason is not Reason.IMAGE_UNAVAILABLE:
        return observed
    queued = status.reason is Reason.WAITING_IN_QUEUE

    def queue() -> list[Manifest] | None:
        def read() -> list[Manifest]:
            found = cluster.get(VOLCANO_QUEUE, None, name)
            return [] if found is None else [found]

        return if_allowed(cluster, GET_QUEUE, None, read)

    def same_queue() -> list[Manifest]:
        groups = list_everywhere(cluster, LIST_POD_GROUPS, namespace)
        return [group for group in groups if (text_at(group, "spec", "queue") or "default") == name]

    # Why its pods cannot be made is in no other object. A queue that has not let it in is asked for none.
    lacking = unattended and not queued and _lacks_pods(observed, status)
    events, nodes, queues, neighbours, space = run_concurrently(
        read_if(
            queued or lacking or needs_events(observed, status),
            lambda: events_of(cluster, namespace, object_names(observed)),
        ),
        read_if(status.reason in UNPLACED, lambda: list_nodes(cluster)),
        read_if(status.reason in UNPLACED or unattended, queue),
        read_if(queued, same_queue),
        read_if(
            lacking, lambda: if_allowed(cluster, GET_NAMESPACES, None, lambda: cluster.get(NAMESPACE, None, namespace))
        ),
    )
    return replace(
        observed,
        events=tuple(events or ()),
        nodes=nodes,
        queues=queues,
        neighbours=tuple(neighbours or ()),
        namespace=space,
    )


def _may_be_unattended(observed: ObservedObjects, status: JobStatus) -> bool:
    """Return whether Volcano has something to do for a job: note that it runs or has ended, or make pods."""
    if status.state in WAITS:
        return True
    if status.phase == "Terminated":
        return status.state is JobState.FAILED and all(one.state is not JobState.FAILED for one in status.replicas)
    if PHASES.get(status.phase or "", UNREADABLE)[0] is not JobState.RUNNING:
        return False
    ended = [replica.state.terminal for replica in status.replicas]
    return _lacks_pods(observed, status) or (bool(ended) and all(ended))


def _lacks_pods(observed: ObservedObjects, status: JobStatus) -> bool:
    return observed.listed and observed.pod_count < len(status.replicas)
