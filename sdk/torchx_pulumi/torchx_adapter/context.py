"""The context of the adapter: engine, clusters, index and clock."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx_pulumi.kube import Cluster, KubernetesCluster
from torchx_pulumi.kube.kubeconfig import locations
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.whereabouts import Connect, reachable

if TYPE_CHECKING:
    from torchx_pulumi.runs.driver import Driver
    from torchx_pulumi.runs.recording import RunRecords

MAX_CLUSTERS = 32
"""Clusters that are kept ready."""


@dataclass(slots=True, kw_only=True)
class AdapterContext:
    """Engine, clusters, index and clock of one scheduler. The engine is created by the first launch or deletion."""

    make_driver: Callable[[], Driver]
    connect: Connect = KubernetesCluster.connect
    index: RunIndex = field(default_factory=RunIndex)
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    """Returns the time, with its zone."""
    clock: LogClock = field(default_factory=LogClock)
    """Measures waits and lets time pass in them."""
    client: Any = None
    """The caller's Kubernetes `ApiClient`, used if no kubeconfig is named. None: the kubeconfig is read."""
    options: Callable[[], Mapping[str, Any]] = dict
    """Run options in force; `kubeconfig` and `kube_context` are the access to the apps of colleagues."""
    _clusters: dict[Any, Cluster] = field(default_factory=dict)
    _driver: Driver | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def driver(self) -> Driver:
        """Return the engine; the first call creates it."""
        with self._guard:
            if self._driver is None:
                self._driver = self.make_driver()
            return self._driver

    @property
    def records(self) -> RunRecords:
        """Return the records of how apps stand."""
        from torchx_pulumi.runs.recording import RunRecords

        return RunRecords(index=self.index, driver=self.driver)

    def cluster(self, kubeconfig: str | None = None, context: str | None = None) -> Cluster:
        """Return the cluster that options name.

        Raises:
            ClusterError: The kubeconfig is absent or cannot be read, or does not have the context.
        """
        if self.client is not None and kubeconfig is None and context is None:
            return KubernetesCluster.of_client(self.client)
        # It is kept for as long as its kubeconfig stays as it is: reading that takes longer than most answers.
        found = self._clusters.get(_key(kubeconfig, context))
        if found is None:
            found = self.connect(kubeconfig, context)
            self.keep(found, kubeconfig, context)
        return found

    def keep(self, cluster: Cluster, kubeconfig: str | None, context: str | None) -> None:
        """Keep a cluster ready under the access that a kubeconfig and a context are."""
        if None not in (key := _key(kubeconfig, context))[2:]:
            # A kubeconfig that changes often leaves a cluster for each of its versions.
            kept = self._clusters if len(self._clusters) < MAX_CLUSTERS else {}
            self._clusters = {**kept, key: cluster}

    def chosen_cluster(self, options: Mapping[str, Any] | None = None) -> Cluster:
        """Return the cluster that run options name. None: those in force.

        Raises:
            ClusterError: As `cluster`.
        """
        chosen = self.options() if options is None else options
        return self.cluster(chosen.get("kubeconfig"), chosen.get("kube_context"))

    def cluster_of(self, entry: RunEntry) -> Cluster:
        """Return the cluster that an app was launched in, by kubeconfig; the caller checks its identity.

        Raises:
            ClusterError: Neither the recorded kubeconfig nor one's own can be used.
        """
        if self._by_client(entry):
            return KubernetesCluster.of_client(self.client)
        here = self.reachable(entry)
        return self.cluster(*here.access)

    def reachable(self, entry: RunEntry) -> RunEntry:
        """Return an app with an access that can be used here: the recorded one, else one's own."""
        return entry if self._by_client(entry) else reachable(entry, self.cluster, self.options)

    def _by_client(self, entry: RunEntry) -> bool:
        return self.client is not None and entry.kubeconfig is None and entry.ambient_kubeconfig is None

    def close(self) -> None:
        """Close the engine, if it was created."""
        with self._guard:
            driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def current_user() -> str:
    """Return the name of the user who calls."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a pod's user often has no name
        return "unknown"


def _key(kubeconfig: str | None, context: str | None) -> tuple[Any, ...]:
    return (kubeconfig, context, *(_stamp(path) for path in locations(kubeconfig)))


def _stamp(path: Path) -> tuple[str, int, int] | None:
    """Return the version of a file. None: unknown, so the file is read each time."""
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_mtime_ns, found.st_size
