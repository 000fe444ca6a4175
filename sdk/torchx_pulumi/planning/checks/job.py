"""Rules of a job, one function per rule. Every rule yields its problems and goes on; none raises.

Values have the types of their fields (`typed_reader`). Rules of options are in the scheduler packages, rules of single
values in `checks.values`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import EXTRAS_KEY, OVERLAY_KEY, JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning import names
from torchx_pulumi.planning.checks.values import (
    MAX_INT32,
    amount,
    check_label_value,
    check_labels,
    check_object_name,
    check_text,
    found,
    is_int,
    is_number,
    is_text,
    shown,
    unknown_keys,
)
from torchx_pulumi.planning.macros import misspelled_macros
from torchx_pulumi.planning.quantities import is_port

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

_SECRET_KEY_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def misplaced_metadata(job: JobSpec) -> list[str]:
    """Return a warning for each key of the app's metadata that is read in the metadata of roles only."""
    return [
        f"metadata[{key!r}] of the app has no effect: {what} belongs to a role. Put it into metadata[{key!r}] of each "
        "role, in an app file or a component of your own; TorchX's `--metadata` sets the metadata of the app"
        for key, what in ((OVERLAY_KEY, "a pod overlay"), (EXTRAS_KEY, "this setting"))
        if key in job.metadata
    ]


def check_job_rules(job: JobSpec) -> Iterator[Problem]:
    """Check the rules of a job and its roles."""
    yield from check_text("name", job.name)
    if not job.roles:
        yield Problem("roles", "is empty, must have at least one role; add a role")
    for index, role in enumerate(job.roles):
        yield from check_role(f"roles[{index}]", role)
    yield from _check_role_names(job.roles)
    if job.torchx_version is not None:
        yield from check_text("torchx_version", job.torchx_version)


