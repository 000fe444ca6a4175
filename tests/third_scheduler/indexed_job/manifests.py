"""Plan to manifests: one Indexed Job, and the headless Service by which replicas find rank 0."""

from __future__ import annotations

from torchx_pulumi.kube.kinds import SERVICE, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import JobPlan, TaskPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning.macros import RANK0_HOST_ENV
from torchx_pulumi.schedulers.pods.template import job_metadata, render_pod_template

from tests.third_scheduler.indexed_job.options import IndexedJobOptions

Plan = JobPlan[IndexedJobOptions]

# region render
JOB = Kind(group="batch", version="v1", kind="Job", plural="jobs")


def render(plan: Plan) -> list[Manifest]:
    """Render the Job and its Service; the object that stands for the run is first."""
    (role,) = plan.roles
    job: Manifest = {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": _not_awaited(job_metadata(plan)),
        "spec": {
            "completionMode": "Indexed",
            "completions": role.replicas,
            "parallelism": role.replicas,
            "backoffLimit": role.max_retries,
            "template": _pod_template(plan),
        },
    }
    if plan.options.active_deadline_s is not None:
        job["spec"]["activeDeadlineSeconds"] = plan.options.active_deadline_s
    service = {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": job_metadata(plan),
        "spec": {
            "clusterIP": "None",
            # Replicas look for rank 0 before it is ready.
            "publishNotReadyAddresses": True,
            "selector": {labels.UNIQUE_NAME: plan.job_name},
        },
    }
    return [job, service]


def pod_name(plan: Plan, task: TaskPlan, _position: int = 0) -> str:
    """Return the host name of a replica. The Job controller adds random letters to it in the name of the pod."""
    return f"{plan.job_name}-{task.index}"


# endregion


def _not_awaited(metadata: Manifest) -> Manifest:
    # Pulumi's Kubernetes provider waits for the end of a Job; a launch ends when the objects are created.
    return {**metadata, "annotations": {**metadata.get("annotations", {}), "pulumi.com/skipAwait": "true"}}


def _pod_template(plan: Plan) -> Manifest:
    (role,) = plan.roles
    rank0 = role.tasks[0]
    template = render_pod_template(plan, role, rank0)
    # The template is of all replicas: the index comes from the controller, and rank 0 finds itself by its host name.
    del template["metadata"]["labels"][labels.REPLICA_ID]
    spec = template["spec"]
    spec["subdomain"] = plan.job_name
    if plan.options.priority_class is not None:
        spec["priorityClassName"] = plan.options.priority_class
    for variable in spec["containers"][0]["env"]:
        if variable["name"] == RANK0_HOST_ENV:
            variable["value"] = f"{pod_name(plan, rank0)}.{plan.job_name}"
    return template
