"""Logs of apps: from the pods, else from the archives that may have them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.archives import ArchivedAttempt, LogArchive, open_log_archive
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import Label, read_source
from torchx_pulumi.logs.replica_log import ArchivedReplica, ReplicaLog, archived_replicas, find_archived_run
from torchx_pulumi.logs.sources import ObservedPod, PodSource
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, Problem, invalid_job
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.status import JobStatus, Reason
from torchx_pulumi.planning.names import label_value
from torchx_pulumi.runs.waiting import progress_line
from torchx_pulumi.runs.whereabouts import UNDECIDED_CLUSTER
from torchx_pulumi.torchx_adapter import compat
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.lookup import AppLookup
from torchx_pulumi.torchx_adapter.observe import AppSnapshot, observe_app, read_with_warning
from torchx_pulumi.torchx_adapter.polling import WAITS, SharedObservation, SharedObservations
from torchx_pulumi.torchx_adapter.responses import dns_names

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class AppLogs:
    """Reads the logs of the apps of one scheduler."""

    context: AdapterContext
    scheduler: str
    """`volcano` or `mcad`."""
    lookup: AppLookup
    observations: SharedObservations
    ambient: Callable[[], Mapping[str, Any]]
    """Run options for calls that give none: those of `.torchxconfig`."""

    def read(
        self,
        app_id: str,
        role: str,
        replica: int,
        *,
        options: Mapping[str, Any],
        run: str | None = None,
        attempt: int | None = None,
        follow: bool = False,
        progress: ProgressCallback | None = None,
        **lines: Any,
    ) -> Iterator[str]:
        """Return the lines of a replica's log, each with its end: from its pod, else from an archive.

        Args:
            app_id: `namespace:name`.
            role: Name of the role.
            replica: Replica in the role, from 0.
            options: Options of reading (`log_...`), before those of the file and of the launch; `log_archive` names the
                archive to ask first.
            run: Beginning of the uid of an archived run. None: the present one, or the last one of a deleted app.
            attempt: Number of the attempt, of those whose logs are kept, from 1. None: the present one.
            follow: Go on until the app has ended. An archived log ends by itself.
            progress: Takes lines while a followed log is waited for. None: no lines.
            lines: `regex`, `since`, `until` and `tail_lines` as of `LogQuery`.

        Raises:
            InvalidJobError: The app does not exist, and no archive has it; it lacks the role or replica, or the
                regular expression is not valid.
            ClusterError: The log cannot be read, or the cluster is not the one of the launch.
        """
        ambient = {key: value for key, value in self.ambient().items() if key.startswith("log_")}
        app_id = self.lookup.full_id(app_id)
        entry = self.lookup.find(app_id)
        archives = _archives(entry, ambient, options)
        chosen = {**(entry.log_options if entry is not None else {}), **ambient, **options}
        kept = ArchivedReplica(
            archives=archives,
            app_id=app_id,
            uid=self._uid(app_id, entry, archives, run),
            role=role,
            replica=replica,
            say=progress or logger.warning,
        )
        query = LogQuery(
            namespace=app_id.partition(":")[0],
            pod="",
            containers=_containers(chosen.get("log_containers")),
            previous=bool(chosen.get("log_previous")),
            timestamps=chosen.get("log_timestamps") is not False,
            **lines,
        )
        clock = self.context.clock
        if entry is None or run is not None:
            why = f"app {app_id} is not known any more" if entry is None else f"run {kept.uid}"
            return _ArchivedLog(kept=kept, clock=clock, why=why, entry=entry).read(query, attempt)
        labels = App.of(entry).run.pod_selector
        query = replace(query, pod=_pod_of(entry, role, replica), follow=follow, app_labels=labels)
        log = _AppLog(
            kept=kept,
            clock=clock,
            entry=entry,
            context=self.context,
            observation=self.observations.of(entry),
            progress=progress,
        )
        return log.read(query, attempt)

    def replicas(
        self,
        app_id: str,
        role: str | None = None,
        replica: int | None = None,
        *,
        options: Mapping[str, Any] = MappingProxyType({}),
        run: str | None = None,
    ) -> Sequence[tuple[str, int]]:
        """Return role and number of the selected replicas; without a role, of all roles. Arguments as of `read`.

        Raises:
            InvalidJobError: The app does not exist, and no archive has it.
        """
        app_id = self.lookup.full_id(app_id)
        entry = self.lookup.find(app_id)
        if entry is None or run is not None:
            archives = _archives(entry, self.ambient(), options)
            there = archived_replicas(archives, app_id, self._uid(app_id, entry, archives, run))
        else:
            try:
                if observe_app(self.context, entry).relaunched:
                    entry = self.lookup.reread_or_known(entry) or entry
            except ClusterError as error:
                logger.warning("whether app %s was launched again is unknown: %s", app_id, error)
            there = [(name, index) for name, pods in entry.pods.items() for index in range(len(pods))]
        if role is not None and (replica is not None or role not in {name for name, _ in there}):
            return [(role, replica or 0)]
        return [(name, index) for name, index in there if role in (None, name)]

    def _uid(self, app_id: str, entry: RunEntry | None, archives: Sequence[LogArchive], run: str | None) -> str:
        """Return the uid of the present run of an app, or of an archived one. Empty: not known."""
        if entry is not None and run is None:
            return entry.uid or ""
        uid = find_archived_run(archives, app_id, run)
        if uid is None:
            raise self.lookup.not_found(app_id, archives=[archive.name for archive in archives])
        return uid


def _archives(entry: RunEntry | None, ambient: Mapping[str, Any], options: Mapping[str, Any]) -> list[LogArchive]:
    launched = None if entry is None else entry.log_archive
    urls = (options.get("log_archive"), launched, ambient.get("log_archive"))
    return [open_log_archive(url) for url in dict.fromkeys(urls) if url]


@dataclass(kw_only=True)
class _ArchivedLog(ReplicaLog):
    """The archived log of a replica."""

    entry: RunEntry | None
    """The app. None: it is unknown by now."""

    def label(self, query: LogQuery, found: ArchivedAttempt) -> Label | None:
        if query.containers != "main":
            return None
        if self.entry is not None:
            return _label(self.entry, self.kept.role, self.kept.replica, found.pod)
        own = {run.container for run in found.runs if run.default}
        return lambda name: "" if name in own else compat.container_label(name) or ""


@dataclass(kw_only=True)
class _AppLog(_ArchivedLog):
    """The log of a replica of an app."""

    entry: RunEntry
    context: AdapterContext
    observation: SharedObservation
    progress: ProgressCallback | None

    def lines(self, query: LogQuery) -> Iterator[str]:
        entry, kept = self.entry, self.kept
        query = replace(query, pod=self._pod_name(query))
        label = _label(entry, kept.role, kept.replica, query.pod) if query.containers == "main" else None
        cluster, instead = self.context.cluster_of(entry), partial(kept.of_pod, query.pod)
        if not query.follow or query.previous:
            read_with_warning(entry, cluster)
            source = PodSource(cluster, query, clock=self.clock, instead=instead)
            return read_source(source, query, label=label, clock=self.clock)
        snapshot = self.observation.later(entry, None, threading.Event())
        if snapshot is not None and snapshot.error is not None:
            if snapshot.error.reason != UNDECIDED_CLUSTER:
                raise snapshot.error
            logger.warning("%s", snapshot.error)
        source = _SharedSource(
            cluster,
            query,
            instead=instead,
            observation=self.observation,
            entry=entry,
            replica=(kept.role, kept.replica),
            progress=self.progress,
        )
        return read_source(source, query, label=label, clock=self.clock)

    def _pod_name(self, query: LogQuery) -> str:
        """Return the name of the replica's pod.

        Raises:
            ClusterError: It cannot be read, and is not known without.
        """
        if App.of(self.entry).run.variant.fixed_pod_names:
            return query.pod
        kept = self.kept
        return _observed_pod(self.entry, kept.role, kept.replica, self.observation, self.clock, follow=query.follow)

    def pod(self, query: LogQuery) -> Manifest | None:
        cluster = self.context.cluster_of(self.entry)
        read_with_warning(self.entry, cluster)
        try:
            return cluster.get(POD, self.entry.namespace, self._pod_name(query))
        except ClusterError as error:
            if error.reason != "NotFound":
                raise
            return None


def _containers(option: Any) -> tuple[str, ...] | str | None:
    """Return which containers are read: those of the option, else those that the installed TorchX reads."""
    if option in ("all", ["all"], ("all",)):
        return "all"
    if option:
        return tuple(option)
    return None if compat.container_label("") is None else "main"


def _label(entry: RunEntry, role: str, replica: int, pod: str) -> Label:
    """Return the prefix of a container's lines, which is empty for the replica's own."""
    # The container has the name of its task, or that of its pod. A task has the number of its first replica.
    task = re.compile(rf"{re.escape(dns_names(entry)[role])}-(0|[1-9]\d*)")

    def label(name: str) -> str:
        found = task.fullmatch(name)
        own = name == pod or (found is not None and int(found[1]) <= replica)
        return "" if own else compat.container_label(name) or ""

    return label


def _pod_of(entry: RunEntry, role: str, replica: int) -> str:
    pods = entry.pods.get(role)
    if pods is None:
        there = ", ".join(map(repr, entry.pods))
        raise invalid_job(entry.app_id, [Problem("role", f"{role!r} is not a role of this app; it has {there}")])
    if not 0 <= replica < len(pods):
        text = f"{role}/{replica} is not a replica of this app; role {role!r} has 0 to {len(pods) - 1}"
        raise invalid_job(entry.app_id, [Problem("replica", text)])
    return pods[replica]


def _observed_pod(
    entry: RunEntry, role: str, replica: int, observation: SharedObservation, clock: LogClock, *, follow: bool
) -> str:
    """Return the name of the pod that a replica has now. A followed log waits until the pod is created.

    Raises:
        ClusterError: The pod does not exist, or the cluster does not answer.
    """
    after: float | None = None
    while True:
        snapshot = observation.later(entry, after, threading.Event()) if follow else observation.now(entry)
        if snapshot is None or (snapshot.error is not None and snapshot.error.reason != UNDECIDED_CLUSTER):
            raise (snapshot and snapshot.error) or ClusterError(f"reading the log of {entry.app_id} was stopped")
        pod = _pod_in(snapshot.status, role, replica)
        if pod is not None:
            return pod
        if not follow or not snapshot.present or snapshot.status.state.terminal:
            text = f"replica {role}/{replica} of app {entry.app_id} has no pod: {snapshot.status.message}"
            raise ClusterError(text, reason="NotFound")
        after = clock.monotonic()


def _pod_in(status: JobStatus, role: str, replica: int) -> str | None:
    """Return the name of the pod that a replica has. None: it has none, or it is not known."""
    roles = (role, label_value(role))
    replicas = (item for known in status.roles if known.name in roles for item in known.replicas)
    return next((item.pod for item in replicas if item.id == replica), None)


@dataclass(kw_only=True)
class _SharedSource(PodSource):
    """The pod of a replica whose app is observed once for all readers of its logs.

    A retry may give the replica a pod of another name, which is read from then on.
    """

    observation: SharedObservation
    entry: RunEntry
    replica: tuple[str, int]
    """Name of the role, and id of the replica."""
    progress: ProgressCallback | None
    """Takes lines while the log is waited for. None: no lines."""
    _count: int = 0
    _last_line: str = ""

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod | None:
        snapshot = self.observation.later(self.entry, after, stop)
        if snapshot is None:
            return None
        self._report(snapshot)
        status, error = snapshot.status, snapshot.error
        if error is not None and error.reason != UNDECIDED_CLUSTER:
            line = progress_line(status)
            why = "" if str(error) in line else f"; {error}"
            text = f"app {self.entry.app_id}, last known state: {line}{why}"
            raise ClusterError(text, retryable=error.retryable, reason=error.reason)
        # In a cluster that may not be that of the launch, the app's object is absent.
        over = error is not None or status.state.terminal or status.reason is Reason.NOT_FOUND
        if not App.of(self.entry).run.variant.fixed_pod_names:
            self.query = replace(self.query, pod=_pod_in(status, *self.replica) or self.query.pod)
        pods, rows = snapshot.seen.pods, snapshot.seen.rows or {}
        pod = next((item for item in pods or () if item["metadata"]["name"] == self.query.pod), None)
        listed = pods is not None and snapshot.seen.listed
        containers = None if pod is None else self.seen(pod)
        if pod is None and (over or self.query.pod in rows or (not listed and status.state not in WAITS)):
            # Pods outlive the object of their app for a moment; they may not be listed, or be too many to read each.
            containers = self.containers()
        return ObservedPod(containers=containers, over=over)

    def _report(self, snapshot: AppSnapshot) -> None:
        """Report each change of the status while the log is waited for, from the second observation on."""
        self._count += 1
        waits = snapshot.error is not None or snapshot.status.state in WAITS
        if self.progress is None or self._count == 1 or not waits:
            return
        line = f"waiting for the log of pod {self.query.pod}: {progress_line(snapshot.status)}"
        if line != self._last_line:
            self._last_line = line
            self.progress(line)
