"""The tasks of a role, and the obstacles of a job to the layout `role`. Pure.

A replica of such a task knows its index only at run time: `${replica_id}` becomes a reference to a variable of the
container, which the kubelet expands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from torchx_pulumi.model import labels
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.planning import names
from torchx_pulumi.planning.macros import (
    FIELD_PATH,
    RANK0_HOST_ENV,
    REPLICA_ID_ENV,
    REPLICA_ID_REFERENCE,
    macro_values,
    substitute,
)
from torchx_pulumi.planning.overlay import joins_main_container, joins_on
from torchx_pulumi.planning.references import expand

AUTO_REPLICAS: Final = 10
"""Largest number of replicas of a job for which the layout `auto` is `replica`."""

LARGE_REPLICAS: Final = 100
"""Largest number for which `auto` is `replica` if the job names something that the layout `role` changes."""

RoleTasks = Mapping[str, Sequence[int]]
"""Role name to the replica id of the first replica of each of its tasks, ascending; the first one is 0."""

_SAMPLES: Final = ("0", "7", "12")
"""Replica ids for which both layouts are compared."""


def tasks_per_role(spec: JobSpec, most: int, whole: Collection[str] = ()) -> RoleTasks:
    """Return the tasks of a job in the layout `role`.

    Rank 0 is a task of its own, with the values that TorchX gives to it; the other replicas of a role are tasks of at
    most `most`. Kubernetes has no arithmetic, so a role whose replicas use their index is one task.

    Args:
        spec: The job.
        most: Replicas that one task can have.
        whole: Roles that have to be one task.
    """
    found: dict[str, Sequence[int]] = {}
    for position, role in enumerate(spec.roles):
        if why_whole(role, whole):
            found[role.name] = (0,)
        elif position == 0:
            found[role.name] = (0, *range(1, role.num_replicas, most))
        else:
            found[role.name] = tuple(range(0, role.num_replicas, most)) or (0,)
    return found


def task_counts(
    spec: JobSpec, tasks: RoleTasks | None, launched: Mapping[str, int] | None = None, *, least: int = 0
) -> dict[str, int]:
    """Return the name of each task, in the order of the job, and its replicas at the launch.

    Args:
        spec: The job.
        tasks: Its tasks. None: each replica is one.
        launched: Replicas of each role at the launch, if it had more. None: as the job says.
        least: Replicas of a role that has fewer, whose number is not known yet.
    """
    dns_names = names.role_names([role.name for role in spec.roles])
    counts = {}
    for dns_name, role in zip(dns_names, spec.roles, strict=True):
        replicas = max(role.num_replicas, (launched or {}).get(role.name, 0), least)
        for first, end in spans(role.name, tasks, replicas):
            counts[names.task_name(dns_name, first)] = end - first
    return counts


def spans(role: str, tasks: RoleTasks | None, replicas: int) -> Iterator[tuple[int, int]]:
    """Yield the replica ids of each task of a role: the first one, and the one after the last.

    `replicas` is their number at the launch. Without tasks, or for a role without any, each replica is a task.
    """
    firsts = range(replicas) if tasks is None or role not in tasks else tasks[role]
    yield from pairwise([*(first for first in firsts if first < replicas), replicas])


def uses_replica_id(role: RoleSpec) -> bool:
    """Return whether the arguments or the environment of a role contain the macro `${replica_id}`."""
    return any(_differs(text, "replica_id") for _, text in _substituted(role))


def why_whole(role: RoleSpec, whole: Collection[str]) -> str:
    """Return why a role is one task in the layout `role`; empty if it may be several. `whole` as there."""
    return "uses ${replica_id}" if uses_replica_id(role) else "is in success_roles" if role.name in whole else ""


def layout_obstacles(spec: JobSpec, most: int, whole: Collection[str] = ()) -> Iterator[str]:
    """Yield why a job cannot have the layout `role`, whatever its scheduler is; each names its role.

    Parameters as of `tasks_per_role`.
    """
    dns_names = names.role_names([role.name for role in spec.roles])
    for position, role in enumerate(spec.roles):
        if role.num_replicas > 1:
            reasons = _role_obstacles(role, dns_names[position], most, why_whole(role, whole))
            yield from (f"roles[{position}]{reason}" for reason in reasons)
    first = spec.roles[0] if spec.roles else None
    why = why_whole(first, whole) if first else ""
    if first is None or first.num_replicas <= 1 or not why:
        return
    if RANK0_HOST_ENV in first.env:
        yield f"roles[0].env sets {RANK0_HOST_ENV}, which is localhost for rank 0 only; roles[0] {why}"
    for position, role in enumerate(spec.roles):
        for path, text in _substituted(role):
            if _differs(text, "rank0_env"):
                yield (
                    f"roles[{position}].{path} uses ${{rank0_env}}, and roles[0] {why}: as one task its "
                    "replicas would all have the values of rank 0"
                )
                return


def _role_obstacles(role: RoleSpec, dns_name: str, most: int, why: str) -> Iterator[str]:
    if role.pod_overlay is not None and (name := _task_named_in(role.pod_overlay, dns_name)) is not None:
        yield f".pod_overlay names {name!r}, the container of one replica"
    # Labels of a template are fixed, so that pods of a shared task cannot have their own.
    if role.pod_overlay is not None and _has_text(role.pod_overlay, labels.REPLICA_ID):
        yield f".pod_overlay uses the label {labels.REPLICA_ID}, which only a pod of a task of its own has"
    for path, text in texts(role):
        if path.startswith("env") and text.startswith(FIELD_PATH) and labels.REPLICA_ID in text:
            yield f".{path} reads the label {labels.REPLICA_ID}, which only a pod of a task of its own has"
    if why and role.num_replicas > most:
        yield (
            f".num_replicas is {role.num_replicas}: a role that {why} is one task, which has at most {most} replicas"
        )
    if not uses_replica_id(role):
        return
    spec = (role.pod_overlay or {}).get("spec")
    for key, value in spec.items() if isinstance(spec, Mapping) else ():
        on = joins_on(key, "containers")
        # A join on the name leaves the variables of the container unless it has some.
        if on not in (None, "name") or any("env" in item for item in joins_main_container(key, value)):
            yield f".pod_overlay joins containers on {on!r}, which may replace {REPLICA_ID_ENV}, the index of a replica"
            break
    for field in ("env", "secret_env"):
        if REPLICA_ID_ENV in getattr(role, field):
            yield f".{field} sets {REPLICA_ID_ENV}, the variable with the index of a replica"
    if expand(role.entrypoint, {REPLICA_ID_ENV: ""}) != expand(role.entrypoint, {}):
        yield f".entrypoint has {REPLICA_ID_REFERENCE}, which the kubelet would expand"
    for path, text in _substituted(role):
        if not _is_expanded(text):
            yield f".{path} has ${{replica_id}} where the kubelet expands no variable"


def texts(role: RoleSpec) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of entrypoint, arguments and environment of a role, as a replica has them."""
    yield "entrypoint", role.entrypoint
    values = _values(replica_id=_SAMPLES[-1])
    yield from ((path, substitute(text, values)) for path, text in _substituted(role))


