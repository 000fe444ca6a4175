"""A cluster whose watches are behind."""

from __future__ import annotations

import time
from typing import Any

from torchx_pulumi.kube.kinds import Kind

from tests.fakes import FakeCluster


class Lagging:
    """A cluster whose watches are held up, as by a slow network or while they connect again.

    Args:
        cluster: The cluster.
        only: The kind whose watches are. None: each.
    """

    def __init__(self, cluster: FakeCluster, only: Kind | None = None) -> None:
        self._cluster, self._only = cluster, only
        self.held = False

    def watch(self, kind: Kind, *args: Any, **options: Any) -> Any:
        events, lagging = self._cluster.watch(kind, *args, **options), self
        if self._only not in (None, kind):
            return events

        class Events:
            def __iter__(self) -> Any:
                return self

            def __next__(self) -> Any:
                event = next(events)
                while lagging.held:
                    time.sleep(0.01)
                return event

            def close(self) -> None:
                events.close()

        return Events()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
