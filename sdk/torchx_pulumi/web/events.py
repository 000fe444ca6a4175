"""The events of an app for the page and the API."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.model.object_fields import number_at, text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import format_time, parse_time

MOST_EVENTS = 200
"""Events of one app: the newest."""

LONGEST_MESSAGE = 2000
"""Characters of a message."""


def events_of(view: ClusterView | None, app: TrackedApp) -> list[dict[str, Any]]:
    """Return the events of an app's objects as JSON values, the newest first.

    Args:
        view: Its cluster. None: the controller does not watch it, and there are none.
        app: The app.

    Raises:
        ClusterError: Events are not watched, and the cluster does not answer.
    """
    if view is None:
        return []
    return [_values(event) for event in reversed(view.events_of(app)[-MOST_EVENTS:])]


def _values(event: Manifest) -> dict[str, Any]:
    times = (
        text_at(event, "lastTimestamp"),
        text_at(event, "eventTime"),
        text_at(event, "metadata", "creationTimestamp"),
    )
    time = next((found for found in map(parse_time, times) if found is not None), None)
    kind, name = text_at(event, "involvedObject", "kind") or "", text_at(event, "involvedObject", "name") or ""
    return {
        "time": None if time is None else format_time(time),
        "type": text_at(event, "type") or "Normal",
        "reason": text_at(event, "reason") or "",
        "message": (text_at(event, "message") or text_at(event, "note") or "")[:LONGEST_MESSAGE],
        "object": f"{kind}/{name}",
        "count": max(number_at(event, "count") or 1, 1),
        "source": text_at(event, "reportingComponent") or None,
    }
