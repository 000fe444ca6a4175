"""Rules for jobs and options that Volcano runs. One rule per function; a rule yields problems and does not raise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.options import unknown_name
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.job import MAX_REPLICAS
from torchx_pulumi.planning.checks.options import check_amount, check_shared_options
from torchx_pulumi.planning.checks.values import (
    MAX_INT32,
    check_object_name,
    found,
    is_text,
)
from torchx_pulumi.planning.layout import task_counts, tasks_per_role, texts, why_whole
from torchx_pulumi.planning.macros import RANK0_HOST_ENV
from torchx_pulumi.schedulers.volcano.names import MAX_PER_TASK, longest_tail, pod_name, task_env
from torchx_pulumi.schedulers.volcano.options import GangMode, NetworkTopology, VolcanoOptions
from torchx_pulumi.schedulers.volcano.plugins import check_plugin_tasks, task_warnings

MANY_PODS = 100
"""Pods from which on gang=pods makes objects that are mostly lists of hosts."""


_OF_TASK: Final = re.compile(
    r"V[CK]_TASK_INDEX|VC_\w+_(?:HOSTS|NUM)|/etc/volcano|volcano\.sh/task-\w+|volcano\.sh/template-uid"
    r"|metadata\.(?:labels|annotations)(?=\")"
)
"""Variables, files, labels and annotations that Volcano writes for a task, and all labels or annotations together."""

RAY_SERVICE: Final = "-head-svc"
"""What the name of the Service of Volcano's plugin ray adds to the job's."""

_PLUGINS_OF_PODS: Final = frozenset({"svc", "env", "ssh"})
"""Job plugins that treat all pods alike. Others find pods by the names of tasks."""

TASKS_NOTE: Final = (
    "pods and hosts are called <job>-<role>-<first replica of the task>-<place in the task>, and VC_*_HOSTS, VC_*_NUM, "
    "VC_TASK_INDEX and /etc/volcano are those of the task; set layout to role, or to replica for one task per replica"
)
"""The effect of the layout `role` on every process, and how to choose."""


def check_options(options: VolcanoOptions) -> Iterator[Problem]:
    """Check every option by itself."""
    yield from check_queue(options.queue)
    yield from check_shared_options(options)
    if options.priority_class is not None:
        yield from check_object_name("options.priority_class", options.priority_class)
    yield from check_amount("ttl_seconds_after_finished", options.ttl_seconds_after_finished)
    if not names.is_dns_subdomain(options.scheduler_name):
        yield Problem("options.scheduler_name", f"{found(options.scheduler_name)}, must be the name of a scheduler")
    for index, name in enumerate(options.image_secrets):
        yield from check_object_name(f"options.image_secrets[{index}]", name)
    if options.network_topology is not None:
        yield from _check_network_topology(options.network_topology)
    if options.plugins is not None and "" in options.plugins:
        yield Problem("options.plugins['']", "is not the name of a plugin")


def check_queue(queue: str) -> Iterator[Problem]:
    """Check the name of the queue, which Volcano also writes as a label of every pod."""
    if not queue:
        yield Problem(
            "options.queue", f"{found(queue)}, must be the name of a Volcano queue; set queue", rule="required"
        )
    elif not names.is_dns_subdomain(queue) or len(queue) > names.MAX_LABEL:
        yield Problem("options.queue", f"{found(queue)}, must be at most 63 of a-z, 0-9, '-' and '.'")


def _check_network_topology(topology: NetworkTopology) -> Iterator[Problem]:
    path = "options.network_topology"
    if topology.mode not in ("hard", "soft"):
        yield Problem(f"{path}.mode", f"{found(topology.mode)}, must be hard or soft")
    tier = topology.highest_tier_allowed
    if tier is not None and not 0 <= tier <= MAX_INT32:
        yield Problem(f"{path}.highest_tier_allowed", f"{found(tier)}, must be a whole number, 0 or more, or unset")


def check_launch(spec: JobSpec, options: VolcanoOptions, app_id: object, tasks: Mapping[str, int]) -> Iterator[Problem]:
    """Check the rules for job and options together: names, and the limits of a gang of bare pods."""
    yield from check_app_id(app_id, options)
    if is_text(app_id) and all(role.num_replicas <= MAX_REPLICAS for role in spec.roles):
        yield from check_pod_names(app_id, tasks)
    if options.gang == GangMode.PODS:
        yield from check_gang_pods(spec.roles, options)
    else:
        yield from check_plugin_tasks(options, tasks)
    yield from check_role_names([role.name for role in spec.roles], options)


def check_role_names(known: Sequence[str], options: VolcanoOptions) -> Iterator[Problem]:
    """Check the roles that end a job or wait: they exist, and none waits for itself."""
    named = {"options.success_roles": options.success_roles}
    waits = options.start_after
    named |= {f"options.start_after[{role!r}]": others for role, others in (waits or {}).items()}
    for where, names_there in named.items():
        if names_there is not None and not names_there:
            yield Problem(where, "is empty, must name a role of the job; remove it, or name one")
        for index, name in enumerate(names_there or ()):
            if name not in known:
                yield Problem(f"{where}[{index}]", unknown_name(name, known, f"{found(name)}, which is no role"))
    for role in waits or ():
        if role not in known:
            yield Problem(f"options.start_after[{role!r}]", unknown_name(role, known, "is of a role that is not there"))
    if waits is not None and not waits:
        yield Problem("options.start_after", "is empty, must have a role that waits; remove it")
    left = dict(waits or {})
    while ready := [role for role, others in left.items() if not left.keys() & set(others)]:
        for role in ready:
            del left[role]
    if left:
        around = ", ".join(map(repr, left))
        yield Problem("options.start_after", f"has roles that wait for each other: {around}; one has to start first")


def check_app_id(app_id: object, options: VolcanoOptions) -> Iterator[Problem]:
    """Check an app id, which names the job object, a label, and the Service by which replicas find each other."""
    if not is_text(app_id) or not names.is_dns_label(app_id):
        yield Problem(
            "app_id", f"{found(app_id)}, must be at most 63 of a-z, 0-9 and inner dashes; it is never changed for you"
        )
    elif not names.is_service_name(app_id) and (options.gang == GangMode.PODS or "svc" in options.all_plugins):
        yield Problem("app_id", f"{found(app_id)}, must start with a letter, since a Service of this name is made")
    elif "ray" in options.all_plugins and len(app_id) > names.MAX_LABEL - len(RAY_SERVICE):
        room = names.MAX_LABEL - len(RAY_SERVICE)
        yield Problem(
            "app_id",
            f"{found(app_id)}, may have {room} characters, since the plugin ray makes a Service <app_id>{RAY_SERVICE}",
        )


def check_pod_names(app_id: str, tasks: Mapping[str, int]) -> Iterator[Problem]:
    """Check that the longest pod name can be a host name."""
    room = names.MAX_LABEL - longest_tail(tasks)
    if len(app_id) > room:
        yield Problem(
            "app_id",
            f"is {app_id!r}, {len(app_id)} characters; with these roles it may have {room}, as the longest pod name, "
            f"<app_id>-<role>-<replica>-<task>, may have {names.MAX_LABEL}; shorten it or a role's name",
        )


def check_gang_pods(roles: Sequence[RoleSpec], options: VolcanoOptions) -> Iterator[Problem]:
    """Check a gang of bare pods, which no controller restarts or removes."""
    for index, role in enumerate(roles):
        if role.max_retries != 0:
            yield Problem(
                f"roles[{index}].max_retries",
                f"{found(role.max_retries)}, must be 0 with gang=pods: no controller restarts its pods; use gang=job",
            )
    for field in ("ttl_seconds_after_finished", "plugins", "success_roles", "start_after"):
        if getattr(options, field) is not None:
            yield Problem(f"options.{field}", "must be unset with gang=pods, which has no job controller; use gang=job")


def whole_roles(spec: JobSpec, options: VolcanoOptions) -> Sequence[str]:
    """Return the roles whose replicas have to be one task: Volcano ends a job when those of one task have ended."""
    ends = () if options.gang == GangMode.PODS else options.success_roles or ()
    return [role.name for role in spec.roles if role.name in ends and role.num_replicas > 1]


def volcano_obstacles(spec: JobSpec, options: VolcanoOptions) -> Iterator[str]:
    """Yield why Volcano cannot run a job in the layout `role`."""
    if options.gang == GangMode.PODS:
        yield "gang=pods makes each pod by itself"
    for index, role in enumerate(spec.roles):
        if role.max_retries > 0 and role.retry_policy == "REPLICA" and role.num_replicas > 1:
            yield f"roles[{index}].retry_policy is REPLICA: Volcano would restart all replicas that share a task"


def volcano_differences(spec: JobSpec, options: VolcanoOptions) -> Iterator[str]:
    """Yield what processes see by something that the job names, and that the layout `role` changes."""
    whole = whole_roles(spec, options)
    counts = task_counts(spec, tasks_per_role(spec, MAX_PER_TASK, whole))
    if all(count == 1 for count in counts.values()):
        return
    same = {variable for task, count in counts.items() if count == 1 for variable in task_env(task)}
    dns_names = names.role_names([role.name for role in spec.roles])
    pods = re.compile("|".join(rf"-{re.escape(name)}-\d+-0(?!\d)" for name in dns_names))
    # The first pod of a task has the same name in both layouts.
    kept = {pod_name("", task) for task in counts}
    for position, role in enumerate(spec.roles):
        if position == 0 and role.num_replicas > 1 and (reason := why_whole(role, whole)):
            yield (
                f"roles[0] {reason}, so its replicas are one task: rank 0 has no {RANK0_HOST_ENV}, and "
                f"{task_env(next(iter(counts)))[0]} has the hosts of all replicas of the role"
            )
        if role.min_replicas is not None and role.min_replicas < role.num_replicas:
            yield f"roles[{position}].min_replicas are any {role.min_replicas} replicas of a task, not the first ones"
        overlay = [] if role.pod_overlay is None else [("pod_overlay", json.dumps(role.pod_overlay, default=str))]
        for path, text in [*texts(role), *overlay]:
            for name in dict.fromkeys(_OF_TASK.findall(text)):
                if name not in same:
                    yield f"roles[{position}].{path} uses {name}, which is that of a task and not of a replica"
            for pod in dict.fromkeys(pods.findall(text)):
                if pod not in kept:
                    yield f"roles[{position}].{path} names <job>{pod}, the pod of a replica that is a task of its own"
    for plugin in options.job_plugins:
        if plugin not in _PLUGINS_OF_PODS:
            yield f"options.plugins has {plugin}, which goes by tasks"


def volcano_warnings(spec: JobSpec, options: VolcanoOptions, tasks: Mapping[str, int]) -> Sequence[str]:
    """Return hints for the user about a job that passed the checks, with its tasks and their replicas."""
    retries = {role.name: role.max_retries for role in spec.roles}
    least = min((count for count in retries.values() if count > 0), default=0)
    found = []
    if least:
        found.append(
            f"max_retries {least}: Volcano counts the first failure as well, so the number of restarts before the job "
            f"is Failed is {least - 1}; retries are counted over the whole job"
        )
    if least and len(set(retries.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in retries.items())
        found.append(f"roles differ in max_retries ({listed}); Volcano has one count for the job, which is {least}")
    if any(role.max_retries > 0 and role.retry_policy == "REPLICA" for role in spec.roles):
        found.append(
            "retry_policy REPLICA: after the last retry Volcano removes every pod, with its log; keep logs elsewhere"
        )
    if options.gang == GangMode.JOB and "svc" not in options.all_plugins:
        found.append("plugins has no svc: replicas get no variable with rank 0's host, and no host names")
    if waiting := [role.name for role in spec.roles if role.name in (options.start_after or {})]:
        found.append(
            f"start_after gives up the gang for {', '.join(waiting)}: its pods are made and placed one by one, while "
            "the roles before it hold their places"
        )
    if options.gang == GangMode.JOB:
        found += task_warnings(spec, options, tasks)
    total = sum(role.num_replicas for role in spec.roles)
    if options.gang == GangMode.PODS and total > MANY_PODS:
        found.append(f"gang=pods writes the hosts of all {total} replicas into every pod; gang=job is smaller")
    return found
