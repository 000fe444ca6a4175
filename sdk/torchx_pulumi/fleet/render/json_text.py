"""A fleet as JSON. The names are the row's own; times are ISO 8601 in UTC."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.model.timestamps import format_time

FLEET_VERSION = 1
"""Version of the JSON. A new field keeps it; a removed or changed one raises it."""


def to_json(fleet: Fleet) -> str:
    """Write a fleet as JSON, indented, with a newline at its end."""
    return json.dumps(fleet_values(fleet), indent=2, ensure_ascii=False) + "\n"


def fleet_values(fleet: Fleet) -> dict[str, Any]:
    """Return a fleet as plain JSON values: version, backend, read_at, apps, broken, others, unreachable, warnings."""
    return {
        "version": FLEET_VERSION,
        "backend": fleet.backend,
        "read_at": format_time(fleet.read_at),
        "apps": [row_values(row) for row in fleet.rows],
        "broken": [{**dataclasses.asdict(item.stack), "why": item.why} for item in fleet.broken],
        "others": fleet.others,
        "unreachable": dict(fleet.unreachable),
        "warnings": list(fleet.warnings),
    }


def row_values(row: FleetRow) -> dict[str, Any]:
    """Return a row as plain JSON values; `project` and `stack` are its stack."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(row):
        value = getattr(row, item.name)
        if isinstance(value, datetime):
            value = format_time(value)
        elif isinstance(value, float):
            value = round(value, 1)
        values[item.name] = value
    values |= {"state": row.state.value, "project": row.stack.project, "stack": row.stack.stack}
    return {name: plain(value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: mappings as objects, sequences as arrays, no number that is none."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
