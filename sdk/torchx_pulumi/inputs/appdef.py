"""The door for TorchX AppDefs, of 0.7.0 and nightly: duck-typed, never mutated, TorchX itself not needed.

Fields are taken as they are; what is wrong with them is said by `checks`, all at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_spec import JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning.checks.job import check_job
from torchx_pulumi.planning.checks.values import found, is_list, unknown_keys
from torchx_pulumi.planning.overlay import select_overlay

EXTRAS_KEY = "torchx_pulumi"
"""Where `role.metadata` holds what an AppDef has no field for."""

EXTRAS = ("secret_env", "secret_mounts", "node_selector", "tolerations")

OVERLAY_KEY = "kubernetes"
"""Where `role.metadata` holds the pod overlay, or the place of a file that has it."""
_OVERLAY_KIND = "V1Pod"

_MOUNT_KINDS = {"BindMount": "bind", "VolumeMount": "volume", "DeviceMount": "device"}


def read_app(app: Any) -> JobSpec:
    """Read a TorchX AppDef.

    Raises:
        InvalidJobError: The AppDef, or an overlay file that it names, cannot be read.
    """
    problems: list[Problem] = []
    roles = getattr(app, "roles", None)
    if is_list(roles):
        roles = [_read_role(f"roles[{index}]", role, problems) for index, role in enumerate(roles)]
    spec = JobSpec(
        name=getattr(app, "name", None),  # type: ignore[arg-type]  # checks say what is wrong with it
        roles=roles,  # type: ignore[arg-type]
        metadata=_or_empty(getattr(app, "metadata", None)),
        torchx_version=installed_torchx_version(),
    )
    if problems:
        raise invalid_job(spec.name, [*check_job(spec), *problems])
    return spec


def installed_torchx_version() -> str | None:
    """Return the version of the TorchX that is installed, None where there is none."""
    if "torchx" not in sys.modules:
        try:
            importlib.import_module("torchx")
        except ImportError:
            return None
    version = getattr(sys.modules["torchx"], "__version__", None)
    return version if isinstance(version, str) else None


def _read_role(path: str, role: Any, problems: list[Problem]) -> RoleSpec:
    metadata = _or_empty(getattr(role, "metadata", None))
    extras = read_extras(f"{path}.metadata[{EXTRAS_KEY!r}]", metadata, problems)
    mounts = getattr(role, "mounts", ())
    policy = getattr(role, "retry_policy", "APPLICATION")
    return RoleSpec(
        name=getattr(role, "name", None),  # type: ignore[arg-type]
        image=getattr(role, "image", None),  # type: ignore[arg-type]
        entrypoint=getattr(role, "entrypoint", None),  # type: ignore[arg-type]
        args=getattr(role, "args", ()),
        env=getattr(role, "env", {}),
        num_replicas=getattr(role, "num_replicas", 1),
        min_replicas=getattr(role, "min_replicas", None),
        max_retries=getattr(role, "max_retries", 0),
        retry_policy=getattr(policy, "value", policy),
        resource=_read_resource(getattr(role, "resource", None)),
        port_map=getattr(role, "port_map", {}),
        mounts=[*map(_read_mount, mounts), *extras.pop("mounts")] if is_list(mounts) else mounts,
        metadata=metadata,
        pod_overlay=read_overlay(f"{path}.metadata[{OVERLAY_KEY!r}]", metadata, problems),
        **extras,
    )


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _read_resource(resource: Any) -> ResourceSpec:
    if resource is None:
        return ResourceSpec()
    if not all(hasattr(resource, field) for field in ("cpu", "gpu", "memMB")):
        return resource  # type: ignore[no-any-return]
    return ResourceSpec(
        cpu=resource.cpu,
        gpu=resource.gpu,
        memory_mb=resource.memMB,
        devices=getattr(resource, "devices", {}),
        capabilities=getattr(resource, "capabilities", {}),
    )


def _read_mount(mount: Any) -> MountSpec:
    """Tell the kind of a mount by its class or a class it derives from; an unknown one keeps its class's name."""
    kinds = [_MOUNT_KINDS[base.__name__] for base in type(mount).__mro__ if base.__name__ in _MOUNT_KINDS]
    if not kinds:
        return MountSpec(kind=type(mount).__name__, src="?", dst="?")
    return MountSpec(
        kind=kinds[0],
        src=getattr(mount, "src" if kinds[0] == "volume" else "src_path", None),  # type: ignore[arg-type]
        dst=getattr(mount, "dst_path", None),  # type: ignore[arg-type]
        read_only=getattr(mount, "read_only", False),
        permissions=getattr(mount, "permissions", "rwm"),
    )


def read_overlay(path: str, metadata: object, problems: list[Problem]) -> dict[str, Any] | None:
    """Find the pod overlay of a role's metadata; a text is the place of a file, which is read here."""
    value = metadata.get(OVERLAY_KEY) if isinstance(metadata, Mapping) else None
    if isinstance(value, str):
        try:
            value = read_overlay_file(value)
        except ValueError as error:
            problems.append(Problem(path, str(error)))
            return None
    return select_overlay(value, _OVERLAY_KIND) or None


def read_extras(path: str, metadata: object, problems: list[Problem]) -> dict[str, Any]:
    """Read what `metadata["torchx_pulumi"]` says of a role: secrets, node selector, tolerations."""
    value = metadata.get(EXTRAS_KEY, {}) if isinstance(metadata, Mapping) else {}
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{found(value)}, must be a mapping: {', '.join(EXTRAS)}"))
        value = {}
    problems.extend(unknown_keys(path, value, EXTRAS))
    mounts = value.get("secret_mounts", ())
    if not is_list(mounts):
        problems.append(Problem(f"{path}.secret_mounts", f"{found(mounts)}, must be a list of {{src, dst}}"))
        mounts = ()
    return {
        "secret_env": read_secret_env(value.get("secret_env", {})),
        "mounts": [_read_secret_mount(f"{path}.secret_mounts[{i}]", mount, problems) for i, mount in enumerate(mounts)],
        "node_selector": value.get("node_selector", {}),
        "tolerations": value.get("tolerations", ()),
    }


def read_secret_env(value: Any) -> Any:
    """Make references of `{NAME: {name, key, optional}}`; what is none of these is left for the checks."""
    if not isinstance(value, Mapping):
        return value
    return {name: _secret_ref(ref) for name, ref in value.items()}


def _secret_ref(ref: Any) -> Any:
    if isinstance(ref, Mapping) and {"name", "key"} <= set(ref) <= {"name", "key", "optional"}:
        return SecretRef(name=ref["name"], key=ref["key"], optional=ref.get("optional", False))
    return ref


def _read_secret_mount(path: str, mount: Any, problems: list[Problem]) -> MountSpec:
    if not isinstance(mount, Mapping):
        problems.append(Problem(path, f"{found(mount)}, must be {{src, dst}}"))
        return MountSpec(kind="secret", src="unknown", dst=path)
    problems.extend(unknown_keys(path, mount, ("src", "dst")))
    return MountSpec(kind="secret", src=mount.get("src"), dst=mount.get("dst"), read_only=True)  # type: ignore[arg-type]
