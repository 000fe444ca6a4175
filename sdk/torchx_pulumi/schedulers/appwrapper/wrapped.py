"""Render the objects in an AppWrapper of either version: PodGroups, Pods or Indexed Jobs, and their Service."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.kube.kinds import JOB, POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan, RolePlan, TaskPlan
from torchx_pulumi.model.options import Manifest, TaskLayout
from torchx_pulumi.planning import names
from torchx_pulumi.planning.quantities import service_port
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER_LABEL,
    NETWORKS,
    POD_GROUP_SIGS,
    POD_GROUP_X_K8S,
    SIGS_POD_GROUP,
    X_K8S_POD_GROUP,
)
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions, PodGroupVersion
from torchx_pulumi.schedulers.pods.template import new_object, render_pod_template

POD_GROUP_APIS = {
    PodGroupVersion.X_K8S: (X_K8S_POD_GROUP, POD_GROUP_X_K8S),
    PodGroupVersion.SIGS: (SIGS_POD_GROUP, POD_GROUP_SIGS),
}
"""Kind of the PodGroups, and label by which a pod belongs to one."""


RANDOM_LETTERS = 5
"""Letters that the API server adds to the name of a Job's pod."""


def object_name(app_id: str, tail: str, room: int = 0) -> str:
    """Name an object of a job: `<app id>-<tail>`; one that would be too long has a hash in place of the id's end.

    `room` is the number of characters that names of others add to it.

    >>> object_name("train-x1", "trainer-3")
    'train-x1-trainer-3'
    >>> object_name("n" * 60, "trainer-3")
    'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-a7220872-trainer-3'
    >>> len(object_name("n" * 60, "trainer-3", room=20)), object_name("n" * 60, "r" * 40 + "-1", room=12)
    (43, 'a7220872-rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr-1')
    """
    whole, most = f"{app_id}-{tail}", names.MAX_LABEL - room
    if len(whole) <= most:
        return whole
    stem = app_id[: max(most - len(tail) - names.HASH_LENGTH - 2, 0)].rstrip("-")
    return "-".join(filter(None, (stem, names.short_hash(app_id), tail)))


def hosts_env(role: str) -> str:
    """Name the variable with the host of rank 0 in every pod.

    As TorchX (`kubernetes_mcad_scheduler.py`): without dashes, and without digits at the start.

    >>> hosts_env("my-train"), hosts_env("3d-net")
    ('TORCHX_MCAD_MYTRAIN_0_HOSTS', 'TORCHX_MCAD_DNET_0_HOSTS')
    """
    return f"TORCHX_MCAD_{role.lstrip('0123456789').replace('-', '').upper()}_0_HOSTS"


def job_name(plan: JobPlan[MCADOptions], task: TaskPlan) -> str:
    """Name the Indexed Job of a task, so that the names of its pods are valid host names."""
    return object_name(plan.job_name, task.name, room=len(f"-{task.count - 1}-") + RANDOM_LETTERS)


def pod_name(plan: JobPlan[MCADOptions], task: TaskPlan, position: int = 0) -> str:
    """Name a replica's pod and its container; unlike TorchX's, the name has the role in it.

    In the layout `role` it is the host name; the pod has more letters.
    """
    if plan.layout is TaskLayout.ROLE:
        return f"{job_name(plan, task)}-{position}"
    return object_name(plan.job_name, task.name)


def rank0_variable(plan: JobPlan[MCADOptions]) -> list[tuple[str, str]]:
    """Return name and value of the variable with the host of rank 0, which every container has."""
    first = plan.roles[0]
    return [(hosts_env(first.dns_name), f"{pod_name(plan, first.tasks[0])}.{plan.job_name}")]


def pod_group_name(plan: JobPlan[MCADOptions], role: RolePlan) -> str:
    """Name the PodGroup of a role."""
    return object_name(plan.job_name, f"pg{role.index}")


