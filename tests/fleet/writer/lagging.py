"""A cluster whose watches are behind."""

from __future__ import annotations

import time
from typing import Any

from tests.fakes import FakeCluster


class Lagging:
    """A cluster whose watches are held up, as by a slow network."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.held = False

    def watch(self, *args: Any, **options: Any) -> Any:
        events, lagging = self._cluster.watch(*args, **options), self

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
