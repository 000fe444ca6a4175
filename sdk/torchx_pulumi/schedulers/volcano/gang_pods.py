"""Render a plan as PodGroup, Service and one Pod per replica (gang=pods), as Volcano's job controller creates them."""

from __future__ import annotations

from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan, RolePlan, TaskPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning.quantities import canonical
from torchx_pulumi.schedulers.pods.template import job_metadata, new_object, render_pod_template
from torchx_pulumi.schedulers.volcano.job import min_available, network_topology
from torchx_pulumi.schedulers.volcano.names import pod_name, task_env
from torchx_pulumi.schedulers.volcano.objects import (
    VOLCANO_JOB_NAME,
    VOLCANO_JOB_NAMESPACE,
    VOLCANO_POD_GROUP,
    VOLCANO_QUEUE_NAME,
    VOLCANO_TASK_INDEX,
    VOLCANO_TASK_SPEC,
)


def render_gang_pods(plan: JobPlan) -> list[Manifest]:
    """Render PodGroup, Service and Pods, in the order of creation. The same plan gives the same bytes."""
    group: Manifest = {
        # No minResources: the scheduler rewrites the quantities and becomes the owner of the field.
        "minMember": sum(min_available(role, task) for role in plan.roles for task in role.tasks),
        "queue": plan.options.queue,
    }
    if plan.options.priority_class is not None:
        group["priorityClassName"] = plan.options.priority_class
    if plan.options.network_topology is not None:
        group["networkTopology"] = network_topology(plan.options.network_topology)
    service = {
        "clusterIP": "None",
        # Replicas resolve rank 0 before it is ready.
        "publishNotReadyAddresses": True,
        "selector": {VOLCANO_JOB_NAME: plan.job_name, VOLCANO_JOB_NAMESPACE: plan.namespace},
    }
    env = variables_of_volcano(plan)
    return [
        new_object(VOLCANO_POD_GROUP, job_metadata(plan), group),
        new_object(SERVICE, job_metadata(plan), service),
        *(_pod(plan, role, task, env) for role in plan.roles for task in role.tasks if task.requested),
    ]


def _pod(plan: JobPlan, role: RolePlan, task: TaskPlan, env: list[tuple[str, str]]) -> Manifest:
    template = render_pod_template(plan, role, task, env)
    name = pod_name(plan.job_name, task.name)
    metadata, spec = template["metadata"], template["spec"]
    metadata.update({"name": name, "namespace": plan.namespace})
    metadata["labels"].update(
        {
            VOLCANO_JOB_NAME: plan.job_name,
            VOLCANO_JOB_NAMESPACE: plan.namespace,
            VOLCANO_QUEUE_NAME: plan.options.queue,
            VOLCANO_TASK_SPEC: task.name,
            VOLCANO_TASK_INDEX: "0",
        }
    )
    metadata.setdefault("annotations", {}).update({labels.GROUP_NAME: plan.job_name, VOLCANO_TASK_SPEC: task.name})
    spec.setdefault("schedulerName", plan.options.scheduler_name)
    spec.setdefault("hostname", name)
    spec.setdefault("subdomain", plan.job_name)
    if plan.options.priority_class is not None:
        spec.setdefault("priorityClassName", plan.options.priority_class)
    for container in spec["containers"]:
        _write_as_stored(container)
    if not spec.get("nodeSelector", True):
        del spec["nodeSelector"]
    return new_object(POD, metadata, spec)


def _write_as_stored(container: Manifest) -> None:
    """Write a container as the API server stores it, so that `up` shows no difference: without empty fields."""
    resources = container.get("resources", {})
    for part in ("limits", "requests"):
        if part in resources:
            resources[part] = {name: canonical(str(quantity)) for name, quantity in resources[part].items()}
    for owner, fields in ((resources, ("limits", "requests")), (container, ("resources", "ports", "securityContext"))):
        for field in fields:
            if not owner.get(field, True):
                del owner[field]
    for mount in container.get("volumeMounts", ()):
        if mount.get("readOnly") is False:
            del mount["readOnly"]
    for env in container["env"]:
        if env.get("value") == "":
            del env["value"]


def variables_of_volcano(plan: JobPlan) -> list[tuple[str, str]]:
    """List the hosts of every replica and the index, as Volcano's plugins svc and env give them to every pod."""
    env: list[tuple[str, str]] = []
    for role in plan.roles:
        for task in role.tasks:
            if task.requested:
                host = f"{pod_name(plan.job_name, task.name)}.{plan.job_name}"
                env += zip(task_env(task.name), (host, "1"), strict=True)
    return [*env, ("VK_TASK_INDEX", "0"), ("VC_TASK_INDEX", "0")]
