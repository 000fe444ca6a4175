"""JobSpec -> JobPlan: names, macros, defaults, quantities. Pure: no clock, randomness, environment or file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import EnvPlan, JobPlan, MountPlan, OptionsT, RolePlan, TaskPlan
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, RoleSpec
from torchx_pulumi.model.options import Options, TaskLayout
from torchx_pulumi.planning import names, quantities
from torchx_pulumi.planning.layout import RoleTasks, spans, uses_replica_id
from torchx_pulumi.planning.macros import (
    FIELD_PATH,
    IMAGE_ENV,
    RANK0_HOST_ENV,
    REPLICA_ID_ENV,
    REPLICA_ID_REFERENCE,
    macro_values,
    substitute,
)
from torchx_pulumi.planning.quantities import is_port


def make_plan(
    spec: JobSpec,
    options: OptionsT,
    app_id: str,
    *,
    launched: Mapping[str, int],
    tasks: RoleTasks | None,
    replica_id_field: str,
    rank0_env: Callable[[str], str],
    warnings: Sequence[str],
) -> JobPlan[OptionsT]:
    """Make every choice about a job that passed the checks of its scheduler.

    Arguments as `SchedulerBackend.plan`, and its fields; a role that is not in `launched` is as the spec says.
    """
    dns_names = names.role_names([role.name for role in spec.roles])
    rank0 = rank0_env(dns_names[0])
    roles = []
    for index, role in enumerate(spec.roles):
        planner = _TaskPlanner(
            role=role,
            dns_name=dns_names[index],
            has_rank0=index == 0,
            app_id=app_id,
            rank0_env=rank0,
            labels=_role_labels(spec, index, app_id),
            replica_id_field=replica_id_field,
        )
        replicas = max(role.num_replicas, launched.get(role.name, 0))
        planned = [planner.plan(first, end - first) for first, end in spans(role.name, tasks, replicas)]
        roles.append(_plan_role(role, options, index, dns_names[index], planned))
    return JobPlan(
        app_id=app_id,
        job_name=app_id,
        namespace=options.namespace,
        spec=spec,
        options=options,
        roles=tuple(roles),
        layout=TaskLayout.ROLE if tasks else TaskLayout.REPLICA,
        warnings=tuple(warnings),
    )


def _plan_role(role: RoleSpec, options: Options, index: int, dns_name: str, tasks: Sequence[TaskPlan]) -> RolePlan:
    capabilities = role.resource.capabilities.items()
    instance = {name: value for name, value in capabilities if name == labels.INSTANCE_TYPE}
    return RolePlan(
        name=role.name,
        dns_name=dns_name,
        index=index,
        image=role.pod_image,
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
        node_selector={**instance, **role.node_selector},
        tolerations=tuple(dict(toleration) for toleration in role.tolerations),
        pod_overlay=role.pod_overlay,
        privileged=any(mount.kind == "device" for mount in role.mounts),
        tasks=tuple(tasks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskPlanner:
    """Plans the tasks of one role."""

    role: RoleSpec
    dns_name: str
    has_rank0: bool
    app_id: str
    rank0_env: str
    labels: Mapping[str, str]
    """Labels of all replicas of the role."""
    replica_id_field: str

    def plan(self, first: int, count: int) -> TaskPlan:
        """Plan the task of some replicas: the id of the first one, and how many there are."""
        role = self.role
        numbered = count > 1 and uses_replica_id(role)
        is_rank0 = self.has_rank0 and first == 0 and count == 1
        values = macro_values(
            app_id=self.app_id,
            replica_id=REPLICA_ID_REFERENCE if numbered else str(first),
            rank0_env=RANK0_HOST_ENV if is_rank0 else self.rank0_env,
        )
        env = {name: substitute(value, values) for name, value in role.env.items()}
        if is_rank0:
            env[RANK0_HOST_ENV] = "localhost"
        env[IMAGE_ENV] = role.pod_image
        plain = [
            EnvPlan(name=name, field_path=value.removeprefix(FIELD_PATH))
            if value.startswith(FIELD_PATH)
            else EnvPlan(name=name, value=value)
            for name, value in env.items()
        ]
        # First, as a variable is expanded in those after it only.
        own = [EnvPlan(name=REPLICA_ID_ENV, field_path=self.replica_id_field)] if numbered else []
        secret_env = [
            EnvPlan(name=name, secret=(ref.name, ref.key, ref.optional)) for name, ref in role.secret_env.items()
        ]
        return TaskPlan(
            index=first,
            name=names.task_name(self.dns_name, first),
            count=count,
            requested=min(max(role.num_replicas - first, 0), count),
            command=(role.entrypoint, *(substitute(word, values) for word in role.args)),
            env=(*own, *plain, *secret_env),
            labels=dict(self.labels) if count > 1 else {**self.labels, labels.REPLICA_ID: str(first)},
        )


def _plan_mount(position: int, mount: MountSpec) -> MountPlan:
    if mount.kind == "device":
        read_only = "w" not in mount.permissions and "m" not in mount.permissions
    else:
        read_only = mount.read_only or mount.kind == "secret"
    return MountPlan(name=f"mount-{position}", kind=mount.kind, src=mount.src, dst=mount.dst, read_only=read_only)


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
