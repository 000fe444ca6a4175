"""What Volcano's job plugins for frameworks find in a job: they go by the names of tasks (Volcano 1.15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.text import listed
from torchx_pulumi.planning.layout import task_counts, tasks_per_role
from torchx_pulumi.schedulers.volcano.names import MAX_PER_TASK
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

SHOWN: Final = 6
"""Tasks that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlugin:
    """One plugin of `pkg/controllers/job/plugins/distributed-framework`."""

    tasks: Mapping[str, str]
    """Arguments that name a task, with their defaults. The first one is the task that the others need."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Arguments that name the container of a task, each with that task's argument; both have the same default."""
    others: frozenset[str] = frozenset({"port"})
    """Its other arguments."""
    switches: frozenset[str] = frozenset()
    """Those of `others` that take no value of their own."""
    lost: str
    """What a pod lacks whose task is not found."""
    without_first: str = ""
    """What Volcano does if the first task is not there. Empty: the job runs, without the plugin."""


TASK_PLUGINS: Final[Mapping[str, TaskPlugin]] = MappingProxyType(
    {
        "pytorch": TaskPlugin(
            tasks={"master": "master", "worker": "worker"},
            others=frozenset({"port", "wait-master-enabled", "wait-master-timeout", "wait-master-image"}),
            switches=frozenset({"wait-master-enabled"}),
            lost="RANK, and without a master no pod gets MASTER_ADDR or WORLD_SIZE",
        ),
        "mpi": TaskPlugin(
            tasks={"master": "master", "worker": "worker"},
            lost="a place in MPI_HOST",
            without_first="refuses the job",
        ),
        "tensorflow": TaskPlugin(
            tasks={name: name for name in ("worker", "ps", "chief", "evaluator")},
            lost="a place in the cluster of TF_CONFIG",
        ),
        "ray": TaskPlugin(
            tasks={"head": "head", "worker": "worker"},
            containers={"headContainer": "head", "workerContainer": "worker"},
            others=frozenset({"port", "dashboardPort", "clientPort"}),
            lost="the command `ray start`",
            without_first="makes no pod, so that the job waits for ever",
        ),
        "hcclrank": TaskPlugin(
            tasks={"master": "master", "worker": "worker"}, others=frozenset(), lost="the annotation hccl/rankIndex"
        ),
    }
)


def check_plugin_tasks(options: VolcanoOptions, tasks: Mapping[str, int]) -> Iterator[Problem]:
    """Check that a job has the task without which Volcano refuses it, or makes no pod."""
    for name, plugin in _in_force(options):
        first, default = next(iter(plugin.tasks.items()))
        wanted = read_arguments(plugin, options.job_plugins[name]).get(first, default)
        if plugin.without_first and wanted not in tasks:
            yield Problem(
                f"options.plugins[{name!r}]",
                f"finds no task {wanted} (--{first}); the tasks are {listed([*tasks], SHOWN)}, and without it Volcano "
                f"{plugin.without_first}; name one of them",
            )


def task_warnings(spec: JobSpec, options: VolcanoOptions, tasks: Mapping[str, int]) -> Iterator[str]:
    """Yield what plugins do not find in a job, with the layout and the arguments by which they find it."""
    for name, plugin in _in_force(options):
        given = read_arguments(plugin, options.job_plugins[name])
        wanted = {**plugin.tasks, **given}
        absent = [f"{wanted[flag]} (--{flag})" for flag in plugin.tasks if flag in given and wanted[flag] not in tasks]
        unnamed = [task for task in tasks if task not in {wanted[flag] for flag in plugin.tasks}]
        # A container has the name of its task.
        others = [
            f"the container of {wanted[of]} is not {container} (--{flag})"
            for flag, of in plugin.containers.items()
            if wanted[of] in tasks and (container := given.get(flag, plugin.tasks[of])) != wanted[of]
        ]
        parts = [f"the job has no task {text}" for text in absent] + others
        if unnamed:
            parts.append(f"no argument names {listed(unnamed, SHOWN)}")
        if parts:
            lost = f"such pods do not get {plugin.lost}; the tasks are {listed([*tasks], SHOWN)}"
            yield (
                f"plugins has {name}, which finds pods by the names of tasks: {'; '.join(parts)}; {lost}; "
                f"{_remedy(spec, plugin, wanted, tasks)}"
            )


def _remedy(spec: JobSpec, plugin: TaskPlugin, wanted: Mapping[str, str], tasks: Mapping[str, int]) -> str:
    """Return the layout in which a role is one task, and arguments that name its tasks."""
    shared = [*task_counts(spec, tasks_per_role(spec, MAX_PER_TASK))]
    layout = "" if shared == [*tasks] else f"layout=role, in which the tasks are {listed(shared, SHOWN)}, and "
    # A name without a number is that of a role.
    chosen = {flag: task for flag in plugin.tasks for task in (f"{wanted[flag]}-0", wanted[flag]) if task in shared}
    free = [task for task in shared if task not in chosen.values()]
    chosen |= dict(zip([flag for flag in plugin.tasks if flag not in chosen], free, strict=False))
    chosen |= {flag: chosen[of] for flag, of in plugin.containers.items() if of in chosen}
    return f"set {layout}the arguments {' '.join(f'--{flag}={task}' for flag, task in chosen.items())}"


def read_arguments(plugin: TaskPlugin, arguments: Sequence[str]) -> dict[str, str]:
    """Read arguments as Go's package flag does: up to one that it does not know.

    >>> read_arguments(TASK_PLUGINS["pytorch"], ["-wait-master-enabled", "--master", "a", "--no", "--worker=b"])
    {'master': 'a'}
    """
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        name, has_value, value = rest.pop(0).removeprefix("-").removeprefix("-").partition("=")
        is_name = name in plugin.tasks or name in plugin.containers
        if not is_name and name not in plugin.others:
            break
        if not has_value and name not in plugin.switches:
            if not rest:
                break
            value = rest.pop(0)
        if is_name:
            found[name] = value
    return found


def _in_force(options: VolcanoOptions) -> Iterator[tuple[str, TaskPlugin]]:
    for name in options.job_plugins:
        # The plugin pytorch sets RANK, which is then the rank of hcclrank.
        if name in TASK_PLUGINS and not (name == "hcclrank" and "pytorch" in options.job_plugins):
            yield name, TASK_PLUGINS[name]
