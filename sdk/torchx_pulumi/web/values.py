"""Values of an app in the API, the stream and the page: JSON values. Times are ISO 8601 in UTC, or null."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from torchx_pulumi.controller.live_fleet import LiveApp
from torchx_pulumi.fleet.collect import FleetRow
from torchx_pulumi.fleet.render.values import cause, plain
from torchx_pulumi.model.timestamps import format_time


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
    return {**summary(app, row), **{name: plain(value) for name, value in more.items()}, "logs": logs}


def summary(app: LiveApp, row: FleetRow) -> dict[str, Any]:
    """Return what a list of apps shows of one. Ages are left to the reader, so that a value stays true.

    Args:
        app: The app.
        row: Its row at the time of reading.
    """
    return {
        "id": app.id,
        "app_id": row.app_id,
        "name": row.name,
        "namespace": row.namespace,
        "scheduler": row.scheduler,
        "queue": row.queue,
        "user": row.user,
        "state": row.state.value,
        "reason": row.reason,
        "cause": cause(row),
        "ready": row.replicas_ready,
        "wanted": row.replicas_wanted,
        "gpus": float(row.resources_total.get("gpu", 0)),
        "stale": row.stale,
        "source": row.source,
        "attempt": row.attempt,
        "project": row.stack.project,
        "stack": row.stack.stack,
        "backend": app.app.backend,
        "launched_at": time_text(row.launched_at),
        "queued_at": time_text(row.queued_at),
        "started_at": time_text(row.started_at),
        "finished_at": time_text(row.finished_at),
        "observed_at": time_text(row.observed_at),
        "checked_at": time_text(row.checked_at),
    }


def time_text(time: datetime | None) -> str | None:
    """Return a time as text. None: it is not known."""
    return None if time is None else format_time(time)
