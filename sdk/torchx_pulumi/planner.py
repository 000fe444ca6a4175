"""JobSpec -> JobPlan: names, macros, defaults, quantities. Pure: no clock, randomness, environment or file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchx_pulumi import labels, names, quantities
from torchx_pulumi.checks import check_job
from torchx_pulumi.errors import invalid_job
from torchx_pulumi.macros import IMAGE_ENV, RANK0_HOST_ENV, macro_values, substitute
from torchx_pulumi.option_checks import check_launch, check_options
from torchx_pulumi.options import Gang, Options
from torchx_pulumi.plan import EnvPlan, JobPlan, MountPlan, ReplicaPlan, RolePlan
from torchx_pulumi.spec import JobSpec, MountSpec, RoleSpec

FIELD_PATH = "[FIELD_PATH]"
"""Start of an environment value that is read from a field of the pod."""

MANY_PODS = 100
"""Pods from which on gang=pods makes objects that are mostly lists of hosts."""


def plan_job(spec: JobSpec, options: Options, app_id: str, *, launched: Mapping[str, int] | None = None) -> JobPlan:
    """Make every choice about a job.

    Args:
        spec: What the user asks for.
        options: What was chosen about the launch.
        app_id: Name of the job object; a DNS label, taken as it is.
        launched: Replicas of each role when the job object was made, by role name. More than the spec has: the surplus
            replicas stay in the plan, asked for no more.

    Raises:
        InvalidJobError: The job cannot be planned; all problems at once.
    """
    problems = [*check_job(spec), *check_options(options), *check_launch(spec, options, app_id, launched or {})]
    if problems:
        raise invalid_job(spec.name, problems)
    dns_names = names.role_names([role.name for role in spec.roles])
    shared = {"app_id": app_id, "rank0_role": dns_names[0]}
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
        warnings=tuple(_warnings(spec, options)),
    )


def _plan_role(
    spec: JobSpec, options: Options, index: int, dns_name: str, launched: int, *, app_id: str, rank0_role: str
) -> RolePlan:
    role = spec.roles[index]
    shared_labels = _role_labels(spec, index, app_id)
    replicas = [
        _plan_replica(role, index, dns_name, replica, app_id, rank0_role, shared_labels)
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
        ports=dict(role.port_map),
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
    rank0_role: str,
    shared_labels: Mapping[str, str],
) -> ReplicaPlan:
    is_rank0 = role_index == 0 and replica == 0
    rank0_env = RANK0_HOST_ENV if is_rank0 else names.volcano_hosts_env(rank0_role)
    values = macro_values(app_id=app_id, replica=replica, rank0_env=rank0_env)
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


def _warnings(spec: JobSpec, options: Options) -> Sequence[str]:
    retries = {role.name: role.max_retries for role in spec.roles}
    least = min((count for count in retries.values() if count > 0), default=0)
    found = []
    if least:
        found.append(
            f"max_retries {least}: Volcano counts the first failure as well, so the job is restarted "
            f"{_times(least - 1)} and then Failed; retries are counted over the whole job"
        )
    if least and len(set(retries.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in retries.items())
        found.append(f"roles differ in max_retries ({listed}); Volcano has one count for the job, which is {least}")
    if options.gang == Gang.JOB and "svc" not in options.job_plugins:
        found.append("plugins has no svc: replicas get no variable with rank 0's host, and no host names")
    total = sum(role.num_replicas for role in spec.roles)
    if options.gang == Gang.PODS and total > MANY_PODS:
        found.append(f"gang=pods writes the hosts of all {total} replicas into every pod; gang=job is smaller")
    return found


def _times(count: int) -> str:
    return {0: "not once", 1: "once"}.get(count, f"{count} times")
