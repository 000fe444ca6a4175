"""A fleet as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from torchx_pulumi.model.timestamps import format_time

from torchx_pulumi_fleet.views.columns import plain
from torchx_pulumi_fleet.views.row import Fleet, FleetRow

FLEET_VERSION = 1
"""Version of the JSON. A new field keeps it; a removed or changed one raises it."""


def to_json(fleet: Fleet) -> str:
    """Return a fleet as indented JSON with a newline at the end. Times are ISO 8601 in UTC."""
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
    """Return a row as plain JSON values under the names of its fields. `project` and `stack` name its stack."""
    values = {item.name: getattr(row, item.name) for item in dataclasses.fields(row)}
    values |= {"project": row.stack.project, "stack": row.stack.stack}
    return {name: plain(round(value, 1) if isinstance(value, float) else value) for name, value in values.items()}
