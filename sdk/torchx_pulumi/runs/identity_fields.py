"""Which fields of a job are its identity: their paths, their defaults and their written form. Frozen.

A digest is taken of a path and a value, and the value's form has names of its own. Run options are counted by the rows
of their tables (`model.options`). Fields of a job are text here, so that a field of a dataclass can get another name or
another default and no running job gets another identity. Path and default of a row are never changed. A new field gets
a new row; at its default it is not counted, so that what runs stays what it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from torchx_pulumi.model.job_spec import MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.model.options import Option, rows_of
from torchx_pulumi.schedulers.volcano.options import NetworkTopology


class _Always:
    """Stands for the default of a field that has none."""


ALWAYS: Final = _Always()
"""Default of a field that is counted whatever it is."""

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
"""Default of a mapping that is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One field that is part of the identity."""

    path: str
    """Path in digests. Fixed."""
    default: Any
    """Value at which the field is not counted. Fixed. `ALWAYS`: it is counted at any value."""
    attribute: str
    """Where the value is found in the dataclass of today."""


def _rows(**defaults: Any) -> tuple[Row, ...]:
    """Make rows of fields that are called in the dataclass as they are in digests."""
    return tuple(Row(path=name, default=default, attribute=name) for name, default in defaults.items())


ROLE: Final = _rows(
    image=ALWAYS,
    entrypoint=ALWAYS,
    args=(),
    env=NONE,
    secret_env=NONE,
    num_replicas=1,
    min_replicas=None,
    max_retries=0,
    retry_policy="APPLICATION",
    resource=NONE,
    port_map=NONE,
    mounts=(),
    node_selector=NONE,
    tolerations=(),
    pod_overlay=None,
)
"""Fields of a role, without its name, which is in the paths, and its metadata, which does not run."""

RESOURCE: Final = _rows(cpu=None, gpu=None, memory_mb=None, devices=NONE, capabilities=NONE)

SECRET: Final = _rows(name=ALWAYS, key=ALWAYS, optional=ALWAYS)
MOUNT: Final = _rows(kind=ALWAYS, src=ALWAYS, dst=ALWAYS, read_only=ALWAYS, permissions=ALWAYS)
TOPOLOGY: Final = _rows(mode=ALWAYS, highest_tier_allowed=ALWAYS)

TABLES: Final[Mapping[type, tuple[Row, ...]]] = MappingProxyType(
    {
        RoleSpec: ROLE,
        ResourceSpec: RESOURCE,
        SecretRef: SECRET,
        MountSpec: MOUNT,
        NetworkTopology: TOPOLOGY,
    }
)
"""Every dataclass of ours that identity is taken of, and its fields."""

TABLES_OF: Final[Mapping[int, Mapping[type, tuple[Row, ...]]]] = MappingProxyType({2: TABLES})
"""Version of the identity to its tables. Options that have none are counted by their rows."""


def identity_rows(of: Any, version: int) -> tuple[Row, ...]:
    """Return the fields that are counted of options, a role, or a part of one."""
    for kind, rows in TABLES_OF[version].items():
        if isinstance(of, kind):
            return rows
    return tuple(
        Row(path=row.torchx_name, default=_counted_default(row), attribute=row.name)
        for row in rows_of(type(of))
        if row.counted
    )


def _counted_default(row: Option) -> Any:
    default = row.default if row.counted_default is dataclasses.MISSING else row.counted_default
    return ALWAYS if default is dataclasses.MISSING else default


def set_fields(of: Any, version: int) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each field that is not at its default.

    Args:
        of: Options, a role, or a part of one.
        version: Version of the identity.
    """
    for row in identity_rows(of, version):
        value = getattr(of, row.attribute)
        if row.default is ALWAYS or canonical(value, version) != canonical(row.default, version):
            yield row.path, value


def canonical(value: Any, version: int) -> Any:
    """Return a JSON value that is equal for equal meaning: 2 and 2.0, tuples and lists, enums and their values."""
    if isinstance(value, Enum):
        return canonical(value.value, version)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple(TABLES_OF[version])):
        return {path: canonical(item, version) for path, item in set_fields(value, version)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # The user's own, in metadata or an overlay.
        return {item.name: canonical(getattr(value, item.name), version) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): canonical(item, version) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [canonical(item, version) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Set):
        return sorted((canonical(item, version) for item in value), key=repr)
    return repr(value)


def _key(key: Any) -> str:
    """Return a key as it is rendered: an enum by its value."""
    return str(key.value if isinstance(key, Enum) else key)


def in_order(overlay: Any) -> Any:
    """Return a pod overlay so that what counts in it differs: tuples replace, operators work in their order."""
    if isinstance(overlay, Mapping):
        entries = {_key(key): in_order(item) for key, item in overlay.items()}
        return [list(entry) for entry in entries.items()] if any(key.startswith("__") for key in entries) else entries
    if isinstance(overlay, tuple):
        return {"$tuple": [in_order(item) for item in overlay]}
    return [in_order(item) for item in overlay] if isinstance(overlay, list) else overlay
