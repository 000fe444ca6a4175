"""Limits of large Volcano Jobs: the object in etcd, and the ConfigMap that has the hosts of all replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.object_fields import items_at
from torchx_pulumi.model.options import TaskLayout
from torchx_pulumi.planning.layout import layout_obstacles
from torchx_pulumi.schedulers.object_size import MAX_OBJECT_BYTES, object_bytes
from torchx_pulumi.schedulers.volcano.checks import volcano_obstacles, whole_roles
from torchx_pulumi.schedulers.volcano.job import render_volcano
from torchx_pulumi.schedulers.volcano.names import MAX_PER_TASK, room_for_hosts
from torchx_pulumi.schedulers.volcano.options import GangMode, VolcanoOptions

STATUS_BYTES: Final = 64
"""Bytes of the job's status for each task (`taskStatusCount`)."""


def check_size(plan: JobPlan[VolcanoOptions]) -> Iterator[Problem]:
    """Check the size of a new launch."""
    if plan.options.gang == GangMode.PODS:
        return
    yield from _check_object(plan)
    if "svc" in plan.options.all_plugins:
        yield from _check_hosts(plan)


def _check_object(plan: JobPlan[VolcanoOptions]) -> Iterator[Problem]:
    size = job_bytes(plan)
    if size <= MAX_OBJECT_BYTES:
        return
    tasks = [task for role in plan.roles for task in role.tasks]
    replicas = sum(role.replicas for role in plan.roles)
    what = (
        f"have {replicas} replicas as {len(tasks)} tasks, which makes a Job of "
        f"{size / 1e6:.1f} MB; etcd takes {MAX_OBJECT_BYTES / 1e6:.1f} MB"
    )
    smaller = Problem("roles", f"{what}; make arguments, environment or overlays smaller")
    if any(task.count > 1 for task in tasks):
        yield smaller
        return
    whole = whole_roles(plan.spec, plan.options)
    obstacles = [*volcano_obstacles(plan.spec, plan.options), *layout_obstacles(plan.spec, MAX_PER_TASK, whole)]
    if obstacles:
        yield Problem("roles", f"{what}; replicas cannot share tasks (layout role): {'; '.join(obstacles)}")
    elif plan.options.layout != TaskLayout.ROLE and len(tasks) > len(plan.roles):
        yield Problem("roles", f"{what}; set layout to role, so that replicas share tasks")
    else:
        yield smaller


def job_bytes(plan: JobPlan[VolcanoOptions]) -> int:
    """Return the size of the Job of a plan as JSON, with its status."""
    return object_bytes(plan, render_volcano, lambda job: items_at(job, "spec", "tasks"), STATUS_BYTES)


def _check_hosts(plan: JobPlan[VolcanoOptions]) -> Iterator[Problem]:
    counts = {task.name: task.count for role in plan.roles for task in role.tasks}
    room = room_for_hosts(counts)
    if len(plan.job_name) <= room:
        return
    replicas = sum(counts.values())
    what = f"the ConfigMap with the hosts of {replicas} replicas (Volcano's plugin svc) may have 1 MiB"
    if room < 1:
        yield Problem(
            "roles",
            f"have too many replicas: {what}; ask for fewer, or set plugins without svc and those that need it",
        )
    else:
        length = len(plan.job_name)
        text = f"is {plan.job_name!r}, {length} characters; {what}, so it may have {room}; shorten it"
        yield Problem("app_id", text)
