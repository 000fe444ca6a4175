"""TorchX AppDefs, of 0.7.0 and nightly, as a `JobSpec`. They are read by attribute names and never changed.

TorchX itself is not needed. `AppReader` also holds what every form of an AppDef has in common: the parts of a role's
metadata that are ours.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.model.errors import invalid_job
from torchx_pulumi.model.job_spec import EXTRAS_KEY, OVERLAY_KEY, JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning.checks.job import MOUNT_KINDS, check_job_rules
from torchx_pulumi.planning.checks.values import found, is_list, shown, unknown_keys
from torchx_pulumi.planning.overlay import select_overlay
from torchx_pulumi.planning.typed_reader import FieldValues, TypedReader, field_types, uncovered

EXTRAS = ("secret_env", "secret_mounts", "node_selector", "tolerations")

_OVERLAY_KIND = "V1Pod"

LOGLEVEL = "LOGLEVEL"
"""Variable that TorchX's components copy into the env of a role."""
DEFAULT_LOGLEVEL = "WARNING"
"""What they write where it is not set."""

_MOUNT_KINDS = {"BindMount": "bind", "VolumeMount": "volume", "DeviceMount": "device"}
_SECRET_FIELDS = ("name", "key", "optional")


class AppReader(TypedReader):
    """Reads AppDefs."""

    def fields_of(self, kind: type, value: Any, path: str) -> Mapping[str, Any] | None:
        """Return the fields of an AppDef or a part of it."""
        if isinstance(value, FieldValues):
            return super().fields_of(kind, value, path)
        if kind is JobSpec:
            names = ("name", "roles", "metadata")
            given = {name: getattr(value, name, None) for name in names}
            given |= {"torchx_version": installed_torchx_version(), "machine_values": machine_values()}
            return {**given, "metadata": _or_empty(given["metadata"])}
        if kind is RoleSpec:
            return self._role(value, path)
        if kind is ResourceSpec and all(hasattr(value, name) for name in ("cpu", "gpu", "memMB")):
            given = {name: getattr(value, name) for name, _, _ in field_types(kind) if hasattr(value, name)}
            return {**given, "memory_mb": value.memMB}
        if kind is MountSpec:
            return self._mount(value, path)
        return self.secret(value, path) if kind is SecretRef else super().fields_of(kind, value, path)

    def _role(self, role: Any, path: str) -> Mapping[str, Any]:
        given = {name: getattr(role, name) for name, _, _ in field_types(RoleSpec) if hasattr(role, name)}
        metadata = given["metadata"] = _or_empty(given.get("metadata"))
        if given.get("resource") is None:
            given.pop("resource", None)
        policy = given.get("retry_policy", "APPLICATION")
        given["retry_policy"] = getattr(policy, "value", policy)
        given["pod_overlay"] = self.overlay_of(metadata, f"{path}.metadata[{OVERLAY_KEY!r}]")
        return self.with_extras(given, metadata, f"{path}.metadata[{EXTRAS_KEY!r}]")

    def _mount(self, mount: object, path: str) -> Mapping[str, Any] | None:
        """Return the fields of a mount. Its kind is that of its class or of a class that it derives from."""
        kind = next(
            (_MOUNT_KINDS[base.__name__] for base in type(mount).__mro__ if base.__name__ in _MOUNT_KINDS), None
        )
        if kind is None:
            known = ", ".join(MOUNT_KINDS)
            self.refuse(path, f"is of unknown kind {shown(type(mount).__name__)}, must be {known}", "mount")
            return None
        source, given = "src" if kind == "volume" else "src_path", {"kind": kind}
        names = {"src": source, "dst": "dst_path", "read_only": "read_only", "permissions": "permissions"}
        return {**given, **{name: getattr(mount, key) for name, key in names.items() if hasattr(mount, key)}}

    def secret(self, ref: object, path: str) -> Mapping[str, Any] | None:
        """Return the fields of a reference to a Secret."""
        if not isinstance(ref, Mapping):
            return super().fields_of(SecretRef, ref, path)
        self.problems.extend(unknown_keys(path, ref, _SECRET_FIELDS))
        return {name: ref[name] for name in _SECRET_FIELDS if name in ref}

    def overlay_of(self, metadata: object, path: str) -> dict[str, Any] | None:
        """Return the pod overlay in a role's metadata; a text there is the path or URI of a file, which is read."""
        value = metadata.get(OVERLAY_KEY) if isinstance(metadata, Mapping) else None
        if isinstance(value, str):
            value = self.overlay_file(value, path)
        return select_overlay(value, _OVERLAY_KIND) or None

    def overlay_file(self, uri: str, path: str) -> dict[str, Any] | None:
        """Read a file with a pod overlay."""
        try:
            return read_overlay_file(uri)
        except ValueError as error:
            self.refuse(path, str(error))
            return None

    def with_extras(self, given: dict[str, Any], metadata: object, path: str) -> dict[str, Any]:
        """Add the fields in `metadata["torchx_pulumi"]` of a role: secrets, node selector, tolerations."""
        extras = metadata.get(EXTRAS_KEY, {}) if isinstance(metadata, Mapping) else {}
        if not isinstance(extras, Mapping):
            self.refuse(path, f"{found(extras)}, must be a mapping: {', '.join(EXTRAS)}")
            extras = {}
        self.problems.extend(unknown_keys(path, extras, EXTRAS))
        mounts = extras.get("secret_mounts", ())
        if not is_list(mounts):
            self.refuse(f"{path}.secret_mounts", f"{found(mounts)}, must be a list of {{src, dst}}")
            mounts = ()
        secret_mounts = []
        for index, mount in enumerate(mounts):
            where = f"{path}.secret_mounts[{index}]"
            if isinstance(mount, Mapping):
                self.problems.extend(unknown_keys(where, mount, ("src", "dst")))
                secret_mounts.append(
                    FieldValues(kind="secret", src=mount.get("src"), dst=mount.get("dst"), read_only=True)
                )
            else:
                self.refuse(where, f"{found(mount)}, must be {{src, dst}}")
        if is_list(given.get("mounts", ())):
            given["mounts"] = [*given.get("mounts", ()), *secret_mounts]
        return {**{name: extras[name] for name in EXTRAS if name in extras and name != "secret_mounts"}, **given}


