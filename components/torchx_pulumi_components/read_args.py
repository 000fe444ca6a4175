"""Arguments of a component, resolved, to the spec and the options that the planner takes. Nothing here renders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchx_pulumi.inputs.appdef import installed_torchx_version
from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.model.labels import INSTANCE_TYPE
from torchx_pulumi.model.options import (
    RESERVED_CPU_MILLI,
    RESERVED_MEMORY_MB,
    Gang,
    NetworkTopology,
    Options,
    VolcanoOptions,
)
from torchx_pulumi.planning.checks.job import check_job
from torchx_pulumi.runs.decision import Policy
from torchx_pulumi.schedulers import backend_of

from torchx_pulumi_components import args as shapes
from torchx_pulumi_components.arg_values import Fields, whole_numbers
from torchx_pulumi_components.input_resolution import PLACEHOLDER, is_other, is_placeholder

OPTION_TO_ARGUMENT: Mapping[str, str] = {"priority_class_name": "priority_class"}
"""Options that a component calls otherwise than TorchX's scheduler does: one word for one thing in all components."""

UNKNOWN_MEMORY_MB = (10**6, 3 * 10**6)
UNKNOWN_RESERVED = (1, 2)
"""What stands for numbers that are not known, where others are taken off them, and where they are taken off others."""

UNKNOWN_RETRIES = (0, 3)
"""Not every gang takes retries."""

UNKNOWN_OVERLAY: Mapping[str, Any] = {
    "__put__:metadata": {"annotations": {f"{PLACEHOLDER}key": ""}, "labels": {f"{PLACEHOLDER}key": ""}},
    "__put__:spec": {"containers": [{"name": f"{PLACEHOLDER}container"}]},
}
"""Overlay that leaves nothing of a pod as it is, for one that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is chosen about a component that is in neither hash nor manifest, and what names a run."""

    policy: Policy = Policy.FAIL
    rerun: str | None = None
    job_name: str | None = None
    """Fixed name of the job object. None: made of the component's name and the hash."""
    wait_for: shapes.WaitFor = shapes.WaitFor.CREATED
    timeout_s: int | None = None
    delete_timeout_s: int | None = None
    kubeconfig: str | None = None
    """Contents or path. None: ambient."""
    kube_context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedArgs:
    """A job as it was asked for through a component."""

    spec: JobSpec
    options: Options
    settings: Settings
    left_open: frozenset[str] = frozenset()
    """Options that were left to be found on the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgsReader:
    """The arguments of one component, as far as they are its own."""

    shape: type
    """All its arguments."""
    read_options: Callable[[Fields], Options]
    """Arguments -> options; problems are noted in the fields."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Arguments of other components, and what to do instead."""
    discovered: frozenset[str] = frozenset()
    """Options that are found on the cluster where they are not given."""


def read_args(name: str, args: Mapping[str, Any], dialect: ArgsReader, spec: JobSpec | None = None) -> ParsedArgs:
    """Read a component's arguments.

    Args:
        name: The component's name; the app's, where `spec` does not bring one.
        args: Resolved arguments.
        dialect: Of the component.
        spec: The job, where it came as an AppDef; `args` then holds no roles.

    Raises:
        InvalidJobError: All that is wrong with the arguments.
    """
    problems: list[Problem] = []
    fields = Fields(args, dialect.shape, "", problems, dialect.elsewhere)
    if spec is None:
        given = fields.items("roles", required=True)
        if fields.has("roles") and not given and not problems:
            fields.problem("roles", "is empty; a job has at least one role")
        roles = [_role(Fields(role, shapes.Role, f"roles[{index}]", problems)) for index, role in enumerate(given)]
        spec = JobSpec(name=name, roles=tuple(roles), torchx_version=installed_torchx_version())
    options, settings = dialect.read_options(fields), _settings(fields)
    if problems:
        raise invalid_job(name, [*problems, *_further(spec, options, {problem.path for problem in problems})])
    left_open = frozenset(option for option in dialect.discovered if not fields.has(option))
    return ParsedArgs(spec=spec, options=options, settings=settings, left_open=left_open)


def _further(spec: JobSpec, options: Options, known: set[str]) -> Iterator[Problem]:
    """Yield what the planner would find as well, so that one error has it all."""
    scheduler = backend_of(options)
    found = [problem for problem in check_job(spec) if problem.rule not in scheduler.tolerated]
    for problem in in_words_of_args([*found, *scheduler.check_options(options)]):
        if not any(problem.path == path or problem.path.startswith((f"{path}.", f"{path}[")) for path in known):
            yield problem


def in_words_of_args(problems: Sequence[Problem]) -> list[Problem]:
    """Return the planner's problems with the paths that arguments have: options stand beside the roles."""
    named = ((problem, problem.path.removeprefix("options.")) for problem in problems)
    return [replace(problem, path=OPTION_TO_ARGUMENT.get(path, path)) for problem, path in named]


