"""Queues of the watched clusters for the pages and the API: what their jobs may use and were given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.schedulers import find_backend, scheduler_names
from torchx_pulumi.web.answers import ShownQueue


def queues_of(views: Iterable[ClusterView]) -> Iterator[ShownQueue]:
    """Yield the queues of clusters as last watched. Those that cannot be watched are left out; no request is made."""
    backends = [find_backend(name) for name in scheduler_names()]
    for view in views:
        for backend in backends:
            if backend.queue_kind is None or not view.watched.is_synced(backend.queue_kind, None):
                continue
            for found in view.watched.list(backend.queue_kind, None):
                capability, allocated = backend.queue_amounts(found)
                name = text_at(found, "metadata", "name") or ""
                yield ShownQueue(cluster=view.name, name=name, capability=capability, allocated=allocated)