def read_app(app: Any) -> JobSpec:
    """Read a TorchX AppDef, or check the types of a `JobSpec`.

    Raises:
        InvalidJobError: A value of the AppDef, or an overlay file that it names, cannot be read. All problems at once,
            those of the rules included.
    """
    return read_with(TypedReader() if isinstance(app, JobSpec) else AppReader(), app)


def read_with(reader: TypedReader, app: Any) -> JobSpec:
    """Read a job; errors as of `read_app`."""
    job = reader.read(JobSpec, app, "")
    if reader.problems:
        raise invalid_job(job.name or None, [*reader.problems, *uncovered(check_job_rules(job), reader.problems)])
    return job


def installed_torchx_version() -> str | None:
    """Return the version of the installed TorchX, or None if it is not installed."""
    if "torchx" not in sys.modules:
        try:
            importlib.import_module("torchx")
        except ImportError:
            return None
    version = getattr(sys.modules["torchx"], "__version__", None)
    return version if isinstance(version, str) else None


def machine_values() -> dict[str, str]:
    """Return the values that TorchX's components take from this machine at present: see `JobSpec.machine_values`."""
    image = getattr(sys.modules.get("torchx"), "IMAGE", None)
    values = {f"env[{LOGLEVEL}]": os.environ.get(LOGLEVEL, DEFAULT_LOGLEVEL)}
    return {**values, "image": image} if isinstance(image, str) else values


def _or_empty(value: object) -> Any:
    return {} if value is None else value
