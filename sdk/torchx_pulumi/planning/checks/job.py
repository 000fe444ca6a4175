"""What a job must be, one rule per function; every rule yields what is wrong and goes on.

Values may be of any type here, since users hand in what they have: a rule never raises. Options and names are
checked in `option_checks`, single values in `value_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.values import (
    MAX_INT32,
    amount,
    check_label_value,
    check_labels,
    check_mapping,
    check_object_name,
    check_text,
    found,
    is_int,
    is_list,
    is_number,
    is_text,
    shown,
    typed,
    unknown_keys,
)
from torchx_pulumi.planning.ports import is_port

MAX_REPLICAS = 100_000
"""Replicas of a role; far more than one Job object can hold, and few enough to plan."""

RETRY_POLICIES = ("APPLICATION", "REPLICA")

MOUNT_KINDS = ("bind", "volume", "device", "secret")

_POD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)

_TOLERATION_KEYS = ("key", "operator", "value", "effect", "tolerationSeconds")


def check_job(spec: JobSpec) -> Iterator[Problem]:
    """Check a job and its roles."""
    yield from check_text("name", spec.name)
    yield from check_mapping("metadata", spec.metadata)
    if not is_list(spec.roles):
        yield Problem("roles", f"{typed(spec.roles)}, must be a list of roles")
        return
    if not spec.roles:
        yield Problem("roles", "is empty, must have at least one role; add a role")
    for index, role in enumerate(spec.roles):
        if isinstance(role, RoleSpec):
            yield from check_role(f"roles[{index}]", role)
        else:
            yield Problem(f"roles[{index}]", f"{typed(role)}, must be a role")
    yield from _check_role_names([role for role in spec.roles if isinstance(role, RoleSpec)])
    if spec.torchx_version is not None:
        yield from check_text("torchx_version", spec.torchx_version)


def check_role(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Check one role."""
    yield from check_text(f"{path}.name", role.name)
    for field in ("image", "entrypoint"):
        yield from check_text(f"{path}.{field}", getattr(role, field))
    if is_text(role.image) and role.image != role.image.strip():
        yield Problem(f"{path}.image", f"{found(role.image)}, must not begin or end with a blank")
    yield from check_args(f"{path}.args", role.args)
    yield from check_env(path, role)
    yield from check_replicas(path, role)
    yield from check_retries(path, role)
    yield from check_resource(f"{path}.resource", role.resource)
    yield from check_ports(f"{path}.port_map", role.port_map)
    yield from check_mounts(f"{path}.mounts", role.mounts)
    yield from check_node_selector(path, role)
    yield from check_tolerations(f"{path}.tolerations", role.tolerations)
    yield from check_overlay(f"{path}.pod_overlay", role.pod_overlay)
    yield from check_mapping(f"{path}.metadata", role.metadata)


