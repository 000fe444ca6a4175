"""UserClusters: the clusters of a user's apps, asked once or watched, by the access of a launch or the user's own."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, partial

from torchx_pulumi.apps.answer import Answer, StackChange
from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.kube.concurrent import in_thread
from torchx_pulumi.model.cluster_identity import Match
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import read_state
from torchx_pulumi.runs.whereabouts import Connect, reachable

from torchx_pulumi_fleet.tracker.live_fleet import live_id
from torchx_pulumi_fleet.tracker.looking import Looking, Sighting, known_of, read_now, sighting_of
from torchx_pulumi_fleet.tracker.observing import WAITS, ChangeListener, ClusterView
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.tracker.user_fleet import UserFleet
from torchx_pulumi_fleet.tracker.work_queue import WorkQueue, start_thread
from torchx_pulumi_fleet.views.row import FleetRow

OBSERVED_AT_ONCE = 16

PATIENCE_S = 2.0
"""Longest wait for the first response of a cluster if `live` was not requested."""

MOST_NAMESPACES = 4
"""Namespaces of a cluster that are watched one by one. With more, all namespaces are watched at once."""

DEBOUNCE_S = 0.1

OUTAGE_S = 1.0
"""Time between two checks whether a cluster answers, and has listed its objects."""

RECHECK_S = 30.0
"""Time until an app that waits is looked at again: some reasons depend on the time."""

Access = tuple[str | None, str | None]
"""Kubeconfig and context. None: those in force."""

WriteEnd = Callable[[App, StackChange], Answer | None]
"""Writes an end to the stack of an app, and returns what the stack says then. None: it is not known."""


def find_access(app: App, connect: Connect) -> Access:
    """Return how the cluster of an app is reached here: by the access of the launch, else by the one in force."""
    if app.entry is not None:
        return reachable(app.entry, connect).access
    return None, app.context


class _Watched(ChangeListener):
    """One watched cluster, and the apps that have to be looked at."""

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


@dataclass(eq=False, kw_only=True)
class UserClusters:
    """Asks or watches the clusters of some apps, and shows what they say."""

    fleet: UserFleet
    """The apps. The caller refreshes their stacks."""
    wanted: Callable[[FleetRow], bool]
    """Returns whether the cluster of an app is asked, by the row without it."""
    connect: Connect = KubernetesCluster.connect
    """Connects to a cluster by kubeconfig and context."""
    says_unconfigured: bool = False
    """Report clusters without a usable kubeconfig. False: they are left out."""
    write: WriteEnd | None = None
    """Writes the observed ends of apps of `torchx run`. None: they are not written."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def __post_init__(self) -> None:
        """Begin without clusters. `ask` or the first `watch` connects to them."""
        self._guard = threading.Lock()
        self._access: dict[AppKey, Access] = {}
        """How the clusters of the wanted apps are reached."""
        self._clusters: dict[Access, _Watched] = {}
        self._unreached: dict[str, str] = {}
        """Name of a cluster that does not answer, to the reason."""
        self._elsewhere: dict[AppKey, tuple[str, str]] = {}
        """App to the name of a cluster that is not that of its launch, and the reason."""
        self._stopped = threading.Event()

    @property
    def unreachable(self) -> Mapping[str, str]:
        """Return the name of each cluster that does not answer, or is not that of a launch, to the reason."""
        found = {**dict([*self._elsewhere.values()]), **self._unreached}
        for cluster in [*self._clusters.values()]:
            if cluster.away_since is not None:
                since = cluster.away_since.astimezone().strftime("%H:%M:%S")
                found[cluster.view.name] = f"no answer since {since}; what was last seen is shown"
        return found

    def ask(self, *, patience_s: float | None) -> None:
        """Ask the clusters once. One that does not respond is asked about one app only.

        Args:
            patience_s: Longest wait for the first response of a cluster. None: no limit.
        """
        connect = self._take(app.key for app in self.fleet.tracked.apps())
        groups: defaultdict[Access, list[App]] = defaultdict(list)
        for key, access in self._access.items():
            app = self.fleet.tracked.app(key)
            groups[access] += [] if app is None else [app]
        if groups:
            # urllib3 1.26 imports modules lazily under the import lock, which can deadlock threads.
            with contextlib.suppress(ImportError):
                importlib.import_module("urllib3")

        def start(access: Access) -> tuple[threading.Event, threading.Event, Future[None]]:
            responded, late = threading.Event(), threading.Event()
            # A daemon thread, so that a cluster that does not respond cannot keep the process running.
            result = in_thread(partial(self._ask_about, groups[access], access, connect, responded, late))
            result.add_done_callback(lambda _: responded.set())
            return responded, late, result

        pending = {access: start(access) for access in groups}
        end = None if patience_s is None else time.monotonic() + patience_s
        for access, (responded, late, result) in pending.items():
            if responded.wait(None if end is None else max(end - time.monotonic(), 0.0)):
                result.result()
            else:
                late.set()
                self._unreached[self._name(access)] = f"no answer within {patience_s:g} s; --live waits longer"

    def _ask_about(
        self,
        apps: Sequence[App],
        access: Access,
        connect: Connect,
        responded: threading.Event,
        late: threading.Event,
    ) -> None:
        """Ask a cluster about the first app, and if it responds in time, about all others at the same time."""
        name = self._name(access)

        def look(view: ClusterView, app: App) -> Sighting | str:
            try:
                return self._look(view, app, read_now)
            except ClusterError as error:
                self._unreached.setdefault(name, str(error))
                return f"cluster not reached: {name}"

        try:
            view = ClusterView(name, connect(*access), self.fleet.tracked, ChangeListener(), namespaces=None)
        except ClusterError as error:
            if self.says_unconfigured:
                self._unreached[name] = str(error)
                for app in apps:
                    self._show(app, f"cluster not reached: {name}")
            return
        first, *others = apps
        found = look(view, first)
        if late.is_set():
            return
        responded.set()
        self._show(first, found)
        if name in self._unreached:
            for app in others:
                self._show(app, f"cluster not reached: {name}")
        elif others:
            with ThreadPoolExecutor(min(len(others), OBSERVED_AT_ONCE)) as pool:
                for app, found in zip(others, pool.map(partial(look, view), others), strict=True):
                    self._show(app, found)

    def watch(self, changed: Iterable[AppKey]) -> None:
        """Take over apps that changed in their stacks, and watch the clusters that are named for the first time."""
        keys = [*changed]
        self._take(keys)
        self._watch_clusters()
        for key in keys:
            if key in self._access and self._access[key] in self._clusters:
                self._clusters[self._access[key]].dirty(key)

    def stop(self) -> None:
        """End the watches. Returns after about a second."""
        with self._guard:
            self._stopped.set()
        ending = [start_thread(cluster.stop, f"stop {cluster.view.name}") for cluster in self._clusters.values()]
        for thread in ending:
            thread.join(1.0)

    def _take(self, keys: Iterable[AppKey]) -> Connect:
        """Note how the clusters of apps are reached; return what connects to each of them once."""
        connect, now = cache(self.connect), self.now()
        for key in keys:
            shown, app = self.fleet.apps.find(live_id(key)), self.fleet.tracked.app(key)
            self._access.pop(key, None)
            self._elsewhere.pop(key, None)
            if app is None or shown is None:
                continue
            if not self.wanted(shown.unseen().row(now)):
                self.fleet.apps.put_unseen(key)
            elif app.left_alone:
                self._show(app, f"not observed: {app.left_alone}")
            else:
                self._access[key] = find_access(app, connect)
        return connect

    def _watch_clusters(self) -> None:
        """Watch the namespaces of all wanted apps."""
        namespaces: dict[Access, set[str]] = {}
        for key, access in self._access.items():
            app = self.fleet.tracked.app(key)
            if app is not None:
                namespaces.setdefault(access, set()).add(app.run.namespace)
        for access, wanted in namespaces.items():
            known = self._clusters.get(access)
            if known is not None and (known.namespaces is None or wanted <= known.namespaces):
                continue
            whole = wanted if known is None or known.namespaces is None else wanted | known.namespaces
            self._watch(access, None if len(whole) > MOST_NAMESPACES else frozenset(whole), known)

    def _watch(self, access: Access, namespaces: frozenset[str] | None, before: _Watched | None) -> None:
        name = self._name(access)
        self._unreached.pop(name, None)
        try:
            watched = _Watched(name, self.connect(*access), self.fleet.tracked, namespaces)
        except ClusterError as error:
            if self.says_unconfigured:
                self._unreached[name] = str(error)
            return
        with self._guard:
            if self._stopped.is_set():
                return
            if not self._clusters:
                start_thread(self._note_outages, "outages")
            self._clusters[access] = watched
        watched.view.watched.start()
        start_thread(partial(watched.queue.serve, partial(self._look_again, access, watched)), f"fleet {name}")
        # No change tells of an app without objects.
        for key in self._access:
            watched.dirty(key)
        if before is not None:
            before.stop()

    def _name(self, access: Access) -> str:
        """Return the name of a cluster in messages. Contexts of several kubeconfigs may have one name."""
        name = access[1] or "the current context"
        is_alone = all(other[1] != access[1] for other in {*self._access.values()} - {access})
        return name if is_alone else f"{name} of {access[0] or 'the kubeconfig in force'}"

    def _note_outages(self) -> None:
        while not self._stopped.wait(OUTAGE_S):
            for cluster in [*self._clusters.values()]:
                since = (cluster.away_since or self.now()) if cluster.view.watched.is_away else None
                if since != cluster.away_since:
                    cluster.away_since = since
                    self.fleet.apps.put_away(cluster.view.name, since)

    def _look_again(self, access: Access, cluster: _Watched, key: AppKey) -> None:
        """Look at an app in its watched cluster, and show it."""
        app, view, queue = self.fleet.tracked.app(key), cluster.view, cluster.queue
        if app is None or self._access.get(key) != access:
            return
        if app.state in WAITS:
            queue.add(key, RECHECK_S)
        if not view.is_synced(app):
            queue.add(key, OUTAGE_S)
            return
        try:
            self._show(app, self._look(view, app, sighting_of))
        except ClusterError:
            queue.retry(key)
            return
        queue.succeeded(key)

    def _look(self, view: ClusterView, app: App, look: Looking) -> Sighting | str:
        """Look at an app; return what is seen, or why nothing is. Empty: nothing new.

        Raises:
            ClusterError: The cluster does not answer.
        """
        self._elsewhere.pop(app.key, None)
        before = known_of(app, self.fleet.apps.find(live_id(app.key)), self.fleet.own.requested(app))
        try:
            found = look(view, app, self.now(), before, self.fleet.tracked.is_changing)
            if found is None:
                return self._why_absent(view, app)
        except ClusterError as error:
            if error.retryable:
                raise
            return f"not observed: {error}"
        if found.look.lacks_pods and before.observed:
            return "not observed: its pods may not be read"
        has_ended = found.observed is not None and read_state(found.observed.get("state")).terminal
        if has_ended and app.entry is not None and app.uid is not None and self.write is not None:
            written = self.write(app, StackChange(uid=app.uid, look=found.look, request=before.requested))
            return found if written is None else replace(found, observed=written.observed or found.observed)
        return found

    def _why_absent(self, view: ClusterView, app: App) -> str:
        """Return why a cluster says nothing of an app whose job object it does not have. Empty: nothing new."""
        if view.job_object(app) is not None or view.is_cluster_of(app):
            return ""
        if app.cluster is None and app.entry is None:
            return "not found in the cluster of the current context, which may be another one"
        present = view.origin.identify()
        is_other = app.match(present) is Match.DIFFERENT
        self._elsewhere[app.key] = (
            view.name,
            f"{present} {'is not' if is_other else 'is not known to be'} the cluster that the apps were launched in; "
            "name the right kubeconfig with KUBECONFIG",
        )
        return f"not in the cluster of its launch: {view.name}"

    def _show(self, app: App, found: Sighting | str) -> None:
        if not isinstance(found, str):
            self.fleet.apps.put_seen(app.key, app.uid, found.observed, cluster=found.cluster)
        elif found:
            self.fleet.apps.put_unseen(app.key, found)
