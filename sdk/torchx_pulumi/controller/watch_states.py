"""Whether the clusters are watched, for metrics and for the ages of what a fleet shows, and which is an app's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from torchx_pulumi.controller.figures import WatchState
from torchx_pulumi.controller.live_fleet import LiveFleet, live_id
from torchx_pulumi.controller.observing import ClusterView
from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.fleet.collect.row import STALE_AFTER_S
from torchx_pulumi.model.errors import ClusterError


def watch_states(views: Sequence[ClusterView]) -> list[WatchState]:
    """Return the watches of all kinds that the clusters serve; of versions of one kind, the one behind most."""
    found: dict[tuple[str, str, str | None], WatchState] = {}
    for view in views:
        for each in view.watched.watches:
            state = WatchState(cluster=view.name, kind=each.kind.resource, namespace=each.namespace, lag_s=each.lag_s)
            key = (state.cluster, state.kind, state.namespace)
            if each.is_served and (key not in found or found[key].lag_s < state.lag_s):
                found[key] = state
    return [*found.values()]


class OutageNotes:
    """Notes in a fleet which clusters do not answer."""

    def __init__(self, views: Sequence[ClusterView], fleet: LiveFleet, *, now: Callable[[], datetime]) -> None:
        """Begin without outages.

        Args:
            views: The clusters.
            fleet: The fleet.
            now: The time, aware.
        """
        self._views = views
        self._fleet = fleet
        self._now = now
        self._since: dict[str, datetime] = {}
        self._long: set[str] = set()
        """Clusters that have not answered for so long that what is shown of them is stale."""

    def run(self, stopped: threading.Event, every_s: float) -> None:
        """Check again and again until the event is set."""
        while not stopped.wait(every_s):
            self.check()

    def check(self) -> None:
        """Note what has changed since the last check."""
        for view in self._views:
            name, since = view.name, self._since.get(view.name)
            if not view.watched.is_away:
                if since is not None:
                    del self._since[name]
                    self._long.discard(name)
                    self._fleet.put_away(name, None)
            elif since is None:
                self._since[name] = self._now()
                self._fleet.put_away(name, self._since[name])
            elif name not in self._long and self._now() - since > timedelta(seconds=STALE_AFTER_S):
                # Readers of changes learn that the rows are stale now.
                self._long.add(name)
                self._fleet.put_away(name, since)


def view_of(app: TrackedApp, views: Sequence[ClusterView], fleet: LiveFleet | None) -> ClusterView | None:
    """Return the watched cluster of an app's run: with its job object, else where it was seen or launched."""
    for view in views:
        if view.job_object(app) is not None:
            return view
    seen = None if fleet is None else fleet.find(live_id(app.key))
    for view in views:
        if seen is not None and seen.app.uid == app.uid and seen.cluster == view.name:
            return view
    for view in views:
        with suppress(ClusterError):
            if view.is_cluster_of(app):
                return view
    return None
