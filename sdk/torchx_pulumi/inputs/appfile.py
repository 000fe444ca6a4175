"""The door for AppDef files, YAML or JSON, and for mappings of the same form.

Here: which keys there are, and what becomes of numbers where text is wanted. A file may also be what
`dataclasses.asdict` makes of a TorchX AppDef, or what `torchx-pulumi program` makes of a launched one: its metadata
has marks for what JSON has no form for (`json_values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx_pulumi.inputs.appdef import installed_torchx_version, read_extras, read_overlay, read_secret_env
from torchx_pulumi.inputs.document import DocumentError, parse_document
from torchx_pulumi.inputs.json_values import read_value
from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.model.errors import InvalidJobError, Problem, invalid_job
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec
from torchx_pulumi.planning.checks.job import check_job
from torchx_pulumi.planning.checks.values import is_list, is_number, typed, unknown_keys
from torchx_pulumi.planning.overlay import given_overlay

APP_KEYS = ("name", "roles", "metadata")

ROLE_KEYS = (
    "name",
    "image",
    "entrypoint",
    "args",
    "env",
    "secret_env",
    "num_replicas",
    "min_replicas",
    "max_retries",
    "retry_policy",
    "resource",
    "port_map",
    "mounts",
    "metadata",
    "node_selector",
    "tolerations",
    "pod_overlay",
)

_TORCHX_ONLY_ROLE_KEYS = ("base_image", "workspace", "overrides")
"""What `dataclasses.asdict` adds to a role; only the unset value is taken, since nothing here could honour another."""

RESOURCE_KEYS = ("cpu", "gpu", "memory_mb", "memMB", "devices", "capabilities", "tags")

MOUNT_KEYS = ("kind", "type", "src", "src_path", "dst", "dst_path", "read_only", "permissions")


def read_app_file(path: str | Path) -> JobSpec:
    """Read an AppDef file.

    Raises:
        InvalidJobError: The file cannot be read, is no valid YAML or JSON, or says what no AppDef says.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidJobError(name, [Problem(name, f"cannot be read: {reason}; check the path")]) from error
    try:
        document = parse_document(text)
    except DocumentError as error:
        raise InvalidJobError(name, [Problem(name, str(error))]) from error
    if not isinstance(document.data, dict):
        problem = Problem(name, f"{typed(document.data)}, must be a mapping with name and roles")
        raise InvalidJobError(name, [problem])
    try:
        return read_app_mapping(document.data)
    except InvalidJobError as error:
        problems = [document.locate(problem) for problem in error.problems]
        raise invalid_job(error.job, problems) from error


def read_app_mapping(app: Mapping[str, Any]) -> JobSpec:
    """Read an AppDef of plain mappings and lists.

    Raises:
        InvalidJobError: A key is unknown or a part has the wrong form; all problems at once.
    """
    problems = list(unknown_keys("", app, APP_KEYS))
    roles = app.get("roles")
    if is_list(roles):
        roles = [_read_role(f"roles[{index}]", role, problems) for index, role in enumerate(roles)]
    spec = JobSpec(
        name=_text(app.get("name")),
        roles=roles,  # type: ignore[arg-type]  # checks say what is wrong with it
        metadata=read_value(_given(app, "metadata", {})),
        torchx_version=installed_torchx_version(),
    )
    if problems:
        raise invalid_job(spec.name, [*problems, *check_job(spec)])
    return spec


