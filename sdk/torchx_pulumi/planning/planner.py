"""JobSpec -> JobPlan: names, macros, defaults, quantities. Pure: no clock, randomness, environment or file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_plan import EnvPlan, JobPlan, MountPlan, OptionsT, ReplicaPlan, RolePlan
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, RoleSpec
from torchx_pulumi.model.options import Options
from torchx_pulumi.planning import names, quantities
from torchx_pulumi.planning.checks.job import check_job_rules
from torchx_pulumi.planning.macros import IMAGE_ENV, RANK0_HOST_ENV, macro_values, substitute
from torchx_pulumi.planning.quantities import is_port
from torchx_pulumi.planning.typed_reader import TypedReader, uncovered

FIELD_PATH = "[FIELD_PATH]"
"""Start of an environment value that is read from a field of the pod."""


class SchedulerRules(Protocol):
    """What planning needs to know of a scheduler; `schedulers.SchedulerBackend` has it."""

    @property
    def tolerated(self) -> frozenset[str]:
        """Rules of `check_job` that do not refuse a job."""
        ...

    def check_options(self, options: Any, /) -> Iterator[Problem]:
        """Check every option by itself."""
        ...

    def check_launch(
        self, spec: JobSpec, options: Any, app_id: object, launched: Mapping[str, int], /
    ) -> Iterator[Problem]:
        """Check job, options and app id together."""
        ...

    def warnings(self, spec: JobSpec, options: Any, /) -> Sequence[str]:
        """Return what the user should know about a job that passed the checks."""
        ...

    def rank0_env(self, role: str, /) -> str:
        """Name the variable with the host of rank 0, of a first role of some name."""
        ...


def find_problems(
    rules: SchedulerRules,
    spec: JobSpec,
    options: Any,
    unread: Sequence[Problem] = (),
    *,
    app_id: object | None = None,
    launched: Mapping[str, int] | None = None,
) -> list[Problem]:
    """Return all problems of a job and its options, without those that the scheduler tolerates.

    Args:
        rules: Rules of the scheduler.
        spec: The job, with typed values.
        options: Its options, with typed values.
        unread: Values of both that could not be read. Rules are not checked on them.
        app_id: Name of the job object. None: it is made later; the rules that need it are not checked.
        launched: As for `make_plan`.
    """
    found = [*check_job_rules(spec), *rules.check_options(options)]
    if app_id is not None:
        found += rules.check_launch(spec, options, app_id, launched or {})
    problems = [*unread, *uncovered(found, unread)]
    return [problem for problem in problems if problem.rule not in rules.tolerated]


def make_plan(
    rules: SchedulerRules,
    spec: JobSpec,
    options: OptionsT,
    app_id: str,
    *,
    launched: Mapping[str, int] | None = None,
) -> JobPlan[OptionsT]:
    """Make every choice about a job.

    Args:
        rules: Rules of the scheduler that runs the job.
        spec: What the user asks for.
        options: Options of the launch.
        app_id: Name of the job object; a DNS label, used unchanged.
        launched: Replicas of each role when the job object was created, by role name. None: as the spec says. More
            than the spec has: the surplus replicas stay in the plan and are rendered with 0 replicas.

    Raises:
        InvalidJobError: The job cannot be planned; all problems at once.
    """
    reader = TypedReader()
    read, chosen = reader.read(JobSpec, spec, ""), reader.read(type(options), options, "options")
    problems = find_problems(rules, read, chosen, reader.problems, app_id=app_id, launched=launched)
    if problems:
        raise invalid_job(spec.name, problems)
    dns_names = names.role_names([role.name for role in spec.roles])
    shared = {"app_id": app_id, "rank0_env": rules.rank0_env(dns_names[0])}
    roles = [
        _plan_role(spec, options, index, dns_names[index], (launched or {}).get(role.name, 0), **shared)
        for index, role in enumerate(spec.roles)
    ]
    return JobPlan(
        app_id=app_id,
        job_name=app_id,
        namespace=options.namespace,
        spec=spec,
        options=options,
        roles=tuple(roles),
        warnings=tuple(rules.warnings(spec, options)),
    )


def _plan_role(
    spec: JobSpec, options: Options, index: int, dns_name: str, launched: int, *, app_id: str, rank0_env: str
) -> RolePlan:
    role = spec.roles[index]
    shared_labels = _role_labels(spec, index, app_id)
    replicas = [
        _plan_replica(role, index, dns_name, replica, app_id, rank0_env, shared_labels)
        for replica in range(max(role.num_replicas, launched))
    ]
    return RolePlan(
        name=role.name,
        dns_name=dns_name,
        index=index,
        image=role.image,
        replicas=role.num_replicas,
        min_replicas=role.min_replicas,
        max_retries=role.max_retries,
        retry_policy=role.retry_policy,
        requests=quantities.requests(
            role.resource, reserved_cpu_milli=options.reserved_millicpu, reserved_memory_mb=options.reserved_memmb
        ),
        limits=quantities.limits(role.resource, efa_device_count=options.efa_device_count),
        ports={name: port for name, port in role.port_map.items() if is_port(port)},
        mounts=tuple(_plan_mount(position, mount) for position, mount in enumerate(role.mounts)),
        node_selector=_node_selector(role),
        tolerations=tuple(dict(toleration) for toleration in role.tolerations),
        pod_overlay=role.pod_overlay,
        privileged=any(mount.kind == "device" for mount in role.mounts),
        replica_plans=tuple(replicas),
    )


def _plan_replica(
    role: RoleSpec,
    role_index: int,
    dns_name: str,
    replica: int,
    app_id: str,
    rank0_env: str,
    shared_labels: Mapping[str, str],
) -> ReplicaPlan:
    is_rank0 = role_index == 0 and replica == 0
    values = macro_values(app_id=app_id, replica=replica, rank0_env=RANK0_HOST_ENV if is_rank0 else rank0_env)
    env = {name: substitute(value, values) for name, value in role.env.items()}
    if is_rank0:
        env[RANK0_HOST_ENV] = "localhost"
    env[IMAGE_ENV] = role.image
    secret_env = [EnvPlan(name=name, secret=(ref.name, ref.key, ref.optional)) for name, ref in role.secret_env.items()]
    return ReplicaPlan(
        index=replica,
        name=names.task_name(dns_name, replica),
        command=(role.entrypoint, *(substitute(word, values) for word in role.args)),
        env=(*(_plan_env(name, value) for name, value in env.items()), *secret_env),
        labels={**shared_labels, labels.REPLICA_ID: str(replica)},
        surplus=replica >= role.num_replicas,
    )


def _plan_env(name: str, value: str) -> EnvPlan:
    if value.startswith(FIELD_PATH):
        return EnvPlan(name=name, field_path=value.removeprefix(FIELD_PATH))
    return EnvPlan(name=name, value=value)


def _plan_mount(position: int, mount: MountSpec) -> MountPlan:
    if mount.kind == "device":
        read_only = "w" not in mount.permissions and "m" not in mount.permissions
    else:
        read_only = mount.read_only or mount.kind == "secret"
    return MountPlan(name=f"mount-{position}", kind=mount.kind, src=mount.src, dst=mount.dst, read_only=read_only)


def _node_selector(role: RoleSpec) -> Mapping[str, str]:
    capabilities = role.resource.capabilities
    instance = (
        {labels.INSTANCE_TYPE: capabilities[labels.INSTANCE_TYPE]} if labels.INSTANCE_TYPE in capabilities else {}
    )
    return {**instance, **role.node_selector}


def _role_labels(spec: JobSpec, index: int, app_id: str) -> Mapping[str, str]:
    version = {} if spec.torchx_version is None else {labels.VERSION: names.label_value(spec.torchx_version)}
    return {
        **version,
        labels.APP_NAME: names.label_value(spec.name),
        labels.ROLE_INDEX: str(index),
        labels.ROLE_NAME: names.label_value(spec.roles[index].name),
        labels.KUBE_APP_NAME: names.label_value(spec.name),
        labels.ORGANIZATION: labels.ORGANIZATION_VALUE,
        labels.UNIQUE_NAME: app_id,
    }
