"""The replicas of a Volcano Job by its tasks: replica id, pod, and status. A task runs one replica or more.

A replica without an observed pod is read from the job's counts for its task. The counts say how many pods are in a
phase, but not which. If that leaves a choice, the numbers are right and `pod` is None: replicas count as running or
succeeded first, in rank order, then as pending, then as failed. All others follow from the job's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import JobState, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.pods.status import POD_PHASES, make_roles, read_replica, read_row, role_of, without_pod
from torchx_pulumi.schedulers.volcano.names import pod_name
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_TASK_INDEX, VOLCANO_TASK_SPEC

MAX_TASK_REPLICAS: Final = 10_000
"""Replicas of a task that are read."""

COUNTED_FIRST: Final = ("Running", "Succeeded", "Pending", "Failed")
"""Phases in the order in which counted pods are given to replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of an observed Volcano Job."""

    job: str
    name: str
    count: int
    """Replicas that are requested."""
    template: Observed
    """Metadata and spec of its pods."""

    def pod_name(self, position: int) -> str:
        """Name a pod of the task by its place in the task."""
        return pod_name(self.job, self.name, position)


def tasks_of(job: Observed | None) -> Iterator[Task]:
    """Yield the tasks of an observed job in rank order; those with 0 replicas are left out."""
    for task in items_at(job, "spec", "tasks"):
        name, count = text_at(task, "name"), number_at(task, "replicas")
        if name is not None and count != 0:
            yield Task(
                job=text_at(job, "metadata", "name") or "",
                name=name,
                count=1 if count is None else min(max(count, 0), MAX_TASK_REPLICAS),
                template=mapping_at(task, "template"),
            )


def place_of(labels: Observed) -> tuple[str, int] | None:
    """Return task and place in the task of a pod, or None if its labels lack one of them."""
    task, place = text_at(labels, VOLCANO_TASK_SPEC), number_at(labels, VOLCANO_TASK_INDEX)
    return None if task is None or place is None else (task, place)


def read_tasks(
    job: Observed, pods: Sequence[Observed], rows: Mapping[str, PodRow], state: JobState
) -> tuple[RoleStatus, ...]:
    """Return every replica that a job in a state requests, with or without a pod; `rows` has pods in short, by name."""
    by_name = {text_at(pod, "metadata", "name"): pod for pod in pods}
    # A pod with another place is of a replica that an elastic job gave up.
    firsts = [pod for pod in pods if not number_at(pod, "metadata", "labels", VOLCANO_TASK_INDEX)]
    by_task = {text_at(pod, "metadata", "labels", VOLCANO_TASK_SPEC): pod for pod in firsts}
    roles: dict[str, list[ReplicaStatus]] = {}
    for task in tasks_of(job):
        role, first = role_of(task.name, mapping_at(task.template, "metadata", "labels"))
        seen: list[ReplicaStatus] = []
        unseen: list[int] = []
        for position in range(task.count):
            name = task.pod_name(position)
            pod = by_name.get(name) or (by_task.get(task.name) if task.count == 1 else None)
            row = rows.get(name) if pod is None else None
            found = read_row(first + position, row) if row else read_replica(first + position, pod) if pod else None
            if found is None:
                unseen.append(position)
            else:
                seen.append(found)
        absent = list(_unseen(job, task, first, seen, unseen, state)) if unseen else []
        roles.setdefault(role, []).extend([*seen, *absent])
    return make_roles(roles)


def _unseen(
    job: Observed,
    task: Task,
    first: int,
    seen: Sequence[ReplicaStatus],
    unseen: Sequence[int],
    state: JobState,
) -> Iterator[ReplicaStatus]:
    """Yield the replicas of a task whose pods were not observed."""
    counted = mapping_at(job, "status", "taskStatusCount", task.name, "phase")
    # Phases that a pod cannot have are left out.
    counts = Counter(
        {phase: min(count, MAX_TASK_REPLICAS) for phase in POD_PHASES if (count := number_at(counted, phase) or 0) > 0}
    )
    if task.count == 1 and len(counts) > 1:
        # Two phases of one pod: the counts are of several moments.
        counts = Counter()
    counts.subtract(replica.state.value.capitalize() for replica in seen)
    phases = [phase for phase in COUNTED_FIRST for _ in range(counts[phase])][: len(unseen)]
    # The same for all: then it is known of each.
    is_certain = not phases or (len(phases) == len(unseen) and len(set(phases)) == 1)
    for place, position in enumerate(unseen):
        outcome = POD_PHASES[phases[place]] if place < len(phases) else without_pod(state, POD_PHASES["Pending"])
        pod = task.pod_name(position) if is_certain else None
        yield ReplicaStatus(id=first + position, pod=pod, state=outcome[0], reason=outcome[1])