def _read_role(path: str, role: Any, problems: list[Problem]) -> Any:
    if not isinstance(role, Mapping):
        return role
    problems.extend(unknown_keys(path, {key: 0 for key in role if key not in _TORCHX_ONLY_ROLE_KEYS}, ROLE_KEYS))
    for key in _TORCHX_ONLY_ROLE_KEYS:
        if role.get(key):
            problems.append(Problem(f"{path}.{key}", "has no effect here; remove it"))
    metadata = read_value(_given(role, "metadata", {}))
    extras = read_extras(f"{path}.metadata['torchx_pulumi']", metadata, problems)
    secret_mounts = extras.pop("mounts")
    for field in ("node_selector", "tolerations", "secret_env"):
        if role.get(field) is not None:
            extras[field] = read_secret_env(role[field]) if field == "secret_env" else role[field]
    mounts = _given(role, "mounts", ())
    if is_list(mounts):
        mounts = [
            *(_read_mount(f"{path}.mounts[{i}]", mount, problems) for i, mount in enumerate(mounts)),
            *secret_mounts,
        ]
    return RoleSpec(
        name=_text(role.get("name")),
        image=_text(role.get("image")),
        entrypoint=_text(role.get("entrypoint")),
        args=_texts(_given(role, "args", ())),
        env=_text_values(_given(role, "env", {})),
        num_replicas=_whole(_given(role, "num_replicas", 1)),
        min_replicas=_whole(role.get("min_replicas")),
        max_retries=_whole(_given(role, "max_retries", 0)),
        retry_policy=_given(role, "retry_policy", "APPLICATION"),
        resource=_read_resource(f"{path}.resource", role.get("resource"), problems),
        port_map=_whole_values(_given(role, "port_map", {})),
        mounts=mounts,
        metadata=metadata,
        pod_overlay=_read_pod_overlay(path, role, metadata, problems),
        **extras,
    )


def _read_resource(path: str, resource: Any, problems: list[Problem]) -> Any:
    if resource is None:
        return ResourceSpec()
    if not isinstance(resource, Mapping):
        return resource
    problems.extend(unknown_keys(path, resource, RESOURCE_KEYS))
    if "memory_mb" in resource and "memMB" in resource:
        problems.append(Problem(f"{path}.memMB", "is the same as memory_mb; remove one of the two"))
    return ResourceSpec(
        cpu=resource.get("cpu"),
        gpu=_whole(resource.get("gpu")),
        memory_mb=_whole(resource.get("memory_mb", resource.get("memMB"))),
        devices=_whole_values(_given(resource, "devices", {})),
        capabilities=_given(resource, "capabilities", {}),
    )


def _read_mount(path: str, mount: Any, problems: list[Problem]) -> Any:
    if not isinstance(mount, Mapping):
        return mount
    problems.extend(unknown_keys(path, mount, MOUNT_KEYS))
    kind = mount.get("kind", mount.get("type"))
    if kind is None:
        kind = (
            "volume" if "src" in mount and "src_path" not in mount else "device" if "permissions" in mount else "bind"
        )
    return MountSpec(
        kind=kind,
        src=_text(mount.get("src", mount.get("src_path"))),
        dst=_text(mount.get("dst", mount.get("dst_path"))),
        read_only=_given(mount, "read_only", False),
        permissions=_given(mount, "permissions", "rwm"),
    )


def _read_pod_overlay(path: str, role: Mapping[str, Any], metadata: object, problems: list[Problem]) -> Any:
    overlay = read_value(role.get("pod_overlay"))
    if overlay is None:
        return read_overlay(f"{path}.metadata['kubernetes']", metadata, problems)
    if isinstance(overlay, str):
        try:
            overlay = read_overlay_file(overlay)
        except ValueError as error:
            problems.append(Problem(f"{path}.pod_overlay", str(error)))
            return None
    return given_overlay(overlay) if isinstance(overlay, dict) else overlay


def _given(mapping: Mapping[str, Any], key: str, default: Any) -> Any:
    """Take a value; null is the same as absent."""
    value = mapping.get(key)
    return default if value is None else value


def _text(value: Any) -> Any:
    """Write a number or a boolean as text; what is neither is left for the checks.

    >>> _text(2.0), _text(True), _text("a"), _text(None)
    ('2', 'true', 'a', None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return str(_whole(value))
    return value


def _whole(value: Any) -> Any:
    """Take 2.0 for 2, as it comes from other languages; what is no number is left for the checks."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _texts(value: Any) -> Any:
    return [_text(item) for item in value] if is_list(value) else value


def _text_values(value: Any) -> Any:
    return {key: _text(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _whole_values(value: Any) -> Any:
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, Mapping) else value
