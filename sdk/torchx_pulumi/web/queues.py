"""Queues of the watched clusters for the pages and the API: what they may use and have allocated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.schedulers import find_backend, scheduler_names


def queue_values(views: Iterable[ClusterView]) -> list[dict[str, Any]]:
    """Return the queues of clusters as JSON values. Those that cannot be watched are left out; no request is made."""
    backends = [find_backend(name) for name in scheduler_names()]
    return [
        {"cluster": view.name, **backend.queue_amounts(found)}
        for view in views
        for backend in backends
        if backend.queue_kind is not None and view.watched.is_synced(backend.queue_kind, None)
        for found in view.watched.list(backend.queue_kind, None)
    ]
