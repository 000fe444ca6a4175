"""LiveRows: rows of a fleet from watched clusters, for a terminal. Read only."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.controller.observing import WAITS, ChangeListener, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.stack_apps import AppKey
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.work_queue import WorkQueue, start_thread
from torchx_pulumi.controller.writing import look_at
from torchx_pulumi.fleet.collect import FleetRow, StackName
from torchx_pulumi.fleet.collect.fleet_stacks import FleetStacks
from torchx_pulumi.fleet.collect.live import Target, find_target
from torchx_pulumi.fleet.collect.row import build_row
from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.requested import follows
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.checkpoint import DAMAGED, read_notes

MOST_NAMESPACES = 4
"""Namespaces of a cluster that are watched one by one. With more, all namespaces are watched at once."""

DEBOUNCE_S = 0.1

OUTAGE_S = 1.0
"""Time between two checks whether a cluster answers, and has listed its objects."""

RECHECK_S = 30.0
"""Time until an app that waits is looked at again: some reasons depend on the time."""

Access = tuple[str | None, str | None]
"""Kubeconfig and context."""


@dataclass(slots=True)
class _Known:
    """What is known of the app of a stack."""

    target: Target | None = None
    """Where it is. None: unknown, `note` says why."""
    uid: str | None = None
    """Uid of the run that was observed."""
    observed: Mapping[str, Any] | None = None
    """What its cluster says, in the shape of the output. None: nothing yet."""
    note: str = ""
    """Why its cluster says nothing."""


class _Watched(ChangeListener):
    """One watched cluster, and its apps that have to be looked at."""

    def __init__(self, name: str, cluster: Cluster, tracked: TrackedStacks, namespaces: frozenset[str] | None) -> None:
        self.queue: WorkQueue[AppKey] = WorkQueue()
        self.away_since: datetime | None = None
        """When it was first found not to answer. None: it answers."""
        self.namespaces = namespaces
        self.view = ClusterView(name, cluster, tracked, self, namespaces)

    def dirty(self, key: AppKey, delay_s: float = 0.0) -> None:
        self.queue.add(key, max(delay_s, DEBOUNCE_S))

    def stop(self) -> None:
        self.queue.close()
        self.view.watched.stop()


@dataclass(eq=False)
class LiveRows:
    """Watches the clusters of the apps that have not ended."""

    source: FleetStacks
    """The stacks, which the caller refreshes."""
    wanted: Callable[[FleetRow], bool]
    """Returns whether the cluster of an app is watched."""
    changed: Callable[[], None]
    """Called when a row may have changed."""
    connect: Connect = KubernetesCluster.connect
    """Connects to a cluster by kubeconfig and context."""
    says_unconfigured: bool = False
    """Report clusters without a usable kubeconfig. False: they are left out."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __post_init__(self) -> None:
        """Begin without clusters. The first `refresh` connects to them."""
        self._guard = threading.Lock()
        self._versions: dict[StackName, str] = {}
        """Stacks whose clusters are watched; another version than before, if they have changed."""
        self._count = itertools.count()
        self._tracked = TrackedStacks(
            [self.source.backend],
            Reporter(write=lambda _: None),
            opened=lambda _: self.source.stacks,
            taken=self._take,
        )
        self._known: dict[StackName, _Known] = {}
        self._clusters: dict[Access, _Watched] = {}
        self._unconfigured: dict[str, str] = {}
        self._stopped = threading.Event()
        start_thread(self._note_outages, "outages")

    def stop(self) -> None:
        """End the watches. Returns after about a second."""
        with self._guard:
            self._stopped.set()
        ending = [start_thread(cluster.stop, f"stop {cluster.view.name}") for cluster in self._clusters.values()]
        for thread in ending:
            thread.join(1.0)

    def refresh(self, changed: Iterable[StackName]) -> None:
        """Take over stacks that changed, and watch the clusters that are named there for the first time."""
        rows = self.source.rows(self.now())
        kept = self._versions.keys() - changed
        self._versions = {
            name: self._versions[name] if name in kept else str(next(self._count))
            for name, row in rows.items()
            if self.wanted(row)
        }
        keys = self._tracked.refresh(self.source.backend, self._versions)
        for name in self._known.keys() - self._versions.keys():
            del self._known[name]
        self._watch_clusters()
        for key in keys:
            cluster = self._cluster_of(self._known.get(key[1]))
            if cluster is not None:
                cluster.dirty(key)

    def _cluster_of(self, known: _Known | None) -> _Watched | None:
        return None if known is None or known.target is None else self._clusters.get(known.target.access)

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Return the name of each cluster that does not answer, to the reason."""
        found = dict(self._unconfigured) if self.says_unconfigured else {}
        for cluster in [*self._clusters.values()]:
            if cluster.away_since is not None:
                since = cluster.away_since.astimezone().strftime("%H:%M:%S")
                found[cluster.view.name] = f"no answer since {since}; what was last seen is shown"
        return found

    def rows(self, rows: Mapping[StackName, FleetRow], now: datetime) -> Mapping[StackName, FleetRow]:
        """Return the rows for which a cluster is newer than the stack."""
        apps, fresh = self.source.apps(), {}
        for name, known in [*self._known.items()]:
            app, row, cluster, seen = apps.get(name), rows.get(name), self._cluster_of(known), known.observed
            if app is None or row is None:
                continue
            if seen is None and known.note:
                fresh[name] = replace(row, note=known.note)
            elif seen is not None and cluster is not None:
                away = cluster.away_since is not None
                fresh[name] = build_row(
                    name,
                    app,
                    now,
                    seen=seen,
                    checked_at=cluster.away_since or now,
                    source="local" if away else "live",
                    updating=row.updating,
                    note=f"cluster not reached: {cluster.view.name}" if away else "",
                )
        return fresh

    def _take(self, name: StackName, text: str) -> None:
        """Note the cluster of a stack's app, from the stack's text."""
        app, known = self.source.apps().get(name), self._known.setdefault(name, _Known())
        if app is None:
            return
        try:
            known.target = find_target(app, *read_notes(text), self.connect)
        except (TorchxPulumiError, *DAMAGED) as error:
            known.target, known.observed, known.note = None, None, f"not observed: {error}"

    def _watch_clusters(self) -> None:
        """Watch the namespaces of all targets."""
        namespaces: dict[Access, set[str]] = {}
        names: dict[Access, str] = {}
        for app in self._tracked.apps():
            target = self._known[app.stack].target if app.stack in self._known else None
            if target is not None:
                namespaces.setdefault(target.access, set()).add(app.namespace)
                names[target.access] = target.cluster_name
        for access, wanted in namespaces.items():
            known = self._clusters.get(access)
            if known is not None and (known.namespaces is None or wanted <= known.namespaces):
                continue
            whole = wanted if known is None or known.namespaces is None else wanted | known.namespaces
            self._watch(access, names[access], None if len(whole) > MOST_NAMESPACES else frozenset(whole), known)

    def _watch(self, access: Access, name: str, namespaces: frozenset[str] | None, before: _Watched | None) -> None:
        try:
            cluster = self.connect(*access)
        except ClusterError as error:
            self._unconfigured[name] = str(error)
            return
        self._unconfigured.pop(name, None)
        watched = _Watched(name, cluster, self._tracked, namespaces)
        with self._guard:
            if self._stopped.is_set():
                return
            self._clusters[access] = watched
        watched.view.watched.start()
        start_thread(partial(watched.queue.serve, partial(self._look, access, watched)), f"fleet {name}")
        # No change tells of an app without objects.
        for app in self._tracked.apps():
            watched.dirty(app.key)
        if before is not None:
            before.stop()

    def _note_outages(self) -> None:
        while not self._stopped.wait(OUTAGE_S):
            for cluster in [*self._clusters.values()]:
                since = (cluster.away_since or self.now()) if cluster.view.watched.is_away else None
                if since != cluster.away_since:
                    cluster.away_since = since
                    self.changed()

    def _look(self, access: Access, cluster: _Watched, key: AppKey) -> None:
        """Look at an app, and tell if it changed."""
        app, known, row = self._tracked.app(key), self._known.get(key[1]), self.source.apps().get(key[1])
        target = None if known is None else known.target
        if app is None or known is None or target is None or row is None or target.access != access:
            return
        if text_at(row.output, "app", "id") != app.app_id:
            # Another component of a stack whose output has one app.
            return
        view, queue, note = cluster.view, cluster.queue, ""
        if app.state in WAITS:
            queue.add(key, RECHECK_S)
        if not view.is_synced(app):
            queue.add(key, OUTAGE_S)
            return
        # A request of this user's that is not in the stack yet.
        mine = None if target.entry is None else target.entry.requested
        requested = mine if mine is not None and follows(mine, app.requested) else app.requested
        observed: Mapping[str, Any] | None = mapping_at(row.output, "observed") or None
        if known.uid == app.uid and known.observed is not None:
            observed = latest(observed, known.observed, requested) if observed else known.observed
        try:
            if view.job_object(app) is None and not view.is_cluster_of(app):
                observed, note = None, f"not in the cluster of its launch: {view.name}"
            else:
                before = Answer(observed=observed or {}, requested=requested)
                found = look_at(view, app, self.now(), before, self._tracked.is_changing)
                if found is None:
                    return
                observed = found.observed or observed
        except ClusterError as error:
            if error.retryable:
                queue.retry(key)
                return
            observed, note = None, f"not observed: {error}"
        queue.succeeded(key)
        known.uid, before_it = app.uid, (known.observed, known.note)
        known.observed, known.note = observed, note
        if before_it != (observed, note):
            self.changed()