def _role(fields: Fields) -> RoleSpec:
    resource = fields.raw("resource")
    tolerations = whole_numbers(fields.items("tolerations"))
    return RoleSpec(
        name=fields.text("name", required=True, plain=True) or "",
        image=fields.text("image", required=True) or "",
        entrypoint=fields.text("entrypoint", required=True) or "",
        args=tuple(fields.texts("args")),
        env=fields.text_map("env"),
        secret_env={
            key: _secret(Fields(item, shapes.SecretEnv, f"{fields.path}.secret_env[{key}]", fields.problems))
            for key, item in fields.mapping("secret_env").items()
        },
        num_replicas=or_else(fields.integer("num_replicas", plain=True), 1),
        min_replicas=fields.integer("min_replicas", plain=True),
        max_retries=or_else(fields.integer("max_retries", unknown=UNKNOWN_RETRIES), 0),
        retry_policy=fields.choice("retry_policy", shapes.RetryPolicy, "APPLICATION"),
        resource=ResourceSpec()
        if resource is None
        else _resource(Fields(resource, shapes.Resource, f"{fields.path}.resource", fields.problems)),
        port_map=fields.integer_map("port_map"),
        mounts=tuple(_mounts(fields)),
        metadata=whole_numbers(fields.mapping("metadata")),
        node_selector=fields.text_map("node_selector"),
        tolerations=tuple({"key": item} if is_placeholder(item) else item for item in tolerations),
        pod_overlay=_overlay(fields),
    )


def _overlay(fields: Fields) -> Any:
    given = fields.raw("pod_overlay")
    if is_placeholder(given):
        return UNKNOWN_OVERLAY if is_other(given) else None
    if not isinstance(given, str):
        return whole_numbers(given)
    try:
        return read_overlay_file(given)
    except (OSError, ValueError) as error:
        fields.problem("pod_overlay", str(error))
        return None


def _secret(fields: Fields) -> SecretRef:
    name, key = fields.text("name", required=True), fields.text("key", required=True)
    return SecretRef(name=name or "", key=key or "", optional=fields.flag("optional"))


def _resource(fields: Fields) -> ResourceSpec:
    return ResourceSpec(
        cpu=fields.number("cpu"),
        gpu=fields.integer("gpu"),
        memory_mb=fields.integer("memory_mb", unknown=UNKNOWN_MEMORY_MB),
        devices=fields.integer_map("devices", unknown_key=f"example.com/{PLACEHOLDER}k"),
        capabilities=whole_numbers(fields.mapping("capabilities", unknown_key=INSTANCE_TYPE)),
    )


def _mounts(fields: Fields) -> Iterator[MountSpec]:
    if is_placeholder(fields.raw("mounts")):
        if is_other(fields.raw("mounts")):
            yield MountSpec(kind="volume", src=PLACEHOLDER + "claim", dst=f"/{PLACEHOLDER}path")
        return
    for index, item in enumerate(fields.items("mounts")):
        yield _mount(Fields(item, shapes.Mount, f"{fields.path}.mounts[{index}]", fields.problems))


def _mount(fields: Fields) -> MountSpec:
    return MountSpec(
        kind=fields.choice("kind", shapes.MountKind, "", required=True),
        src=fields.text("src", required=True) or "",
        dst=fields.text("dst", required=True) or "",
        read_only=fields.flag("read_only"),
        permissions=fields.text("permissions", plain=True) or "rwm",
    )


def _volcano_options(fields: Fields) -> VolcanoOptions:
    topology = fields.raw("network_topology")
    return VolcanoOptions(
        queue=fields.text("queue", required=True) or "",
        namespace=fields.text("namespace") or "default",
        service_account=fields.text("service_account"),
        priority_class=fields.text("priority_class"),
        reserved_millicpu=or_else(fields.integer("reserved_millicpu", unknown=UNKNOWN_RESERVED), RESERVED_CPU_MILLI),
        reserved_memmb=or_else(fields.integer("reserved_memmb", unknown=UNKNOWN_RESERVED), RESERVED_MEMORY_MB),
        efa_device_count=fields.integer("efa_device_count"),
        gang=Gang(fields.choice("gang", shapes.GangMode, "job")),
        scheduler_name=fields.text("scheduler_name", plain=True) or "volcano",
        ttl_seconds_after_finished=fields.integer("ttl_seconds_after_finished"),
        network_topology=None
        if topology is None
        else _topology(Fields(topology, shapes.Topology, "network_topology", fields.problems)),
        plugins=fields.text_lists("plugins") if fields.has("plugins") else None,
        labels=fields.text_map("labels"),
        annotations=fields.text_map("annotations"),
        image_secrets=tuple(fields.texts("image_secrets")),
    )


def _topology(fields: Fields) -> NetworkTopology:
    return NetworkTopology(
        mode=fields.text("mode", plain=True) or "hard", highest_tier_allowed=fields.integer("highest_tier_allowed")
    )


def _settings(fields: Fields) -> Settings:
    timeouts = {name: fields.integer(name, plain=True) for name in ("timeout_s", "delete_timeout_s")}
    for name, seconds in timeouts.items():
        if seconds is not None and seconds < 1:
            fields.problem(name, f"must be at least 1 second, found {seconds}")
    return Settings(
        policy=Policy(fields.choice("on_running_change", shapes.OnRunningChange, "fail")),
        rerun=fields.text("rerun"),
        job_name=fields.text("job_name", plain=True),
        wait_for=shapes.WaitFor(fields.choice("wait_for", shapes.WaitFor, "created")),
        **timeouts,
        kubeconfig=fields.text("kubeconfig"),
        kube_context=fields.text("kube_context"),
    )


def or_else(value: int | None, default: int) -> int:
    """Return a value, and the default where it was not given; 0 is given."""
    return default if value is None else value


VOLCANO = ArgsReader(shape=shapes.VolcanoTrainingJobArgs, read_options=_volcano_options)
"""Arguments of `VolcanoTrainingJob`."""
