"""JobSpec -> JobPlan: names, macros, defaults, quantities. Pure: no clock, randomness, environment or file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchx_pulumi.model import labels
from torchx_pulumi.model.job_plan import EnvPlan, JobPlan, MountPlan, OptionsT, ReplicaPlan, RolePlan
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, RoleSpec
from torchx_pulumi.model.options import Options
from torchx_pulumi.planning import names, quantities
from torchx_pulumi.planning.macros import IMAGE_ENV, RANK0_HOST_ENV, macro_values, substitute
from torchx_pulumi.planning.quantities import is_port

FIELD_PATH = "[FIELD_PATH]"
"""Start of an environment value that is read from a field of the pod."""


def make_plan(
    spec: JobSpec,
    options: OptionsT,
    app_id: str,
    *,
    launched: Mapping[str, int],
    rank0_env: Callable[[str], str],
    warnings: Sequence[str],
) -> JobPlan[OptionsT]:
    """Make every choice about a job that passed the checks of its scheduler; see `SchedulerBackend.plan`.

    Args:
        spec: What the user asks for.
        options: Options of the launch.
        app_id: Name of the job object.
        launched: Replicas of each role when the job object was created, by role name. A role that is not in it: as the
            spec says.
        rank0_env: Role name in object names -> variable with the host of rank 0.
        warnings: Warnings of the plan.
    """
    dns_names = names.role_names([role.name for role in spec.roles])
    shared = {"app_id": app_id, "rank0_env": rank0_env(dns_names[0])}
    roles = [
        _plan_role(spec, options, index, dns_names[index], launched.get(role.name, 0), **shared)
        for index, role in enumerate(spec.roles)
    ]
    return JobPlan(
        app_id=app_id,
        job_name=app_id,
        namespace=options.namespace,
        spec=spec,
        options=options,
        roles=tuple(roles),
        warnings=tuple(warnings),
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
