"""AppDef files, YAML or JSON, and mappings of the same keys, as a `JobSpec`.

A file may also be the output of `dataclasses.asdict` for a TorchX AppDef, or of `torchx-pulumi program` for a
launched one. The metadata of the latter has marks for values that JSON has no form for (`json_values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx_pulumi.inputs.appdef import AppReader, installed_torchx_version, read_with
from torchx_pulumi.inputs.document import DocumentError, parse_document
from torchx_pulumi.inputs.json_values import read_value
from torchx_pulumi.model.errors import InvalidJobError, Problem, invalid_job
from torchx_pulumi.model.job_spec import EXTRAS_KEY, OVERLAY_KEY, JobSpec, MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.planning.checks.values import is_list, is_number, typed, unknown_keys
from torchx_pulumi.planning.overlay import given_overlay
from torchx_pulumi.planning.typed_reader import FieldValues, TypedReader, as_text, field_types, whole_numbers

_UNUSED_ROLE_KEYS = ("base_image", "workspace", "overrides")
"""Keys that `dataclasses.asdict` adds to a role. Only their unset value is taken, as another one has no effect."""

ROLE_KEYS = tuple(name for name, _, _ in field_types(RoleSpec) if name != "image_digest")
"""Keys of a role. A digest is written as a part of the image."""

RESOURCE_KEYS = ("cpu", "gpu", "memory_mb", "memMB", "devices", "capabilities", "tags")

MOUNT_KEYS = ("kind", "type", "src", "src_path", "dst", "dst_path", "read_only", "permissions")

_KEYS: Mapping[type, tuple[str, ...]] = {
    JobSpec: ("name", "roles", "metadata"),
    RoleSpec: (*ROLE_KEYS, *_UNUSED_ROLE_KEYS),
    ResourceSpec: RESOURCE_KEYS,
    MountSpec: MOUNT_KEYS,
    SecretRef: ("name", "key", "optional"),
}
"""Keys of every part of a job."""

_TEXTS: Mapping[type, tuple[str, ...]] = {
    JobSpec: ("name",),
    RoleSpec: ("name", "image", "entrypoint", "args", "env"),
    MountSpec: ("src", "src_path", "dst", "dst_path"),
}
"""Keys whose numbers and booleans are accepted as text."""


def read_app_file(path: str | Path) -> JobSpec:
    """Read an AppDef file.

    Raises:
        InvalidJobError: The file cannot be read, is not valid YAML or JSON, or is not an AppDef.
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
    if "roles" not in document.data and {"apiVersion", "kind"} <= document.data.keys():
        found = f"{document.data['apiVersion']} {document.data['kind']}"
        problem = Problem(name, f"is a Kubernetes object ({found}), not an AppDef; write name and roles of the job")
        raise InvalidJobError(name, [problem])
    try:
        return read_app_mapping(document.data)
    except InvalidJobError as error:
        problems = [document.locate(problem) for problem in error.problems]
        raise invalid_job(error.job, problems) from error


def read_app_mapping(app: Mapping[str, Any]) -> JobSpec:
    """Read an AppDef of plain mappings and lists. A null is the same as an absent key.

    Raises:
        InvalidJobError: A key is unknown or a value cannot be read. All problems at once.
    """
    return read_with(MappingReader(), app)


class MappingReader(AppReader):
    """Reads mappings of YAML and JSON. Some numbers and booleans are accepted as text (`_TEXTS`), and 2.0 as 2."""

    def fields_of(self, kind: type, value: object, path: str) -> Mapping[str, Any] | None:
        """Return the fields of a mapping."""
        if isinstance(value, FieldValues) or not isinstance(value, Mapping):
            return TypedReader.fields_of(self, kind, value, path)
        self.problems.extend(unknown_keys(path, value, _KEYS[kind]))
        given = {
            key: texts_of(item) if key in _TEXTS.get(kind, ()) else item
            for key, item in value.items()
            if item is not None and key in _KEYS[kind]
        }
        if kind is JobSpec:
            metadata = read_value(given.get("metadata", {}))
            return {**given, "metadata": metadata, "torchx_version": installed_torchx_version()}
        if kind is RoleSpec:
            return self._role(given, path)
        if kind is ResourceSpec:
            if "memory_mb" in given and "memMB" in given:
                self.refuse(f"{path}.memMB", "is the same as memory_mb; remove one of the two")
            memory = given.get("memory_mb", given.get("memMB"))
            return {**given, "memory_mb": whole_numbers(memory), "gpu": whole_numbers(given.get("gpu"))}
        return _mount(given) if kind is MountSpec else given

    def whole(self, value: object, path: str) -> int:
        """Return a whole number."""
        return super().whole(whole_numbers(value), path)

    def _role(self, role: dict[str, Any], path: str) -> Mapping[str, Any]:
        for key in _UNUSED_ROLE_KEYS:
            if role.pop(key, None):
                self.refuse(f"{path}.{key}", "has no effect here; remove it")
        metadata = role["metadata"] = read_value(role.get("metadata", {}))
        overlay = read_value(role.get("pod_overlay"))
        if overlay is None:
            overlay = self.overlay_of(metadata, f"{path}.metadata[{OVERLAY_KEY!r}]")
        else:
            overlay = self.overlay_file(overlay, f"{path}.pod_overlay") if isinstance(overlay, str) else overlay
            overlay = given_overlay(overlay) if isinstance(overlay, dict) else overlay
        role["pod_overlay"] = overlay
        return self.with_extras(role, metadata, f"{path}.metadata[{EXTRAS_KEY!r}]")


def _mount(mount: Mapping[str, Any]) -> Mapping[str, Any]:
    is_volume = "src" in mount and "src_path" not in mount
    inferred = "volume" if is_volume else "device" if "permissions" in mount else "bind"
    named = {"kind": mount.get("kind", mount.get("type", inferred))}
    for name in ("src", "dst"):
        named[name] = mount.get(name, mount.get(f"{name}_path"))
    return {**mount, **named}


def texts_of(value: object) -> Any:
    """Return numbers and booleans as JSON writes them, also those in a list or mapping; any other value as it is.

    >>> [texts_of(value) for value in (2.0, [True, "a", None], {"a": 1})]
    ['2', ['true', 'a', None], {'a': '1'}]
    """
    if is_list(value):
        return [texts_of(item) for item in value]
    if isinstance(value, Mapping):
        return {key: texts_of(item) for key, item in value.items()}
    return as_text(value) if isinstance(value, bool) or is_number(value) else value
