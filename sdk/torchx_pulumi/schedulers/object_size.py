"""Size of the job object of a plan, and etcd's limit for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from torchx_pulumi.model.job_plan import JobPlan, OptionsT
from torchx_pulumi.model.options import Manifest

SERVER_BYTES: Final = 8192
"""Most bytes that the API server adds to an object: uid, times, managed fields, and the request to etcd around it."""

MAX_OBJECT_BYTES: Final = 1_572_864 - SERVER_BYTES
"""Largest object as JSON: etcd's default for a request (`--max-request-bytes`). The API server takes twice as much."""


def object_bytes(
    plan: JobPlan[OptionsT],
    render: Callable[[JobPlan[OptionsT]], Manifest],
    tasks_of: Callable[[Manifest], Sequence[Any]],
    status_bytes: int,
) -> int:
    """Return the size of the job object of a plan as JSON, with its status. Two tasks of each role are rendered.

    Args:
        plan: The plan of a new launch, in which every task has replicas.
        render: Renders the job object.
        tasks_of: Job object -> the part of each of its tasks, in the order of the plan.
        status_bytes: Bytes of its status for each task.
    """
    few = [
        replace(role, tasks=(role.tasks[0], role.tasks[-1]) if len(role.tasks) > 1 else role.tasks)
        for role in plan.roles
    ]
    job_object = render(replace(plan, roles=tuple(few)))
    size, rendered = _bytes(job_object), iter(tasks_of(job_object))
    for role, short in zip(plan.roles, few, strict=True):
        parts = [next(rendered) for _ in short.tasks]
        size += (len(role.tasks) - len(parts)) * (_bytes(parts[-1]) + 1) + len(role.tasks) * status_bytes
    return size


def _bytes(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"))
