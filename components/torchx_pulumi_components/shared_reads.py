"""Reads of a cluster that the jobs of one program share while they are planned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.options import Manifest


def shared_reads(cluster: PodReader) -> PodReader:
    """Return a cluster of which each answer about the cluster itself is read once, for any number of threads.

    Shared are its identity, the kinds that it serves, and objects without a namespace, for example queues. What does
    not exist is read again by the next job: a program may create it meanwhile. Everything in a namespace, and with it
    all objects of runs, is read whenever it is asked for.
    """
    return cast("PodReader", _SharedReads(cluster))


class _SharedReads:
    def __init__(self, cluster: PodReader) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._found: dict[object, Future[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def identify(self) -> ClusterIdentity:
        found: ClusterIdentity = self._once("identity", self._cluster.identify)
        return found

    def serves(self, kind: Kind) -> bool:
        return bool(self._once(kind, lambda: self._cluster.serves(kind)))

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        if kind.namespaced:
            return self._cluster.get(kind, namespace, name)
        found: Manifest | None = self._once((kind, name), lambda: self._cluster.get(kind, None, name))
        return found

    def _once(self, key: object, read: Callable[[], Any]) -> Any:
        """Return what was read before, or is being read by another thread. Neither errors nor absence are kept."""
        with self._lock:
            known = self._found.get(key)
            reading: Future[Any] = Future() if known is None else known
            self._found[key] = reading
        if known is not None:
            return known.result()
        try:
            reading.set_result(read())
        except BaseException as error:
            reading.set_exception(error)
            raise
        finally:
            if reading.exception() is not None or not reading.result():
                with self._lock:
                    del self._found[key]
        return reading.result()
