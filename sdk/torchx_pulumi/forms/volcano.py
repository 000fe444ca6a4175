"""The ways of making a run with Volcano: one Volcano Job, or PodGroup, Service and Pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi import labels, names
from torchx_pulumi.cluster import Cluster, together
from torchx_pulumi.forms.explaining import look_further
from torchx_pulumi.forms.form import Form, Seen
from torchx_pulumi.kinds import POD, VOLCANO_JOB, VOLCANO_POD_GROUP
from torchx_pulumi.plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.status.model import JobStatus
from torchx_pulumi.status.observed import text_at
from torchx_pulumi.status.volcano import read_gang_pods, read_volcano

IMMUTABLE_JOB_FIELDS = (
    "spec.schedulerName", "spec.queue", "spec.maxRetry", "spec.plugins", "spec.policies", "spec.volumes",
    "spec.ttlSecondsAfterFinished", "spec.minSuccess", "spec.networkTopology", "spec.runningEstimate",
    "spec.tasks[*].name", "spec.tasks[*].template", "spec.tasks[*].policies", "spec.tasks[*].maxRetry",
    "spec.tasks[*].dependsOn", "spec.tasks[*].topologyPolicy", "spec.tasks[*].partitionPolicy",
)  # fmt: skip
"""What Volcano's webhook lets nobody change."""


ENDED_PHASES = frozenset({"Completed", "Failed", "Terminated", "Aborted"})


def _look_at_job(cluster: Cluster, namespace: str, name: str) -> Seen:
    head, pods = together(
        lambda: cluster.get(VOLCANO_JOB, namespace, name),
        lambda: cluster.list(POD, namespace, {labels.VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return Seen()
    group = None
    # The controller deletes the PodGroup of a job that has ended.
    if text_at(head, "status", "state", "phase") not in ENDED_PHASES:
        group = cluster.get(VOLCANO_POD_GROUP, namespace, f"{name}-{head['metadata'].get('uid')}")
    groups = () if group is None else (group,)
    seen = Seen(head=head, pods=tuple(pods), pod_groups=groups, at=datetime.now(timezone.utc))
    return look_further(cluster, namespace, seen, _read_job(seen))


def _look_at_pods(cluster: Cluster, namespace: str, name: str) -> Seen:
    head, pods = together(
        lambda: cluster.get(VOLCANO_POD_GROUP, namespace, name),
        lambda: cluster.list(POD, namespace, {labels.VOLCANO_JOB_NAME: name}),
    )
    if head is None:
        return Seen(pods=())
    seen = Seen(head=head, pods=tuple(pods), at=datetime.now(timezone.utc))
    return look_further(cluster, namespace, seen, _read_pods(seen))


def _read_job(seen: Seen) -> JobStatus:
    return read_volcano(seen.head, seen.pods or (), next(iter(seen.pod_groups), None))


def _read_pods(seen: Seen) -> JobStatus:
    return read_gang_pods(seen.head, seen.pods or ())


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
