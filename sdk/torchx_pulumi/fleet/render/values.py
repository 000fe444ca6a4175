"""Values of a fleet as every view shows them: JSON values, and the texts of ages, freshness and causes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_pulumi.fleet.collect import Fleet, FleetRow
from torchx_pulumi.model.object_fields import is_finite
from torchx_pulumi.model.timestamps import format_time

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
    """Return a value with dicts, lists and finite numbers only. Any other number becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number and not is_finite(value) else value


def why(state: str, reason: str, cause: str) -> str:
    """Return the reason and the cause of a state in one text; a reason that only repeats the state is left out.

    >>> why("PENDING", "Unschedulable", "no node has 2 GPUs"), why("RUNNING", "Running", "")
    ('Unschedulable: no node has 2 GPUs', '')
    """
    reason = "" if reason.upper() == state else reason
    if not cause or cause.startswith(reason):
        return cause or reason
    return f"{reason}: {cause}" if reason else cause
