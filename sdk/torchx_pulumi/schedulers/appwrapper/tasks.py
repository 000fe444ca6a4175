"""The replicas of an observed AppWrapper by what it wraps: a Pod is one replica, an Indexed Job (v1beta2) many.

The pod of a Job's replica is known by its labels or, as a row, by its name `<job>-<index>-<random letters>`. A retry
makes new Jobs with the same names, whose pods have other ones. A replica without a pod is read from the Job's status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.kube.kinds import JOB, POD
from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import JobState, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.planning.checks.job import MAX_REPLICAS
from torchx_pulumi.planning.layout import RoleTasks
from torchx_pulumi.schedulers.appwrapper.objects import COMPLETION_INDEX, JOB_NAME, OPERATOR_LABEL
from torchx_pulumi.schedulers.pods.status import Outcome, make_roles, read_evidence, read_row, role_of

Place = tuple[str, int]
"""Name of a wrapped Pod or Job, and the place of a replica in it, from 0."""

_POD_OF_JOB: Final = re.compile(r"(.+)-(\d+)-[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedTask:
    """A Pod or a Job that an AppWrapper wraps."""

    name: str
    template: Observed
    """Metadata and spec of its pods."""
    count: int = 1
    """Replicas."""
    is_job: bool = False

    @property
    def role(self) -> tuple[str, int]:
        """Return its role, and the id of its first replica there."""
        return role_of(self.name, mapping_at(self.template, "metadata", "labels"))

    def host(self, place: int) -> str:
        """Name the host of a replica, which is the name of a pod that no Job makes."""
        return f"{self.name}-{place}" if self.is_job else self.name


def wrapped_objects(observed: Observed | None) -> list[Observed]:
    """Return the objects that an AppWrapper of either version creates."""
    v1beta1 = [mapping_at(item, "generictemplate") for item in items_at(observed, "spec", "resources", "GenericItems")]
    return v1beta1 + [mapping_at(item, "template") for item in items_at(observed, "spec", "components")]


def tasks_of(observed: Observed | None) -> Iterator[WrappedTask]:
    """Yield the tasks of an observed AppWrapper in rank order."""
    for found in wrapped_objects(observed):
        name, kind = text_at(found, "metadata", "name") or "", text_at(found, "kind")
        if kind == POD.kind:
            yield WrappedTask(name=name, template=found)
        elif kind == JOB.kind:
            count = min(max(number_at(found, "spec", "completions") or 1, 1), MAX_REPLICAS)
            yield WrappedTask(name=name, template=mapping_at(found, "spec", "template"), count=count, is_job=True)


def pod_templates(observed: Observed) -> list[tuple[str, Observed]]:
    """Return the host and the template of each pod of an AppWrapper."""
    return [(task.host(place), task.template) for task in tasks_of(observed) for place in range(task.count)]


def read_tasks(observed: Manifest) -> RoleTasks | None:
    """Return the tasks of an AppWrapper with Jobs by the role's name in object names; see `Variant.read_tasks`."""
    tasks = [*tasks_of(observed)]
    if not any(task.is_job for task in tasks):
        return None
    found: dict[str, list[int]] = {}
    for task in tasks:
        # The label has the name of the role as the user wrote it.
        role, first = role_of(_container(task) or task.name, {})
        found.setdefault(role, []).append(first)
    return found


def place_of(labels: Observed) -> Place | None:
    """Return the Job of a pod and its index, by its labels, or None if no Job of an AppWrapper made it."""
    job, index = text_at(labels, JOB_NAME), number_at(labels, COMPLETION_INDEX)
    return None if job is None or index is None or text_at(labels, OPERATOR_LABEL) is None else (job, index)


def pods_of_tasks(tasks: Iterable[WrappedTask], pods: Sequence[Observed]) -> dict[Place, Observed]:
    """Return the pod of each replica that has one: the newest, as those of an earlier attempt go slowly."""
    names = {task.name: task.is_job for task in tasks}
    found: dict[Place, Observed] = {}
    for pod in sorted(pods, key=_age):
        name = text_at(pod, "metadata", "name") or ""
        place = place_of(mapping_at(pod, "metadata", "labels"))
        if place is not None and names.get(place[0]):
            found[place] = pod
        elif names.get(name) is False:
            found[name, 0] = pod
    return found


def read_replicas(
    tasks: Sequence[WrappedTask],
    pods: Sequence[Observed],
    rows: Mapping[str, PodRow],
    jobs: Sequence[Observed],
    missing: Outcome,
) -> tuple[RoleStatus, ...]:
    """Return every replica that an AppWrapper wraps, with or without a pod.

    Args:
        tasks: Its tasks.
        pods: Its pods, or some of them.
        rows: All pods in short, by name, if `pods` has only some.
        jobs: Its Jobs, as far as read.
        missing: State and reason of a replica about which nothing is known.
    """
    by_place, by_row = pods_of_tasks(tasks, pods), _rows_of_tasks(tasks, rows)
    by_name = {text_at(pod, "metadata", "name"): pod for pod in pods} if rows else {}
    ends = {text_at(job, "metadata", "name"): _ends_of(job) for job in jobs}
    roles: dict[str, list[ReplicaStatus]] = {}
    for task in tasks:
        role, first = task.role
        ended = ends.get(task.name, {})
        for place in range(task.count):
            row = by_row.get((task.name, place))
            pod = by_name.get(row.name) if row else by_place.get((task.name, place))
            found = read_evidence(first + place, pod) if pod else read_row(first + place, row) if row else None
            if found is None:
                state, reason = ended.get(place, missing)
                name = None if task.is_job else task.name
                found = ReplicaStatus(id=first + place, pod=name or None, state=state, reason=reason)
            roles.setdefault(role, []).append(found)
    return make_roles(roles)


def _rows_of_tasks(tasks: Sequence[WrappedTask], rows: Mapping[str, PodRow]) -> dict[Place, PodRow]:
    names = {task.name: task.is_job for task in tasks}
    found: dict[Place, PodRow] = {}
    for name, row in rows.items():
        match = _POD_OF_JOB.fullmatch(name)
        place = (match[1], int(match[2])) if match and names.get(match[1]) else (name, 0)
        # Of an earlier attempt: a later pod has its place.
        if place not in found or row.status != "Terminating":
            found[place] = row
    return found


def _ends_of(job: Observed) -> dict[int, Outcome]:
    """Return the ends that a Job has counted, by index."""
    if is_being_deleted(job):
        return {}
    succeeded = indexes(text_at(job, "status", "completedIndexes") or "")
    failed = indexes(text_at(job, "status", "failedIndexes") or "")
    # Its pod is not there any more: nobody saw how it ended, or it was deleted before.
    return {
        **dict.fromkeys(succeeded, (JobState.SUCCEEDED, Reason.COMPLETED)),
        **dict.fromkeys(failed, (JobState.FAILED, Reason.POD_GONE)),
    }


def indexes(text: str) -> Iterator[int]:
    """Yield the indexes that a Job's status lists.

    >>> [*indexes("0,3-5,7")], [*indexes("")]
    ([0, 3, 4, 5, 7], [])
    """
    for first, last in re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text):
        yield from range(int(first), int(last or first) + 1)


def _container(task: WrappedTask) -> str | None:
    return text_at(next(iter(items_at(task.template, "spec", "containers")), None), "name")


def _age(pod: Observed) -> tuple[str, bool]:
    """Order pods by their creation; of those of one second, one that is being deleted is the older."""
    return text_at(pod, "metadata", "creationTimestamp") or "", not is_being_deleted(pod)
