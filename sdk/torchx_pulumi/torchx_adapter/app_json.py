"""Write an AppDef as plain JSON values and read it back without loss, also with the other TorchX version."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchx import specs

from torchx_pulumi.inputs.json_values import KEY_ORDER, in_key_order, read_value, write_value
from torchx_pulumi.model.job_spec import EXTRAS_KEY
from torchx_pulumi.model.object_fields import at, mapping_at
from torchx_pulumi.torchx_adapter import compat

_MOUNTS = {"bind": specs.BindMount, "volume": specs.VolumeMount, "device": specs.DeviceMount}

_ORDERED = ("env", "secret_env", "port_map")
"""Mappings of a role whose order is rendered. Pulumi's state sorts them."""

_LEFT_OUT = ("overrides",)
"""Fields whose values are read through other fields."""


def write_app(app: Any) -> dict[str, Any]:
    """Return an AppDef as plain JSON values."""
    return {
        "name": app.name,
        "metadata": write_value(app.metadata),
        "roles": [_write_role(role) for role in app.roles],
    }


def read_roles(value: Mapping[str, Any]) -> list[Any]:
    """Return the roles of what `write_app` wrote."""
    return [_read_role(role) for role in value.get("roles") or []]


def read_app_json(value: Mapping[str, Any]) -> Any:
    """Return the AppDef of what `write_app` wrote."""
    return specs.AppDef(
        name=value.get("name", ""), roles=read_roles(value), metadata=read_value(value.get("metadata") or {})
    )


def read_metadata(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the app's metadata of what `write_app` wrote."""
    return dict(read_value(value.get("metadata") or {}))


def _write_role(role: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(role):
        if item.name in _LEFT_OUT:
            continue
        value = getattr(role, item.name)
        if item.name == "mounts":
            fields["mounts"] = [
                {
                    "type": next((kind for kind, of in _MOUNTS.items() if isinstance(mount, of)), type(mount).__name__),
                    **_write_fields(mount),
                }
                for mount in value
            ]
        elif item.name == "resource":
            fields["resource"] = _write_fields(value)
        elif item.name == "workspace":
            fields["workspace"] = None if value is None else dict(value.projects)
        else:
            fields[item.name] = write_value(getattr(value, "value", value))
    found = {**fields, "secret_env": at(fields, "metadata", EXTRAS_KEY, "secret_env")}
    keys = {name: list(mapping_at(found, name)) for name in _ORDERED}
    order = {name: order for name, order in keys.items() if order != sorted(order)}
    return {**fields, KEY_ORDER: order} if order else fields


def _write_fields(value: Any) -> dict[str, Any]:
    return {item.name: write_value(getattr(value, item.name)) for item in dataclasses.fields(value)}


def _read_role(value: Mapping[str, Any]) -> Any:
    order = value.get(KEY_ORDER) or {}
    read_otherwise = ("mounts", "resource", "workspace", KEY_ORDER)
    fields = {
        name: in_key_order(read_value(item), order.get(name))
        for name, item in value.items()
        if name not in read_otherwise
    }
    fields["mounts"] = []
    for mount in value.get("mounts") or []:
        given = {name: read_value(item) for name, item in mount.items() if name != "type"}
        kind = _MOUNTS.get(mount["type"])
        fields["mounts"].append(given if kind is None else compat.make(kind, given))
    fields["resource"] = compat.make(
        specs.Resource, read_value(value.get("resource") or {"cpu": -1, "gpu": -1, "memMB": -1})
    )
    policy = value.get("retry_policy") or specs.RetryPolicy.APPLICATION.value
    # One that the installed version does not know stays text.
    fields["retry_policy"] = next((known for known in specs.RetryPolicy if known.value == policy), policy)
    if value.get("workspace") is not None:
        fields["workspace"] = compat.make_workspace(value["workspace"])
    return compat.make(specs.Role, fields)