def render_pod_groups(plan: JobPlan[MCADOptions]) -> list[Manifest]:
    """Render a PodGroup for each role; none without a coscheduler."""
    if plan.options.coscheduler_name is None:
        return []
    kind, _ = POD_GROUP_APIS[PodGroupVersion(plan.options.pod_group_api)]
    own = {**_object_labels(plan), APP_WRAPPER_LABEL: plan.job_name}
    return [
        new_object(
            kind,
            {"name": pod_group_name(plan, role), "namespace": plan.namespace, "labels": dict(own)},
            {"minMember": role.replicas},
        )
        for role in plan.roles
    ]


def render_pods(plan: JobPlan[MCADOptions]) -> list[Manifest]:
    """Render the pods of the layout `replica` in rank order."""
    return [_pod(plan, role, task) for role in plan.roles for task in role.tasks if task.requested]


def render_jobs(plan: JobPlan[MCADOptions]) -> list[Manifest]:
    """Render the Indexed Jobs of the layout `role` in rank order."""
    return [_job(plan, role, task) for role in plan.roles for task in role.tasks]


def render_service(plan: JobPlan[MCADOptions]) -> Manifest:
    """Render the headless Service by which replicas find rank 0."""
    port = service_port(role.port_map for role in plan.spec.roles)
    metadata = {"name": plan.job_name, "namespace": plan.namespace, "labels": _object_labels(plan)}
    spec = {
        "clusterIP": "None",
        "ports": [{"port": port, "protocol": "TCP", "targetPort": port}],
        # Replicas resolve rank 0 before it is ready.
        "publishNotReadyAddresses": True,
        "selector": {labels.UNIQUE_NAME: plan.app_id},
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    return {**new_object(SERVICE, metadata, spec), "status": {"loadBalancer": {}}}


def _object_labels(plan: JobPlan[MCADOptions]) -> Manifest:
    return {
        labels.KUBE_APP_NAME: names.label_value(plan.spec.name),
        labels.ORGANIZATION: labels.ORGANIZATION_VALUE,
        labels.UNIQUE_NAME: plan.app_id,
    }


def _job(plan: JobPlan[MCADOptions], role: RolePlan, task: TaskPlan) -> Manifest:
    """Render the Indexed Job of a task. Its controller sets the host name of each pod, `<job>-<index>`."""
    metadata = {"name": job_name(plan, task), "namespace": plan.namespace, "labels": _object_labels(plan)}
    template = _template(plan, role, task)
    template["spec"].setdefault("subdomain", plan.job_name)
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": task.count,
        "parallelism": task.count,
        # The other pods stay when one fails or is deleted: the operator decides about all of them. With a backoffLimit
        # of 0 the Job would delete them, and their logs would be lost.
        "backoffLimitPerIndex": 0,
        "template": template,
    }
    return new_object(JOB, metadata, spec)


def _pod(plan: JobPlan[MCADOptions], role: RolePlan, task: TaskPlan) -> Manifest:
    name = pod_name(plan, task)
    template = _template(plan, role, task)
    metadata, spec = template["metadata"], template["spec"]
    metadata.update({"name": name, "namespace": plan.namespace})
    spec.setdefault("hostname", name)
    spec.setdefault("subdomain", plan.job_name)
    for container in spec["containers"]:
        # An overlay knows the container by the same name under every scheduler.
        if container.get("name") == task.name:
            container["name"] = name
    return new_object(POD, metadata, spec)


def _template(plan: JobPlan[MCADOptions], role: RolePlan, task: TaskPlan) -> Manifest:
    """Render metadata and spec of the pods of a task."""
    options = plan.options
    template = render_pod_template(plan, role, task, rank0_variable(plan))
    metadata, spec = template["metadata"], template["spec"]
    if options.network is not None:
        metadata.setdefault("annotations", {})[NETWORKS] = options.network
    if options.coscheduler_name is not None:
        _, label = POD_GROUP_APIS[PodGroupVersion(options.pod_group_api)]
        metadata["labels"][label] = pod_group_name(plan, role)
        spec.setdefault("schedulerName", options.coscheduler_name)
    if options.priority_class is not None:
        spec.setdefault("priorityClassName", options.priority_class)
    return template