def _check_role_names(roles: Sequence[RoleSpec]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, role in enumerate(roles):
        if not is_text(role.name):
            continue
        if role.name in seen:
            yield Problem(f"roles[{index}].name", f"{found(role.name)}, as is roles[{seen[role.name]}]; rename one")
        seen.setdefault(role.name, index)


def check_args(path: str, args: object) -> Iterator[Problem]:
    """Arguments are a list of texts; one text alone is a list forgotten."""
    if not is_list(args):
        hint = "; put the text into a list" if isinstance(args, str) else ""
        yield Problem(path, f"{typed(args)}, must be a list of texts{hint}")
        return
    for index, word in enumerate(args):
        if not is_text(word):
            yield Problem(f"{path}[{index}]", f"{typed(word)}, must be text; write it in quotes")


def check_env(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Environment names are POSIX-like, values are text, and no name has two sources."""
    for field in ("env", "secret_env"):
        variables = getattr(role, field)
        if not isinstance(variables, Mapping):
            yield Problem(f"{path}.{field}", f"{typed(variables)}, must be a mapping of names to values")
            continue
        for name, value in variables.items():
            where = f"{path}.{field}[{shown(name)}]"
            if not is_text(name) or not names.is_env_name(name):
                yield Problem(where, "is no name of a variable: letters, digits, '_', '-' and '.', no digit first")
            yield from _check_variable(where, value) if field == "env" else _check_secret(where, value)
    if isinstance(role.env, Mapping) and isinstance(role.secret_env, Mapping):
        for name in role.env:
            if name in role.secret_env:
                yield Problem(f"{path}.secret_env[{shown(name)}]", f"is also in {path}.env; remove one of the two")


def _check_variable(path: str, value: object) -> Iterator[Problem]:
    if not is_text(value):
        yield Problem(path, f"{typed(value)}, must be text; write it in quotes")
    elif value.startswith("[FIELD_PATH]") and "$" not in value:
        field = value.removeprefix("[FIELD_PATH]")
        if field not in _POD_FIELDS and not field.startswith(("metadata.labels['", "metadata.annotations['")):
            allowed = ", ".join(_POD_FIELDS)
            yield Problem(
                path,
                f"reads a field that no pod has, must be {allowed}, metadata.labels['KEY'] or "
                "metadata.annotations['KEY']",
            )


def _check_secret(path: str, ref: object) -> Iterator[Problem]:
    if not isinstance(ref, SecretRef):
        yield Problem(path, f"{typed(ref)}, must name a Secret and its key: {{name, key, optional}}")
        return
    # A password in the place of a name or a key is a frequent mistake.
    if not is_text(ref.name) or not names.is_dns_subdomain(ref.name):
        yield Problem(
            f"{path}.name", "is no name of a Secret, must be of a-z, 0-9, '-' and '.', at most 253 characters"
        )
    if not is_text(ref.key) or not ref.key or len(ref.key) > 253 or not set(ref.key) <= _SECRET_KEY_LETTERS:
        yield Problem(f"{path}.key", "is no key of a Secret, must be of letters, digits, '-', '_' and '.'")
    if not isinstance(ref.optional, bool):
        yield Problem(f"{path}.optional", f"{typed(ref.optional)}, must be true or false")


_SECRET_KEY_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def check_replicas(path: str, role: RoleSpec) -> Iterator[Problem]:
    """A role has replicas; a gang may start smaller than it ends, never empty, never larger."""
    count = role.num_replicas
    if not is_int(count) or not 1 <= count <= MAX_REPLICAS:
        yield Problem(f"{path}.num_replicas", f"{amount(count)}, must be 1 to {MAX_REPLICAS}")
        return
    low = role.min_replicas
    if low is not None and (not is_int(low) or not 1 <= low <= count):
        yield Problem(
            f"{path}.min_replicas", f"{amount(low)}, must be 1 to {count} (num_replicas), or unset for all of them"
        )


def check_retries(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Retries are counted from zero, under a policy that the schedulers can carry out."""
    if not is_int(role.max_retries) or not 0 <= role.max_retries <= MAX_INT32:
        yield Problem(f"{path}.max_retries", f"{amount(role.max_retries)}, must be 0 or more")
    if role.retry_policy not in RETRY_POLICIES:
        policy = role.retry_policy
        yield Problem(
            f"{path}.retry_policy", f"{found(policy)}, must be {' or '.join(RETRY_POLICIES)}; others cannot be run"
        )


def check_resource(path: str, resource: object) -> Iterator[Problem]:
    """Numbers are numbers, devices are counted, and the instance type can select a node."""
    if not isinstance(resource, ResourceSpec):
        yield Problem(path, f"{typed(resource)}, must be a resource: cpu, gpu, memory_mb, devices, capabilities")
        return
    for field in ("cpu", "memory_mb"):
        number = getattr(resource, field)
        if number is not None and not is_number(number):
            yield Problem(f"{path}.{field}", f"{amount(number)}, must be a number, or unset")
    gpu = resource.gpu
    # A negative count is TorchX's way to say "none": its NULL_RESOURCE has -1.
    if gpu is not None and not is_int(gpu) and not (is_number(gpu) and float(gpu).is_integer()):
        yield Problem(f"{path}.gpu", f"{amount(gpu)}, must be a whole number, or unset")
    yield from _check_devices(f"{path}.devices", resource.devices)
    if not isinstance(resource.capabilities, Mapping):
        yield Problem(f"{path}.capabilities", f"{typed(resource.capabilities)}, must be a mapping")
    elif labels.INSTANCE_TYPE in resource.capabilities:
        instance = resource.capabilities[labels.INSTANCE_TYPE]
        where = f"{path}.capabilities[{labels.INSTANCE_TYPE!r}]"
        yield from check_label_value(where, instance)


def _check_devices(path: str, devices: object) -> Iterator[Problem]:
    if not isinstance(devices, Mapping):
        yield Problem(path, f"{typed(devices)}, must be a mapping of device names to counts")
        return
    for name, count in devices.items():
        where = f"{path}[{shown(name)}]"
        if not is_text(name) or not names.is_qualified_name(name) or not ("/" in name or name.startswith("hugepages-")):
            yield Problem(where, "is no name of a device, which looks like vpc.amazonaws.com/efa")
        if not is_int(count) or count < 0:
            yield Problem(where, f"{amount(count)}, must be a count, 0 or more")


def check_ports(path: str, ports: object) -> Iterator[Problem]:
    """Ports have names that Kubernetes takes, and numbers in range."""
    if not isinstance(ports, Mapping):
        yield Problem(path, f"{typed(ports)}, must be a mapping of port names to numbers")
        return
    for name, port in ports.items():
        where = f"{path}[{shown(name)}]"
        if not is_text(name) or not names.is_port_name(name):
            yield Problem(where, "is no port name: at most 15 of a-z, 0-9 and single inner dashes, with a letter")
        if not is_int(port) or not is_port(port):
            yield Problem(where, f"{amount(port)}, must be 1 to 65535", rule="port" if is_int(port) else "")


def check_mounts(path: str, mounts: object) -> Iterator[Problem]:
    """Mounts are of a known kind, have both ends, and none hides another."""
    if not is_list(mounts):
        yield Problem(path, f"{typed(mounts)}, must be a list of mounts")
        return
    taken = {"/dev/shm": "the shared memory that every replica gets"}  # noqa: S108
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        if not isinstance(mount, MountSpec) or mount.kind not in MOUNT_KINDS:
            kind = mount.kind if isinstance(mount, MountSpec) else type(mount).__name__
            yield Problem(where, f"is of unknown kind {shown(kind)}, must be {', '.join(MOUNT_KINDS)}", rule="mount")
            continue
        yield from _check_mount(where, mount)
        if is_text(mount.dst):
            if mount.dst in taken:
                yield Problem(
                    f"{where}.dst", f"{found(mount.dst)}, where {taken[mount.dst]} is mounted; choose another path"
                )
            taken.setdefault(mount.dst, where)


def _check_mount(path: str, mount: MountSpec) -> Iterator[Problem]:
    if mount.kind == "secret":
        yield from check_object_name(f"{path}.src", mount.src)
    else:
        yield from check_text(f"{path}.src", mount.src)
    if mount.kind in ("bind", "device") and is_text(mount.src) and ".." in mount.src.split("/"):
        yield Problem(f"{path}.src", f"{found(mount.src)}, must not contain '..'")
    yield from check_text(f"{path}.dst", mount.dst)
    if not isinstance(mount.read_only, bool):
        yield Problem(f"{path}.read_only", f"{amount(mount.read_only)}, must be true or false")
    if mount.kind == "device" and (not isinstance(mount.permissions, str) or not set(mount.permissions) <= set("rwm")):
        yield Problem(f"{path}.permissions", f"{found(mount.permissions)}, must be any of r, w and m")


def check_node_selector(path: str, role: RoleSpec) -> Iterator[Problem]:
    """A node selector is labels, and does not contradict the instance type."""
    yield from check_labels(f"{path}.node_selector", role.node_selector)
    capabilities = role.resource.capabilities if isinstance(role.resource, ResourceSpec) else {}
    if not isinstance(role.node_selector, Mapping) or not isinstance(capabilities, Mapping):
        return
    wanted, capable = role.node_selector.get(labels.INSTANCE_TYPE), capabilities.get(labels.INSTANCE_TYPE)
    if wanted is not None and capable is not None and wanted != capable:
        where = f"{path}.node_selector[{labels.INSTANCE_TYPE!r}]"
        yield Problem(
            where, f"{found(wanted)}, but the resource's capabilities say {shown(capable)}; remove one of the two"
        )


def check_tolerations(path: str, tolerations: object) -> Iterator[Problem]:
    """Tolerations have Kubernetes' own fields."""
    if not is_list(tolerations):
        yield Problem(path, f"{typed(tolerations)}, must be a list of tolerations")
        return
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        if not isinstance(toleration, Mapping):
            yield Problem(where, f"{typed(toleration)}, must be a mapping: {', '.join(_TOLERATION_KEYS)}")
            continue
        yield from unknown_keys(where, toleration, _TOLERATION_KEYS)
        yield from _check_toleration(where, toleration)


def _check_toleration(path: str, toleration: Mapping[str, Any]) -> Iterator[Problem]:
    for field, allowed in (
        ("operator", ("Exists", "Equal")),
        ("effect", ("NoSchedule", "PreferNoSchedule", "NoExecute")),
    ):
        value = toleration.get(field)
        if value is not None and value not in allowed:
            yield Problem(f"{path}.{field}", f"{found(value)}, must be {', '.join(allowed)}")
    key, operator = toleration.get("key"), toleration.get("operator", "Equal")
    if key is not None and (not is_text(key) or not names.is_qualified_name(key)):
        yield Problem(f"{path}.key", f"{found(key)}, must be the key of a taint")
    if not key and operator != "Exists":
        yield Problem(f"{path}.operator", f"{found(operator)}, must be Exists where key is absent")
    value = toleration.get("value")
    if value is not None:
        yield from check_label_value(f"{path}.value", value)
    if value and operator == "Exists":
        yield Problem(f"{path}.value", "must be absent where operator is Exists")
    seconds = toleration.get("tolerationSeconds")
    if seconds is not None and not is_int(seconds):
        yield Problem(f"{path}.tolerationSeconds", f"{amount(seconds)}, must be seconds, a whole number")


def check_overlay(path: str, overlay: object) -> Iterator[Problem]:
    """An overlay is plain data with texts as keys; whether it fits the pod shows when it is laid over it."""
    if overlay is None:
        return
    if not isinstance(overlay, dict):
        yield Problem(path, f"{typed(overlay)}, must be a mapping with metadata and spec")
        return
    yield from _check_plain(path, overlay, depth=0)


def _check_plain(path: str, value: object, depth: int) -> Iterator[Problem]:
    if depth > 50:
        yield Problem(path, "is nested too deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not is_text(key):
                yield Problem(path, f"has the key {shown(key)}, keys must be text")
            yield from _check_plain(f"{path}.{key}", item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _check_plain(f"{path}[{index}]", item, depth + 1)
    elif value is not None and not isinstance(value, bool) and not is_text(value) and not is_number(value):
        yield Problem(
            path, f"is of type {type(value).__name__}, must be text, a number, true, false, a list or a mapping"
        )
