"""LiveRows: rows of a fleet from watched clusters, for a terminal. Nothing is written."""

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
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a cluster says of an app."""

    uid: str | None = None
    observed: Mapping[str, Any] | None = None
    """In the shape of the output. None: nothing, and `note` says why."""
    note: str = ""


class _Watched(ChangeListener):
    """One watched cluster, and its apps that have to be looked at."""

    def __init__(self, name: str, cluster: Cluster, tracked: TrackedStacks, namespaces: frozenset[str] | None) -> None:
        self.name = name
        self.namespaces = namespaces
        self.queue: WorkQueue[AppKey] = WorkQueue()
        self.away_since: datetime | None = None
        """When it was first found not to answer. None: it answers."""
        watched = None if namespaces is None else sorted(namespaces)
        self.view = ClusterView(name, cluster, tracked, self, namespaces=watched)

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
    """Report clusters for which there is no usable kubeconfig. False: they are left out."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __post_init__(self) -> None:
        """Begin without clusters; nothing is asked of one yet."""
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
        self._targets: dict[StackName, Target] = {}
        self._clusters: dict[Access, _Watched] = {}
        self._unconfigured: dict[str, str] = {}
        self._seen: dict[StackName, _Seen] = {}
        self._stopped = threading.Event()
        start_thread(self._note_outages, "outages")

    def stop(self) -> None:
        """End the watches. Returns after about a second."""
        with self._guard:
            self._stopped.set()
            clusters = [*self._clusters.values()]
        ending = [start_thread(cluster.stop, f"stop {cluster.name}") for cluster in clusters]
        for thread in ending:
            thread.join(1.0)

    def refresh(self, changed: Iterable[StackName]) -> None:
        """Take over stacks that changed, and watch the clusters that are named there for the first time."""
        rows = self.source.rows(self.now())
        kept = self._versions.keys() - changed
        known = self._versions = {
            name: self._versions[name] if name in kept else str(next(self._count))
            for name, row in rows.items()
            if self.wanted(row)
        }
        keys = self._tracked.refresh(self.source.backend, known)
        with self._guard:
            self._targets = {name: target for name, target in self._targets.items() if name in known}
            self._seen = {name: seen for name, seen in self._seen.items() if name in known}
        self._watch_clusters()
        for key in keys:
            target = self._targets.get(key[1])
            cluster = None if target is None else self._clusters.get(target.access)
            if cluster is not None:
                cluster.dirty(key)

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Return the name of each cluster that does not answer, to the reason."""
        found = dict(self._unconfigured) if self.says_unconfigured else {}
        for cluster in [*self._clusters.values()]:
            if cluster.away_since is not None:
                since = cluster.away_since.astimezone().strftime("%H:%M:%S")
                found[cluster.name] = f"no answer since {since}; what was last seen is shown"
        return found

    def rows(self, rows: Mapping[StackName, FleetRow], now: datetime) -> Mapping[StackName, FleetRow]:
        """Return the rows of which the clusters tell something newer than the stacks."""
        apps, fresh = self.source.apps(), {}
        with self._guard:
            seen, targets = dict(self._seen), dict(self._targets)
        for name, one in seen.items():
            app, target, row = apps.get(name), targets.get(name), rows.get(name)
            if app is None or row is None:
                continue
            if one.observed is None:
                fresh[name] = replace(row, note=one.note)
                continue
            cluster = None if target is None else self._clusters.get(target.access)
            if cluster is None:
                continue
            away = cluster.away_since is not None
            fresh[name] = build_row(
                name,
                app,
                now,
                seen=one.observed,
                checked_at=cluster.away_since or now,
                source="local" if away else "live",
                updating=row.updating,
                note=f"cluster not reached: {cluster.name}" if away else "",
            )
        return fresh

    def _take(self, name: StackName, text: str) -> None:
        """Note where the app of a stack is, from the stack's text."""
        app = self.source.apps().get(name)
        if app is None:
            return
        try:
            target = find_target(app, *read_notes(text), self.connect)
        except (TorchxPulumiError, *DAMAGED) as error:
            with self._guard:
                self._targets.pop(name, None)
                self._seen[name] = _Seen(note=f"not observed: {error}")
            return
        with self._guard:
            self._targets[name] = target

    def _watch_clusters(self) -> None:
        """Watch the namespaces of all targets."""
        namespaces: dict[Access, set[str]] = {}
        names: dict[Access, str] = {}
        for app in self._tracked.apps():
            target = self._targets.get(app.stack)
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
        """Look at an app, and tell if something else is seen than before."""
        app, target, row = self._tracked.app(key), self._targets.get(key[1]), self.source.apps().get(key[1])
        if app is None or target is None or row is None or target.access != access:
            return
        if text_at(row.output, "app", "id") != app.app_id:
            # Another component of a stack whose output has one app.
            return
        if app.state in WAITS:
            cluster.queue.add(key, RECHECK_S)
        if not cluster.view.is_synced(app):
            cluster.queue.add(key, OUTAGE_S)
            return
        try:
            seen = self._see(cluster.view, app, target, mapping_at(row.output, "observed"))
        except ClusterError as error:
            if error.retryable:
                cluster.queue.retry(key)
                return
            seen = _Seen(note=f"not observed: {error}")
        cluster.queue.succeeded(key)
        if seen is None:
            return
        with self._guard:
            before, self._seen[key[1]] = self._seen.get(key[1]), seen
        if before != seen:
            self.changed()

    def _see(self, view: ClusterView, app: TrackedApp, target: Target, recorded: Mapping[str, Any]) -> _Seen | None:
        """Return what a cluster says of an app. None: nothing new.

        Raises:
            ClusterError: No answer.
        """
        if view.job_object(app) is None and not view.is_cluster_of(app):
            return _Seen(note=f"not in the cluster of its launch: {view.name}")
        # A request of this user's that is not in the stack yet.
        mine = None if target.entry is None else target.entry.requested
        requested = mine if mine is not None and follows(mine, app.requested) else app.requested
        last = self._seen.get(app.stack)
        if last is not None and last.uid == app.uid and last.observed is not None:
            recorded = latest(recorded, last.observed, requested) if recorded else last.observed
        before = Answer(observed=recorded, requested=requested)
        found = look_at(view, app, self.now(), before, self._tracked.is_changing)
        return None if found is None else _Seen(uid=app.uid, observed=found.observed or recorded or None)
