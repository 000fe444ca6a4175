"""Reads of a cluster that are answered from watched objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from torchx_pulumi.kube.cached_reader import CachedReader
from torchx_pulumi.kube.kinds import EVENT, POD, Kind
from torchx_pulumi.kube.pod_list import PodList, PodRow, row_of
from torchx_pulumi.kube.protocol import Cluster, Manifests, Selector, matches
from torchx_pulumi.kube.trimming import trim
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest

from torchx_pulumi_fleet.watch.cached_objects import CachedEvents, CachedObjects
from torchx_pulumi_fleet.watch.object_watch import STOP_S, Change, ObjectWatch, Outages, WatchTiming

KEPT_S: Final = 30.0
"""Seconds for which the answer to a read of something that is not watched is kept and shared."""

MOST_ROWS: Final = 50_000
"""Rows of pods that are kept, until the pods change."""


class WatchedCluster(CachedReader):
    """A `Reader` whose watched objects are kept up to date in memory.

    Returned objects are shared and trimmed: a caller must not change them, and fields that no status or diagnosis reads
    are missing. All other objects are read from the cluster, whose answers are kept for 30 s.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Sequence[tuple[Kind, Selector | None]],
        *,
        namespaces: Sequence[str] | None,
        changed: Callable[[Change], None],
        timing: WatchTiming | None = None,
    ) -> None:
        """Prepare the watches. No request is made before `start`.

        Args:
            cluster: The cluster.
            kinds: Watched kinds, and the labels that an object must have. None: all objects. Objects that are read by
                name or listed by labels have these labels; `watching.watch_list` returns such kinds.
            namespaces: Namespaces of the watched objects. None: all namespaces.
            changed: Called with each change, in the thread of the watch; it should return soon. Errors are logged.
            timing: Waits between requests.
        """
        timing = timing or WatchTiming()
        super().__init__(cluster, kept_s=KEPT_S, monotonic=timing.monotonic)
        self.origin: Cluster = cluster
        self._namespaces = namespaces
        self._rows: dict[tuple[str | None, str | None], PodRow] = {}
        """Rows of pods by the uid and the version of the pod."""
        self._outages = Outages(f"the cluster at {cluster.api_server}")
        self._watches = {
            (kind, namespace): ObjectWatch(
                cluster, kind, namespace, selector, changed=changed, outages=self._outages, timing=timing
            )
            for kind, selector in kinds
            for namespace in (namespaces if namespaces is not None and kind.namespaced else (None,))
        }

    def start(self) -> None:
        """Start the watches, each in a thread of its own."""
        for watch in self._watches.values():
            watch.start()

    def stop(self) -> None:
        """End the watches. Returns after a second at most."""
        for watch in self._watches.values():
            watch.signal_stop()
        until = time.monotonic() + STOP_S
        for watch in self._watches.values():
            watch.stop(max(until - time.monotonic(), 0.0))

    @property
    def is_away(self) -> bool:
        """Return whether no watch works because the cluster does not answer."""
        return self._outages.is_away and not any(watch.synced for watch in self._watches.values())

    @property
    def is_settled(self) -> bool:
        """Return whether each watch works, or has failed at least once: the first lists are as complete as they get."""
        return all(watch.is_settled for watch in self._watches.values())

    def problems(self) -> tuple[str, ...]:
        """Return a text for each part of the cluster that cannot be watched now."""
        return self._outages.problems()

    @property
    def watches(self) -> Sequence[ObjectWatch]:
        """Return the watches, one for each kind and namespace."""
        return [*self._watches.values()]

    def is_synced(self, kind: Kind, namespace: str | None) -> bool:
        """Return whether reads of a kind are answered from memory, up to date with the cluster."""
        watch = self._watch(kind, namespace)
        return watch is not None and watch.synced

    def last(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object as last watched, also while its watch does not work, or None if it is gone."""
        watch = self._watch(kind, namespace)
        store = None if watch is None else watch.store
        return store.get(namespace if kind.namespaced else None, name) if isinstance(store, CachedObjects) else None

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        store = self._store(kind, namespace)
        if isinstance(store, CachedObjects):
            return store.get(namespace if kind.namespaced else None, name)
        return super().get(kind, namespace, name)

    def _read(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        found = self.origin.get(kind, namespace, name)
        return None if found is None else trim(found)

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Manifests:
        store = self._store(kind, namespace, whole=not selector)
        if isinstance(store, CachedObjects):
            return store.list(namespace if kind.namespaced else None, selector)
        watch = self._watch(kind, namespace)
        if selector and watch is not None and watch.selector is None and not self._is_fresh(kind):
            # One list for all apps: for each list an API server searches all objects of the namespace.
            return [one for one in super().list(kind, namespace) if matches(one, selector)]
        return super().list(kind, namespace, selector)

    def _listed(self, kind: Kind, namespace: str | None, selector: Selector | None) -> Manifests:
        # Each object is trimmed as soon as its page is read.
        return self.origin.list_versioned(kind, namespace, selector, keep=trim)[0]

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        watch = self._watch(POD, namespace)
        if watch is None or self._store(POD, namespace) is None:
            return super().list_pods(namespace, selector, whole=whole, phase=phase)
        # Before the list: what is listed is as of this version, or later.
        version = watch.version
        listed = self.list(POD, namespace, selector)
        pods = [pod for pod in listed if phase in (None, text_at(pod, "status", "phase"))]
        if whole is None or (whole and len(pods) <= whole):
            return PodList(pods=pods, version=version)
        rows = []
        for pod in pods:
            key = text_at(pod, "metadata", "uid"), text_at(pod, "metadata", "resourceVersion")
            if len(self._rows) > MOST_ROWS:
                self._rows.clear()
            rows.append(self._rows.get(key) or self._rows.setdefault(key, row_of(pod, text_at(pod, "status", "phase"))))
        return PodList(pods=pods[:whole], rows=rows)

    def events(self, namespace: str, names: Collection[str | None]) -> Sequence[Manifest]:
        store = self._store(EVENT, namespace)
        if not isinstance(store, CachedEvents):
            # One list for all objects of the namespace.
            store = self._kept(EVENT, ("events", namespace), lambda: self._read_events(namespace))
        return store.of(namespace, names)

    def _read_events(self, namespace: str) -> CachedEvents:
        store = CachedEvents()

        def keep(found: Manifest) -> None:
            store.put(trim(found))

        self.origin.list_versioned(EVENT, namespace, keep=keep)
        return store

    def _watch(self, kind: Kind, namespace: str | None) -> ObjectWatch | None:
        """Return the watch of a kind, or None if it is not watched."""
        return self._watches.get((kind, namespace if self._namespaces is not None and kind.namespaced else None))

    def _store(self, kind: Kind, namespace: str | None, *, whole: bool = False) -> CachedObjects | CachedEvents | None:
        """Return the objects of a kind, with `whole` if all are watched, whatever their labels.

        None: they are not watched, or the watch does not work at the moment.
        """
        watch = None if self._is_fresh(kind) else self._watch(kind, namespace)
        is_known = watch is not None and watch.synced and not (whole and watch.selector is not None)
        return watch.store if watch is not None and is_known else None
