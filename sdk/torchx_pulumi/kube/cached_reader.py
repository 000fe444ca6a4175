"""Reads of a cluster whose answers are kept for a while and shared."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from torchx_pulumi.kube.kinds import EVENT, POD, Kind
from torchx_pulumi.kube.pod_list import PodList
from torchx_pulumi.kube.protocol import LogLines, Manifests, PodReader, Selector
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.options import Manifest

MOST_ANSWERS: Final = 64
"""Number of answers from which on those that are too old are dropped."""

T = TypeVar("T")


class _Answer(Future[Any]):
    """The answer to one read, or the place where threads wait for it."""

    until = float("inf")


class CachedReader:
    """A `PodReader` that keeps answers. Threads that ask the same wait for one request. Errors are not kept."""

    def __init__(
        self,
        origin: PodReader,
        *,
        kept_s: float,
        is_fresh: Callable[[Kind | None], bool] = lambda kind: kind is None,
        keeps_whole: bool = False,
        keeps_absence: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Put a cache in front of a cluster.

        Args:
            origin: The cluster.
            kept_s: Seconds for which an answer is kept.
            is_fresh: Returns whether reads of a kind always ask the cluster. None as the kind stands for the cluster as
                a whole: its identity, and the kinds that it serves.
            keeps_whole: Lists of all objects of a kind in the cluster are kept in any case.
            keeps_absence: It is kept as well that something does not exist.
            monotonic: Returns the seconds of a clock that does not jump.
        """
        self.origin = origin
        """The cluster itself."""
        self._kept_s = kept_s
        self._is_fresh = is_fresh
        self._keeps_whole = keeps_whole
        self._keeps_absence = keeps_absence
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._answers: dict[Any, _Answer] = {}

    def with_fresh(self, *kinds: Kind) -> CachedReader:
        """Return a reader with the same answers that always asks the cluster for objects of some kinds."""
        view = copy.copy(self)
        view._is_fresh = lambda kind: kind in kinds or self._is_fresh(kind)
        return view

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        return self._kept(kind, ("get", kind, namespace, name), lambda: self._read(kind, namespace, name))

    def _read(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        return self.origin.get(kind, namespace, name)

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> Manifests:
        key = ("list", kind, namespace, tuple(sorted((selector or {}).items(), key=str)))
        if self._keeps_whole and namespace is None and not selector:
            return self._keep(key, lambda: self._listed(kind, namespace, selector))
        return self._kept(kind, key, lambda: self._listed(kind, namespace, selector))

    def _listed(self, kind: Kind, namespace: str | None, selector: Selector | None) -> Manifests:
        return self.origin.list(kind, namespace, selector)

    def list_pods(
        self, namespace: str, selector: Selector, *, whole: int | None = None, phase: str | None = None
    ) -> PodList:
        key = ("pods", namespace, tuple(sorted(selector.items(), key=str)), whole, phase)
        return self._kept(POD, key, lambda: self.origin.list_pods(namespace, selector, whole=whole, phase=phase))

    def events(self, namespace: str, names: Collection[str | None]) -> Sequence[Manifest]:
        return self._kept(EVENT, ("events", namespace, frozenset(names)), lambda: self.origin.events(namespace, names))

    def serves(self, kind: Kind) -> bool:
        return self._kept(None, ("serves", kind), lambda: self.origin.serves(kind))

    def identify(self) -> ClusterIdentity:
        return self._kept(None, "identity", self.origin.identify)

    def logs(self, namespace: str, pod: str, container: str | None = None, **options: Any) -> LogLines:
        return self.origin.logs(namespace, pod, container, **options)

    def _kept(self, kind: Kind | None, key: Any, read: Callable[[], T]) -> T:
        """Return the kept answer to a read of a kind, or read it."""
        return read() if self._is_fresh(kind) else self._keep(key, read)

    def _keep(self, key: Any, read: Callable[[], T]) -> T:
        """Return the kept answer, or read and keep it."""
        with self._guard:
            now = self._monotonic()
            known: _Answer | None = self._answers.get(key)
            if known is None or known.until <= now:
                known = None
                if len(self._answers) >= MOST_ANSWERS:
                    for old in [each for each, answer in self._answers.items() if answer.until <= now]:
                        del self._answers[old]
                mine = self._answers[key] = _Answer()
        if known is not None:
            shared: T = known.result()
            return shared
        try:
            found = read()
        except BaseException as error:
            mine.until = 0.0
            mine.set_exception(error)
            raise
        is_kept = self._keeps_absence or bool(found)
        mine.until = self._monotonic() + self._kept_s if is_kept else 0.0
        mine.set_result(found)
        return found
