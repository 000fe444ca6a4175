"""The ways of making a run with Volcano: one Volcano Job, or PodGroup, Service and Pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.kube import Cluster, run_concurrently
from torchx_pulumi.kube.kinds import VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.planning import names
from torchx_pulumi.schedulers.explaining import WAITS, if_allowed, look_further
from torchx_pulumi.schedulers.permissions import GET_POD_GROUP
from torchx_pulumi.schedulers.pods.observe import AT_ONCE, get_pods, list_pods
from torchx_pulumi.schedulers.protocol import Expected, Form, ObservedObjects
from torchx_pulumi.schedulers.volcano.status import read_gang_pods, read_volcano

IMMUTABLE_JOB_FIELDS = (
    "spec.schedulerName", "spec.queue", "spec.maxRetry", "spec.plugins", "spec.policies", "spec.volumes",
    "spec.ttlSecondsAfterFinished", "spec.minSuccess", "spec.networkTopology", "spec.runningEstimate",
    "spec.tasks[*].name", "spec.tasks[*].template", "spec.tasks[*].policies", "spec.tasks[*].maxRetry",
    "spec.tasks[*].dependsOn", "spec.tasks[*].topologyPolicy", "spec.tasks[*].partitionPolicy",
)  # fmt: skip
"""What Volcano's webhook lets nobody change."""


def _look_at_job(cluster: Cluster, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    head, pods = run_concurrently(
        lambda: cluster.get(VOLCANO_JOB, namespace, name),
        lambda: list_pods(cluster, namespace, {labels.VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return ObservedObjects()
    listed = pods is not None
    if not listed:
        pods = get_pods(cluster, namespace, telling_pods(head))
    seen = ObservedObjects(head=head, pods=pods, listed=listed, expected=expected, at=datetime.now(timezone.utc))
    status = _read_job(seen)
    if not _may_be_unplaced(status):
        return look_further(cluster, namespace, seen, status)
    uid = head["metadata"].get("uid")
    group = if_allowed(
        cluster, GET_POD_GROUP, namespace, lambda: cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{uid}")
    )
    seen = replace(seen, pod_groups=() if group is None else (group,))
    return look_further(cluster, namespace, seen, _read_job(seen))


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


def _look_at_pods(cluster: Cluster, namespace: str, name: str, expected: Expected = None) -> ObservedObjects:
    head, pods = run_concurrently(
        lambda: cluster.get(VOLCANO_POD_GROUP, namespace, name),
        lambda: list_pods(cluster, namespace, {labels.VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return ObservedObjects(pods=())
    listed = pods is not None
    if not listed and expected:
        pods = get_pods(cluster, namespace, [pod for role in expected.values() for pod in role])
    seen = ObservedObjects(head=head, pods=pods, listed=listed, expected=expected, at=datetime.now(timezone.utc))
    return look_further(cluster, namespace, seen, _read_pods(seen))


def _read_job(seen: ObservedObjects) -> JobStatus:
    return read_volcano(seen.head, seen.pods, next(iter(seen.pod_groups), None))


def _read_pods(seen: ObservedObjects) -> JobStatus:
    return read_gang_pods(seen.head, seen.pods, seen.expected)


def _pod_name(plan: JobPlan[Any], replica: ReplicaPlan) -> str:
    return names.pod_name(plan.job_name, replica.name)


def _service(plan: JobPlan[Any]) -> str:
    return plan.job_name if "svc" in plan.options.job_plugins else ""


def _pod_groups_of_job(plan: JobPlan[Any], _roles: Sequence[RolePlan], uid: str) -> list[str]:
    return [f"{plan.job_name}-{uid}"] if uid else []


def _pod_groups_of_pods(plan: JobPlan[Any], _roles: Sequence[RolePlan], _uid: str) -> list[str]:
    return [plan.job_name]


JOB = Form(
    scheduler="volcano",
    head=VOLCANO_JOB,
    look=_look_at_job,
    read=_read_job,
    pod_name=_pod_name,
    service=_service,
    pod_groups=_pod_groups_of_job,
    name_tail=names.longest_tail,
    kept_fields=IMMUTABLE_JOB_FIELDS,
    pod_groups_by_uid=True,
)

PODS = Form(
    scheduler="volcano",
    head=VOLCANO_POD_GROUP,
    look=_look_at_pods,
    read=_read_pods,
    pod_name=_pod_name,
    service=lambda plan: plan.job_name,
    pod_groups=_pod_groups_of_pods,
    name_tail=names.longest_tail,
    kept_fields=("spec.queue",),
    makes_pods=True,
)
