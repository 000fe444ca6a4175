"""Render a plan as a Volcano Job (batch.volcano.sh/v1alpha1).

In the layout `replica` each replica is a task, since macros differ; in the layout `role` replicas share tasks.
"""

from __future__ import annotations

from torchx_pulumi.model.job_plan import JobPlan, RolePlan, TaskPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.pods.template import job_metadata, new_object, render_pod_template
from torchx_pulumi.schedulers.volcano.objects import DEFAULT_MAX_RETRY, VOLCANO_JOB
from torchx_pulumi.schedulers.volcano.options import NetworkTopology

RETRY_POLICIES = {
    "APPLICATION": ({"event": "PodEvicted", "action": "RestartJob"}, {"event": "PodFailed", "action": "RestartJob"}),
    # A task is one replica then. An evicted pod needs no policy: Volcano creates it again and does not count a retry.
    "REPLICA": ({"event": "PodFailed", "action": "RestartTask"},),
}

COMPLETES = {"event": "TaskCompleted", "action": "CompleteJob"}
"""Policy of a role that ends the job with success. Volcano applies it when all replicas of a task have succeeded."""

FAILS = {"event": "PodFailed", "action": "TerminateJob"}
"""Policy of a role without which the job cannot succeed: others run on, or wait for it, for ever."""


def render_volcano(plan: JobPlan) -> Manifest:
    """Render the Volcano Job. The same plan gives the same bytes."""
    options = plan.options
    tasks = [_task(plan, role, task) for role in plan.roles for task in role.tasks]
    spec: Manifest = {
        "schedulerName": options.scheduler_name,
        "queue": options.queue,
        # With those of a role that waits, the gang would wait for pods that are made after it has started.
        "minAvailable": sum(task["minAvailable"] for task in tasks if "dependsOn" not in task),
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
    return new_object(VOLCANO_JOB, job_metadata(plan), spec)


def min_available(role: RolePlan, task: TaskPlan) -> int:
    """Return the number of pods of a task that the gang needs: those of the first `min_replicas` of the role."""
    if role.min_replicas is None:
        return task.requested
    return min(max(role.min_replicas - task.index, 0), task.requested)


def network_topology(topology: NetworkTopology) -> Manifest:
    """Render how close together the gang must be placed."""
    rendered: Manifest = {"mode": topology.mode}
    if topology.highest_tier_allowed is not None:
        rendered["highestTierAllowed"] = topology.highest_tier_allowed
    return rendered


def _task(plan: JobPlan, role: RolePlan, task: TaskPlan) -> Manifest:
    rendered: Manifest = {
        "name": task.name,
        "replicas": task.requested,
        "minAvailable": min_available(role, task),
        "maxRetry": role.max_retries or DEFAULT_MAX_RETRY,
        "template": render_pod_template(plan, role, task),
    }
    policies = [*RETRY_POLICIES[role.retry_policy]] if role.max_retries > 0 else []
    ends = role.name in (plan.options.success_roles or ())
    if ends:
        policies.append(COMPLETES)
    is_awaited = role.name in plan.options.awaited_roles and rendered["minAvailable"] > 0
    if role.max_retries == 0 and (ends or is_awaited):
        policies.append(FAILS)
    if policies:
        rendered["policies"] = [dict(policy) for policy in policies]
    awaited = (plan.options.start_after or {}).get(role.name, ())
    names = [first.name for other in plan.roles if other.name in awaited for first in other.tasks]
    if names:
        rendered["dependsOn"] = {"name": names}
    return rendered