def _substituted(role: RoleSpec) -> Iterator[tuple[str, str]]:
    """Yield the texts in which macros are substituted."""
    yield from ((f"args[{index}]", text) for index, text in enumerate(role.args))
    yield from ((f"env[{name!r}]", text) for name, text in role.env.items())


def _values(**chosen: str) -> dict[str, str]:
    return {**macro_values(app_id="app", replica_id="0", rank0_env="RANK0"), **chosen}


def _differs(text: str, macro: str) -> bool:
    return "$" in text and substitute(text, _values(**{macro: "a"})) != substitute(text, _values(**{macro: "b"}))


def _is_expanded(text: str) -> bool:
    """Return whether the kubelet makes the same of a text in both layouts."""
    if substitute(text, _values()).startswith(FIELD_PATH):
        return not _differs(text, "replica_id")
    compact = substitute(text, _values(replica_id=REPLICA_ID_REFERENCE))
    return all(
        expand(compact, {REPLICA_ID_ENV: sample}) == expand(substitute(text, _values(replica_id=sample)), {})
        for sample in _SAMPLES
    )


def _task_named_in(value: object, dns_name: str) -> str | None:
    """Return the first `name` in an overlay that is that of a task of the role, or None without one."""
    if isinstance(value, Mapping):
        name = value.get("name")
        if isinstance(name, str) and re.fullmatch(rf"{re.escape(dns_name)}-\d+", name):
            return name
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return next((name for item in value if (name := _task_named_in(item, dns_name)) is not None), None)
    return None


def _has_text(value: object, text: str) -> bool:
    """Return whether a key or a text in an overlay contains a text."""
    if isinstance(value, Mapping):
        return any(_has_text(key, text) or _has_text(item, text) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return any(_has_text(item, text) for item in value)
    return isinstance(value, str) and text in value
