"""LiveRows: rows of a fleet from watched clusters, for a terminal. Nothing is written."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.judge import latest
from torchx_pulumi.controller.observing import WAITS, ChangeListener, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.stack_apps import AppKey, TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.controller.writing import look_at
from torchx_pulumi.fleet.collect import FleetRow, StackName
from torchx_pulumi.fleet.collect.fleet_stacks import FleetStacks
from torchx_pulumi.fleet.collect.live import Target, find_target
from torchx_pulumi.fleet.collect.row import build_row
from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.model.app_entry import ORGANIZATION, StackRef
from torchx_pulumi.model.errors import ClusterError, TorchxPulumiError
from torchx_pulumi.model.requested import follows
from torchx_pulumi.runs.whereabouts import Connect
from torchx_pulumi.stack_state.checkpoint import DAMAGED, read_notes

MOST_NAMESPACES = 4
"""Namespaces of a cluster that are watched one by one. With more, all namespaces are watched at once."""

DEBOUNCE_S = 0.1

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
    """One watched cluster."""

    def __init__(self, name: str, cluster: Cluster, tracked: TrackedStacks, namespaces: frozenset[str] | None) -> None:
        self.name = name
        self.namespaces = namespaces
        self.changed: set[AppKey] = set()
        self.wake = threading.Event()
        self.stopped = threading.Event()
        self.away_since: datetime | None = None
        """When it was first found not to answer. None: it answers."""
        watched = None if namespaces is None else sorted(namespaces)
        self.view = ClusterView(name, cluster, tracked, self, namespaces=watched)

    def dirty(self, key: AppKey, delay_s: float = 0.0) -> None:  # noqa: ARG002 - several changes become one look anyway
        self.changed.add(key)
        self.wake.set()

    def is_away(self, now: datetime) -> bool:
        """Return whether it does not answer, and note since when."""
        away = self.view.watched.is_away
        self.away_since = (self.away_since or now) if away else None
        return away

    def stop(self) -> None:
        self.stopped.set()
        self.wake.set()
        self.view.watched.stop()


class _WantedStacks:
    """The `ListedStacks` whose clusters are watched; each is read again after a change."""

    def __init__(self, source: FleetStacks, take: Callable[[StackName, str], None]) -> None:
        self._source = source
        self._take = take
        self._versions: dict[StackName, str] = {}
        self._count = itertools.count()

    def change(self, changed: Iterable[StackName], wanted: Collection[StackName]) -> None:
        """Note which stacks are wanted, and which of them have changed."""
        kept = {name: version for name, version in self._versions.items() if name not in set(changed)}
        self._versions = {name: kept.get(name) or str(next(self._count)) for name in wanted}

    @property
    def reads_at_once(self) -> int:
        return self._source.stacks.reads_at_once

    def versions(self, project: str | None = None) -> Mapping[StackName, str]:  # noqa: ARG002 - as the caller listed
        return self._versions

    def updating(self) -> frozenset[StackName]:
        return self._source.stacks.updating()

    def export(self, ref: StackRef) -> str | None:
        text = self._source.stacks.export(ref)
        if text is not None:
            stack = ref.stack if ref.organization == ORGANIZATION else f"{ref.organization}/{ref.stack}"
            self._take(StackName(project=ref.project, stack=stack), text)
        return text


class LiveRows:
    """Watches the clusters of the apps that have not ended."""

    def __init__(
        self,
        source: FleetStacks,
        *,
        wanted: Callable[[FleetRow], bool],
        changed: Callable[[], None],
        connect: Connect = KubernetesCluster.connect,
        says_unconfigured: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Take the stacks; nothing is asked of a cluster yet.

        Args:
            source: The stacks, which the caller refreshes.
            wanted: Returns whether the cluster of an app is watched.
            changed: Called when a row may have changed.
            connect: Connects to a cluster by kubeconfig and context.
            says_unconfigured: Report clusters for which there is no usable kubeconfig. False: they are left out.
            now: The clock.
        """
        self._source = source
        self._wanted = wanted
        self._changed = changed
        self._connect = connect
        self._says_unconfigured = says_unconfigured
        self._now = now
        self._guard = threading.Lock()
        self._stacks = _WantedStacks(source, self._take)
        self._tracked = TrackedStacks([source.backend], Reporter(write=lambda _: None), opened=lambda _: self._stacks)
        self._targets: dict[StackName, Target] = {}
        self._clusters: dict[Access, _Watched] = {}
        self._unconfigured: dict[str, str] = {}
        self._seen: dict[StackName, _Seen] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """End the watches. Returns after about a second."""
        with self._guard:
            self._is_stopped, clusters = True, [*self._clusters.values()]
        ending = [threading.Thread(target=cluster.stop, daemon=True) for cluster in clusters]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(1.0)

    def refresh(self, changed: Iterable[StackName]) -> None:
        """Take over stacks that changed, and watch the clusters that are named there for the first time."""
        rows = self._source.rows(self._now())
        self._stacks.change(changed, {name for name, row in rows.items() if self._wanted(row)})
        keys = self._tracked.refresh(self._source.backend)
        with self._guard:
            known = self._stacks.versions()
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
        with self._guard:
            clusters = [*self._clusters.values()]
        found = dict(self._unconfigured) if self._says_unconfigured else {}
        for cluster in clusters:
            if cluster.is_away(self._now()) and cluster.away_since is not None:
                since = cluster.away_since.astimezone().strftime("%H:%M:%S")
                found[cluster.name] = f"no answer since {since}; what was last seen is shown"
        return found

    def rows(self, rows: Mapping[StackName, FleetRow], now: datetime) -> Mapping[StackName, FleetRow]:
        """Return the rows of which the clusters tell something newer than the stacks."""
        apps, fresh = self._source.apps(), {}
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
            away = cluster.is_away(now)
            fresh[name] = build_row(
                name,
                app,
                now,
                seen=one.observed,
                checked_at=cluster.away_since if away else now,
                source="local" if away else "live",
                updating=row.updating,
                note=f"cluster not reached: {cluster.name}" if away else "",
            )
        return fresh

    def _take(self, name: StackName, text: str) -> None:
        """Note where the app of a stack is, from the stack's text."""
        app = self._source.apps().get(name)
        if app is None:
            return
        try:
            target = find_target(app, *read_notes(text), self._connect)
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
            cluster = self._connect(*access)
        except ClusterError as error:
            self._unconfigured[name] = str(error)
            return
        self._unconfigured.pop(name, None)
        watched = _Watched(name, cluster, self._tracked, namespaces)
        with self._guard:
            if self._is_stopped:
                return
            self._clusters[access] = watched
        watched.view.watched.start()
        threading.Thread(target=self._work, args=(access, watched), name=f"fleet {name}", daemon=True).start()
        if before is not None:
            before.stop()

    def _work(self, access: Access, cluster: _Watched) -> None:
        """Look at the apps of a cluster that changed, until it is stopped."""
        is_settled, was_away = False, False
        for turn in itertools.count():
            cluster.wake.wait(1.0)
            if cluster.stopped.wait(DEBOUNCE_S):
                return
            cluster.wake.clear()
            # Another thread may add one meanwhile.
            keys = {cluster.changed.pop() for _ in range(len(cluster.changed))}
            if not is_settled and cluster.view.watched.is_settled:
                is_settled = True
                # No change tells of an app without objects.
                keys |= {app.key for app in self._tracked.apps()}
            elif turn % int(RECHECK_S) == 0:
                keys |= {app.key for app in self._tracked.apps() if app.state in WAITS}
            away = cluster.is_away(self._now())
            looked = [self._look(access, cluster, key) for key in keys]
            if any(looked) or away != was_away:
                self._changed()
            was_away = away

    def _look(self, access: Access, cluster: _Watched, key: AppKey) -> bool:
        """Look at an app; return whether something else is seen than before."""
        app, target, row = self._tracked.app(key), self._targets.get(key[1]), self._source.apps().get(key[1])
        if app is None or target is None or row is None or target.access != access:
            return False
        identity = row.output.get("app")
        if not isinstance(identity, Mapping) or identity.get("id") != app.app_id:
            # Another component of a stack whose output has one app.
            return False
        try:
            seen = self._see(cluster.view, app, target, row.output.get("observed"))
        except ClusterError as error:
            if error.retryable:
                return False
            seen = _Seen(note=f"not observed: {error}")
        if seen is None:
            return False
        with self._guard:
            before, self._seen[key[1]] = self._seen.get(key[1]), seen
        return before != seen

    def _see(self, view: ClusterView, app: TrackedApp, target: Target, recorded: Any) -> _Seen | None:
        """Return what a cluster says of an app. None: nothing new.

        Raises:
            ClusterError: No answer.
        """
        # A request of this user's that is not in the stack yet.
        mine = None if target.entry is None else target.entry.requested
        requested = mine if mine is not None and follows(mine, app.requested) else app.requested
        known = recorded if isinstance(recorded, Mapping) and recorded else None
        last = self._seen.get(app.stack)
        if last is not None and last.uid == app.uid and last.observed is not None:
            known = last.observed if known is None else latest(known, last.observed, requested)
        if view.job_object(app) is None:
            if not view.is_synced(app):
                return None
            if not view.is_cluster_of(app):
                return _Seen(note=f"not in the cluster of its launch: {view.name}")
        before = Answer(observed=known or {}, requested=requested)
        found = look_at(view, app, self._now(), before, self._tracked.is_changing)
        return None if found is None else _Seen(uid=app.uid, observed=found.observed or known)