def check_role(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Check the rules of one role."""
    for field in ("name", "image", "entrypoint"):
        yield from check_text(f"{path}.{field}", getattr(role, field))
    if any(letter.isspace() for letter in role.image):
        yield Problem(f"{path}.image", f"{found(role.image)}, must not contain a blank")
    yield from _check_macros(path, role)
    yield from _check_env(path, role)
    yield from _check_replicas(path, role)
    yield from _check_retries(path, role)
    yield from _check_resource(f"{path}.resource", role.resource)
    yield from _check_ports(f"{path}.port_map", role.port_map)
    yield from _check_mounts(f"{path}.mounts", role.mounts)
    yield from _check_node_selector(path, role)
    for index, toleration in enumerate(role.tolerations):
        yield from _check_toleration(f"{path}.tolerations[{index}]", toleration)
    if role.pod_overlay is not None:
        yield from _check_plain(f"{path}.pod_overlay", role.pod_overlay, depth=0)


def _check_role_names(roles: Sequence[RoleSpec]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, role in enumerate(roles):
        if role.name in first:
            yield Problem(f"roles[{index}].name", f"{found(role.name)}, as is roles[{first[role.name]}]; rename one")
        first.setdefault(role.name, index)


def _check_macros(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Names that look like a misspelled macro are refused. All others stay as they are, for a shell, as in TorchX."""
    texts = {f"{path}.args[{index}]": text for index, text in enumerate(role.args)}
    texts |= {f"{path}.env[{shown(name)}]": text for name, text in role.env.items()}
    for where, text in texts.items():
        for name, macro in misspelled_macros(text):
            advice = (
                f"has the unknown macro ${{{name}}}; did you mean ${{{macro}}}? A variable of a shell is $${{{name}}}"
            )
            yield Problem(where, advice)


def _check_env(path: str, role: RoleSpec) -> Iterator[Problem]:
    """Names of variables are POSIX-like, fields exist, references are valid, and no name has two sources."""
    for field in ("env", "secret_env"):
        for name, value in getattr(role, field).items():
            where = f"{path}.{field}[{shown(name)}]"
            if not names.is_env_name(name):
                yield Problem(
                    where, "must be the name of a variable: letters, digits, '_', '-' and '.', no digit first"
                )
            yield from _check_variable(where, value) if field == "env" else _check_secret(where, value)
    for name in role.env:
        if name in role.secret_env:
            yield Problem(f"{path}.secret_env[{shown(name)}]", f"is also in {path}.env; remove one of the two")


def _check_variable(path: str, value: str) -> Iterator[Problem]:
    if value.startswith("[FIELD_PATH]") and "$" not in value:
        field = value.removeprefix("[FIELD_PATH]")
        if field not in _POD_FIELDS and not field.startswith(("metadata.labels['", "metadata.annotations['")):
            allowed = ", ".join(_POD_FIELDS)
            yield Problem(
                path,
                f"reads a field that no pod has, must be {allowed}, metadata.labels['KEY'] or "
                "metadata.annotations['KEY']",
            )


def _check_secret(path: str, ref: SecretRef) -> Iterator[Problem]:
    # A password in the place of a name or a key is a frequent mistake, so that no message repeats them.
    if not names.is_dns_subdomain(ref.name):
        yield Problem(f"{path}.name", "must be the name of a Secret: a-z, 0-9, '-' and '.', at most 253 characters")
    if not ref.key or len(ref.key) > 253 or not set(ref.key) <= _SECRET_KEY_LETTERS:
        yield Problem(f"{path}.key", "must be the key of a Secret: letters, digits, '-', '_' and '.'")


def _check_replicas(path: str, role: RoleSpec) -> Iterator[Problem]:
    """A role has replicas; a gang may start with fewer than all, but with at least one."""
    count, least = role.num_replicas, role.min_replicas
    if not 1 <= count <= MAX_REPLICAS:
        yield Problem(f"{path}.num_replicas", f"is {count}, must be 1 to {MAX_REPLICAS}")
    elif least is not None and not 1 <= least <= count:
        yield Problem(
            f"{path}.min_replicas", f"is {least}, must be 1 to {count} (num_replicas), or unset for all of them"
        )


def _check_retries(path: str, role: RoleSpec) -> Iterator[Problem]:
    if not 0 <= role.max_retries <= MAX_INT32:
        yield Problem(f"{path}.max_retries", f"{amount(role.max_retries)}, must be 0 or more")
    if role.retry_policy not in RETRY_POLICIES:
        yield Problem(
            f"{path}.retry_policy",
            f"{found(role.retry_policy)}, must be {' or '.join(RETRY_POLICIES)}; others cannot be run",
        )


def _check_resource(path: str, resource: ResourceSpec) -> Iterator[Problem]:
    """GPUs and devices are counted, and the instance type can select a node."""
    for field in ("cpu", "gpu", "memory_mb"):
        # TorchX's NULL_RESOURCE has -1 of each, which means unset.
        if (count := getattr(resource, field)) is not None and count < 0 and count != -1:
            yield Problem(f"{path}.{field}", f"{amount(count)}, must be 0 or more, or unset")
    if resource.gpu is not None and not float(resource.gpu).is_integer():
        yield Problem(f"{path}.gpu", f"{amount(resource.gpu)}, must be a whole number, or unset")
    for name, count in resource.devices.items():
        where = f"{path}.devices[{shown(name)}]"
        if not names.is_device_name(name):
            yield Problem(where, "must be the name of a device, like vpc.amazonaws.com/efa")
        if count < 0:
            yield Problem(where, f"{amount(count)}, must be a count, 0 or more")
    if labels.INSTANCE_TYPE in resource.capabilities:
        where = f"{path}.capabilities[{labels.INSTANCE_TYPE!r}]"
        yield from check_label_value(where, resource.capabilities[labels.INSTANCE_TYPE])


def _check_ports(path: str, ports: Mapping[str, int]) -> Iterator[Problem]:
    """Ports have names that Kubernetes takes, and numbers in range."""
    for name, port in ports.items():
        where = f"{path}[{shown(name)}]"
        if not names.is_port_name(name):
            yield Problem(where, "must be a port name: at most 15 of a-z, 0-9 and single inner dashes, with a letter")
        if not is_port(port):
            yield Problem(where, f"{amount(port)}, must be 1 to 65535", rule="port")


def _check_mounts(path: str, mounts: Sequence[MountSpec]) -> Iterator[Problem]:
    """Mounts are of a known kind, have both ends, and each has a path that no other one has."""
    taken = {"/dev/shm": "the shared memory that every replica gets"}  # noqa: S108
    for index, mount in enumerate(mounts):
        where = f"{path}[{index}]"
        if mount.kind not in MOUNT_KINDS:
            known = ", ".join(MOUNT_KINDS)
            yield Problem(where, f"is of unknown kind {shown(mount.kind)}, must be {known}", rule="mount")
            continue
        check_source = check_object_name if mount.kind == "secret" else check_text
        yield from check_source(f"{where}.src", mount.src)
        if mount.kind in ("bind", "device") and ".." in mount.src.split("/"):
            yield Problem(f"{where}.src", f"{found(mount.src)}, must not contain '..'")
        yield from check_text(f"{where}.dst", mount.dst)
        if mount.kind == "device" and not set(mount.permissions) <= set("rwm"):
            yield Problem(f"{where}.permissions", f"{found(mount.permissions)}, must be any of r, w and m")
        if mount.dst in taken:
            yield Problem(
                f"{where}.dst", f"{found(mount.dst)}, where {taken[mount.dst]} is mounted; choose another path"
            )
        taken.setdefault(mount.dst, where)


def _check_node_selector(path: str, role: RoleSpec) -> Iterator[Problem]:
    """A node selector is labels, and does not contradict the instance type."""
    yield from check_labels(f"{path}.node_selector", role.node_selector)
    wanted = role.node_selector.get(labels.INSTANCE_TYPE)
    capable = role.resource.capabilities.get(labels.INSTANCE_TYPE)
    if wanted is not None and capable is not None and wanted != capable:
        where = f"{path}.node_selector[{labels.INSTANCE_TYPE!r}]"
        yield Problem(
            where, f"{found(wanted)}, but the resource's capabilities say {shown(capable)}; remove one of the two"
        )


def _check_toleration(path: str, toleration: Mapping[str, Any]) -> Iterator[Problem]:
    """A toleration has Kubernetes' fields."""
    yield from unknown_keys(path, toleration, _TOLERATION_KEYS)
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
