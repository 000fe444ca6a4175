"""The replicas of a Volcano Job by its tasks: replica id, pod, and status. A task runs one replica or more.

A replica without an observed pod is read from the job's counts for its task. The counts say how many pods are in a
phase, but not which. If that leaves a choice, the numbers are right and `pod` is None: replicas count as running or
succeeded first, in rank order, then as pending, then as failed. All others follow from the job's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import JobState, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.schedulers.pods.status import (
    POD_PHASES,
    Outcome,
    make_roles,
    read_replica,
    read_row,
    role_of,
    without_pod,
)
from torchx_pulumi.schedulers.volcano.names import pod_name
from torchx_pulumi.schedulers.volcano.objects import DEFAULT_MAX_RETRY, VOLCANO_TASK_INDEX, VOLCANO_TASK_SPEC

MAX_TASK_REPLICAS: Final = 10_000
"""Replicas of a task that are read."""

COUNTED_FIRST: Final = ("Running", "Succeeded", "Pending", "Failed")
"""Phases in the order in which counted pods are given to replicas."""

COUNTED: Final = "Volcano reports how many pods, not which"
"""Message of a replica that was counted, and whose pod is not known."""

COMPLETE: Final = "CompleteJob"

ENDED_BY: Final = {"Completed": COMPLETE, "Terminated": "TerminateJob"}
"""Phase to the action of a policy that leads to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of an observed Volcano Job."""

    job: str
    name: str
    count: int
    """Replicas that are requested."""
    template: Observed
    """Metadata and spec of its pods."""
    required: int
    """Replicas that have to run, and to succeed."""
    actions: Set[str]
    """Actions of its policies: what its end does to the job."""
    waits_for: Sequence[str]
    """Tasks that must run before its pods are made."""

    @property
    def role(self) -> tuple[str, int]:
        """Return its role, and the id of its first replica there."""
        return role_of(self.name, mapping_at(self.template, "metadata", "labels"))

    def pod_name(self, position: int) -> str:
        """Name a pod of the task by its place in the task."""
        return pod_name(self.job, self.name, position)


def tasks_of(job: Observed | None) -> Iterator[Task]:
    """Yield the tasks of an observed job in rank order; those with 0 replicas are left out."""
    for task in items_at(job, "spec", "tasks"):
        name, count = text_at(task, "name"), number_at(task, "replicas")
        if name is not None and count != 0:
            whole = 1 if count is None else min(max(count, 0), MAX_TASK_REPLICAS)
            required, awaited = number_at(task, "minAvailable"), mapping_at(task, "dependsOn").get("name")
            yield Task(
                job=text_at(job, "metadata", "name") or "",
                name=name,
                count=whole,
                template=mapping_at(task, "template"),
                required=whole if required is None else required,
                actions={text_at(policy, "action") or "" for policy in items_at(task, "policies")},
                waits_for=[one for one in awaited if isinstance(one, str)] if isinstance(awaited, list) else (),
            )


def pod_templates(job: Observed) -> list[tuple[str, Observed]]:
    """Return the name and the template of each pod of an observed job."""
    return [(task.pod_name(place), task.template) for task in tasks_of(job) for place in range(task.count)]


def awaited_roles(job: Observed | None) -> dict[str, list[str]]:
    """Return each role of an observed job that waits, and the roles that it waits for."""
    roles = {task.name: task.role[0] for task in tasks_of(job)}
    waits = {task.role[0]: task.waits_for for task in tasks_of(job) if task.waits_for}
    return {role: [*dict.fromkeys(roles[name] for name in names if name in roles)] for role, names in waits.items()}


def ending_roles(job: Observed | None, roles: Sequence[RoleStatus]) -> list[str]:
    """Return the roles that complete an observed job and have succeeded."""
    ends = {task.role[0] for task in tasks_of(job) if COMPLETE in task.actions}
    return [role.name for role in roles if role.name in ends and role.counts.keys() == {JobState.SUCCEEDED}]


def lacks_success(job: Observed, roles: Sequence[RoleStatus]) -> bool:
    """Return whether too few replicas of a task of a completed job have succeeded, as far as is known.

    Volcano asks so only where the gang has all tasks (`job/state/running.go`), which it has not if a role waits.
    """
    tasks = [*tasks_of(job)]
    gang = number_at(job, "spec", "minAvailable")
    if gang is None or gang >= sum(task.required for task in tasks) or ending_roles(job, roles):
        return False
    failed = {
        (role.name, replica.id) for role in roles for replica in role.replicas if replica.state is JobState.FAILED
    }
    for task in tasks:
        role, first = task.role
        lost = sum((role, first + position) in failed for position in range(task.count))
        if lost > task.count - task.required:
            return True
    return False


def _started(job: Observed, task: Task, seen: Sequence[ReplicaStatus]) -> int:
    """Return how many replicas of a task run or have succeeded, by their pods and by the counts of the job."""
    counted = mapping_at(job, "status", "taskStatusCount", task.name, "phase")
    by_count = sum(number_at(counted, phase) or 0 for phase in ("Running", "Succeeded"))
    return max(by_count, sum(one.state in (JobState.RUNNING, JobState.SUCCEEDED) for one in seen))


def completes(job: Observed, succeeded: Collection[str | None]) -> bool:
    """Return whether Volcano completes a job whose pods have all ended; else it fails.

    `succeeded` has the names of the pods that ended with exit code 0.
    """
    tasks = [*tasks_of(job)]
    counts = [sum(task.pod_name(place) in succeeded for place in range(task.count)) for task in tasks]
    needed, wanted = sum(task.required for task in tasks), number_at(job, "spec", "minSuccess")
    least = number_at(job, "spec", "minAvailable") or needed
    if wanted is not None:
        return sum(counts) >= wanted
    if least >= needed and any(count < task.required for task, count in zip(tasks, counts, strict=True)):
        return False
    return sum(counts) >= least


def restarts_left(job: Observed) -> int:
    """Return how often a job may be started again, by a policy or a resume.

    Volcano ends it as failed at the start whose number is `maxRetry`.
    """
    return (number_at(job, "spec", "maxRetry") or DEFAULT_MAX_RETRY) - 1 - (number_at(job, "status", "retryCount") or 0)


def restarts_after_failure(job: Observed) -> bool:
    """Return whether a failed pod makes Volcano start the job, or a part of it, again."""
    actions = {text_at(policy, "action") or "" for policy in items_at(job, "spec", "policies")}
    actions |= {action for task in tasks_of(job) for action in task.actions}
    return restarts_left(job) > 0 and any(action.startswith("Restart") for action in actions)


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
    tasks = [*tasks_of(job)]
    found_of: dict[str, tuple[list[ReplicaStatus], list[int]]] = {}
    for task in tasks:
        _, first = task.role
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
        found_of[task.name] = seen, unseen
    started = {task.name for task in tasks if _started(job, task, found_of[task.name][0]) >= task.required}
    action = ENDED_BY.get(text_at(job, "status", "state", "phase") or "")
    is_stopped = any(action in task.actions for task in tasks)
    roles: dict[str, list[ReplicaStatus]] = {}
    for task in tasks:
        seen, unseen = found_of[task.name]
        missing = without_pod(state, POD_PHASES["Pending"])
        if is_stopped and not (action == COMPLETE and action in task.actions):
            missing = JobState.CANCELLED, Reason.ROLE_ENDED
        elif not state.terminal and any(name in found_of and name not in started for name in task.waits_for):
            missing = JobState.PENDING, Reason.WAITING_FOR_ROLE
        absent = list(_unseen(job, task, seen, unseen, missing)) if unseen else []
        roles.setdefault(task.role[0], []).extend([*seen, *absent])
    return make_roles(roles)


def _unseen(
    job: Observed, task: Task, seen: Sequence[ReplicaStatus], unseen: Sequence[int], missing: Outcome
) -> Iterator[ReplicaStatus]:
    """Yield the replicas of a task whose pods were not observed; `missing` is what those without a count have."""
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
        outcome = POD_PHASES[phases[place]] if place < len(phases) else missing
        pod, message = (task.pod_name(position), "") if is_certain else (None, COUNTED)
        replica_id = task.role[1] + position
        yield ReplicaStatus(id=replica_id, pod=pod, state=outcome[0], reason=outcome[1], message=message)
