"""Render a plan as a Volcano Job (batch.volcano.sh/v1alpha1), one task per replica: their macros differ."""

from __future__ import annotations

from torchx_pulumi.model.job_plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.pods.template import job_metadata, render_pod_template
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.schedulers.volcano.options import NetworkTopology

DEFAULT_MAX_RETRY = 3
"""Retries that Volcano's webhook sets in a task without them (`jobs/mutate/mutate_job.go`). If the webhook set them, it
would also rewrite the quantities of the task, and the next `up` would show a change of a running job."""

RETRY_POLICIES = {
    "APPLICATION": ({"event": "PodEvicted", "action": "RestartJob"}, {"event": "PodFailed", "action": "RestartJob"}),
    # A task is one replica. An evicted pod needs no policy: Volcano creates it again and does not count a retry.
    "REPLICA": ({"event": "PodFailed", "action": "RestartTask"},),
}


def render_volcano(plan: JobPlan) -> Manifest:
    """Render the Volcano Job. The same plan gives the same bytes."""
    tasks = [_task(plan, role, replica) for role in plan.roles for replica in role.replica_plans]
    return {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": VOLCANO_JOB.kind,
        "metadata": job_metadata(plan),
        "spec": _job_spec(plan, tasks),
    }


def min_available(role: RolePlan, replica: ReplicaPlan) -> int:
    """Return the number of pods of a replica that the gang needs: 1 for the first `min_replicas`, 0 for the others."""
    if replica.surplus:
        return 0
    return 1 if role.min_replicas is None or replica.index < role.min_replicas else 0


def network_topology(topology: NetworkTopology) -> Manifest:
    """Render how close together the gang must be placed."""
    rendered: Manifest = {"mode": topology.mode}
    if topology.highest_tier_allowed is not None:
        rendered["highestTierAllowed"] = topology.highest_tier_allowed
    return rendered


def _job_spec(plan: JobPlan, tasks: list[Manifest]) -> Manifest:
    options = plan.options
    spec: Manifest = {
        "schedulerName": options.scheduler_name,
        "queue": options.queue,
        "minAvailable": sum(task["minAvailable"] for task in tasks),
        "tasks": tasks,
        "plugins": {name: list(arguments) for name, arguments in options.job_plugins.items()},
    }
    retries = [role.max_retries for role in plan.roles if role.max_retries > 0]
    if retries:
        spec["maxRetry"] = min(retries)
    if options.priority_class is not None:
        spec["priorityClassName"] = options.priority_class
    if options.ttl_seconds_after_finished is not None:
        spec["ttlSecondsAfterFinished"] = options.ttl_seconds_after_finished
    if options.network_topology is not None:
        spec["networkTopology"] = network_topology(options.network_topology)
    return spec


def _task(plan: JobPlan, role: RolePlan, replica: ReplicaPlan) -> Manifest:
    task: Manifest = {
        "name": replica.name,
        "replicas": 0 if replica.surplus else 1,
        "minAvailable": min_available(role, replica),
        "maxRetry": role.max_retries or DEFAULT_MAX_RETRY,
        "template": render_pod_template(plan, role, replica),
    }
    if role.max_retries > 0:
        task["policies"] = [dict(policy) for policy in RETRY_POLICIES[role.retry_policy]]
    return task
