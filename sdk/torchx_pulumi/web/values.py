"""Values of an app in the API, the stream and the page: JSON values. Times are ISO 8601 in UTC, or null."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from torchx_pulumi.controller.live_fleet import LiveApp
from torchx_pulumi.fleet.collect import FleetRow
from torchx_pulumi.fleet.columns import ShownApp, summary
from torchx_pulumi.fleet.render.values import plain
from torchx_pulumi.model.timestamps import format_time


def live_summary(app: LiveApp, row: FleetRow) -> dict[str, Any]:
    """Return what a list of apps shows of one.

    Args:
        app: The app.
        row: Its row at the time of reading.
    """
    return summary(ShownApp(app.id, app.app.backend, row))


def detail(app: LiveApp, now: datetime, *, logs: bool) -> dict[str, Any]:
    """Return everything that is known of an app.

    Args:
        app: The app.
        now: Time of reading, aware.
        logs: Logs are served.
    """
    row = app.row(now)
    more = {
        "message": row.message,
        "phase": row.phase,
        "handle": row.handle,
        "roles": row.roles,
        "diagnoses": row.diagnoses,
        "resources_total": row.resources_total,
        "log_command": row.log_command,
        "ui_url": row.ui_url,
        "note": row.note,
    }
    return {**live_summary(app, row), **{name: plain(value) for name, value in more.items()}, "logs": logs}


def time_text(time: datetime | None) -> str | None:
    """Return a time as text. None: it is not known."""
    return None if time is None else format_time(time)
