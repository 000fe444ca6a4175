"""Read the objects of a run on Volcano from the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from torchx_pulumi.kube import Cluster, run_concurrently
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.planning import names
from torchx_pulumi.schedulers.explaining import WAITS, if_allowed, look_further
from torchx_pulumi.schedulers.permissions import GET_POD_GROUP
from torchx_pulumi.schedulers.pods.observe import AT_ONCE, get_pods, list_pods
from torchx_pulumi.schedulers.protocol import Expected, ObservedObjects
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP
from torchx_pulumi.schedulers.volcano.status import read_gang_pods, read_volcano


def observe_job(cluster: Cluster, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    """Read a Volcano Job, its pods, and what explains why it waits."""
    head, pods = run_concurrently(
        lambda: cluster.get(VOLCANO_JOB, namespace, name),
        lambda: list_pods(cluster, namespace, {VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return ObservedObjects()
    listed = pods is not None
    if not listed:
        pods = get_pods(cluster, namespace, telling_pods(head))
    seen = ObservedObjects(job_object=head, pods=pods, listed=listed, expected=expected, at=datetime.now(timezone.utc))
    status = read_job(seen)
    if not _may_be_unplaced(status):
        return look_further(cluster, namespace, seen, status)
    uid = head["metadata"].get("uid")
    group = if_allowed(
        cluster, GET_POD_GROUP, namespace, lambda: cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{uid}")
    )
    seen = replace(seen, pod_groups=() if group is None else (group,))
    return look_further(cluster, namespace, seen, read_job(seen))


def _may_be_unplaced(status: JobStatus) -> bool:
    """Return whether a run waits and not all of its pods are on nodes: only then its PodGroup says more."""
    replicas = [replica for role in status.roles for replica in role.replicas]
    return status.state in WAITS and not (replicas and all(replica.node for replica in replicas))


def telling_pods(head: Manifest) -> list[str]:
    """Name the pods of a Volcano Job that say more than the job's own counts, at most 16, failed ones first."""
    job = text_at(head, "metadata", "name")
    counts = {task: mapping_at(found, "phase") for task, found in mapping_at(head, "status", "taskStatusCount").items()}
    failed = [task for task, found in counts.items() if found.get("Failed")]
    others = [task for task, found in counts.items() if not found.keys() & {"Running", "Succeeded", "Failed"}]
    return [names.pod_name(str(job), task) for task in (*failed, *others)][:AT_ONCE]


def observe_pods(cluster: Cluster, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    """Read a PodGroup, its pods, and what explains why it waits."""
    head, pods = run_concurrently(
        lambda: cluster.get(VOLCANO_POD_GROUP, namespace, name),
        lambda: list_pods(cluster, namespace, {VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return ObservedObjects(pods=())
    listed = pods is not None
    if not listed and expected:
        pods = get_pods(cluster, namespace, [pod for role in expected.values() for pod in role])
    seen = ObservedObjects(job_object=head, pods=pods, listed=listed, expected=expected, at=datetime.now(timezone.utc))
    return look_further(cluster, namespace, seen, read_pods(seen))


def read_job(seen: ObservedObjects) -> JobStatus:
    """Read the status of a Volcano Job."""
    return read_volcano(seen.job_object, seen.pods, next(iter(seen.pod_groups), None))


def read_pods(seen: ObservedObjects) -> JobStatus:
    """Read the status of the pods of a PodGroup."""
    return read_gang_pods(seen.job_object, seen.pods, seen.expected)
