"""The attempts of a replica in the cluster and in the archives that may have them, for every reader of logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.kube import LogLines, PodReader
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.kube.pod_list import PodList
from torchx_pulumi.kube.protocol import Selector
from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.log_archive.location import open_archive
from torchx_pulumi.log_archive.reading import ArchivedCluster, Attempt
from torchx_pulumi.log_archive.runs import ArchivedJob, ContainerRunRef, runs_of_pod
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.text import listed

SHOWN = 5
"""Runs in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedReplica:
    """A replica and the archives that may have its log."""

    archives: Sequence[Archive]
    """In the order in which they are asked. Empty: none is configured."""
    job: ArchivedJob
    role: str
    replica: int
    say: ProgressCallback
    """Takes the line that says what is read, and lines about archives that cannot be read."""

    def find(self, attempt: int | None = None) -> ArchivedCluster | None:
        """Return the archived log of an attempt (None: of the last one). None: no archive has it."""
        for archive in self.archives:
            try:
                return ArchivedCluster(archive, self.job, self.role, self.replica, attempt=attempt)
            except ClusterError as error:
                if error.reason != "NotFound":
                    self.say(str(error))
        return None

    @property
    def names(self) -> str:
        """Return the names of the archives, for messages."""
        return " and ".join(archive.name for archive in self.archives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where the log of an attempt is."""

    archived: ArchivedCluster | None
    """The archive that has it. None: none does."""
    live: bool
    """The cluster has it."""
    previous: bool
    """It is the run before the last restart of the pod in the cluster."""


def choose_attempt(kept: ArchivedReplica, pod: Manifest | None, attempt: int | None) -> Choice:
    """Return where the log of an attempt is, of those that the cluster and the archive have.

    Args:
        kept: The replica.
        pod: Its pod. None: it is gone, or cannot be read.
        attempt: Number of the attempt, from 1. None: the one before the present one.

    Raises:
        ClusterError: There is no such attempt.
    """
    archived = kept.find()
    live = {} if pod is None else {_attempt_of(ref): ref for ref in runs_of_pod(pod) if ref.default}
    known = [] if archived is None else list(archived.order)
    every = sorted({*known, *live})
    present = next((one for one, ref in live.items() if not ref.previous), every[-1] if every else None)
    number = attempt if attempt is not None else 0 if present is None else every.index(present)
    if not 1 <= number <= len(every):
        which = f"attempt {attempt}" if attempt is not None else "attempt before the present one"
        where = f" and archive {kept.names}" if kept.archives else ""
        has = f"have {len(every)}: allowed are 1 to {len(every)}" if every else "have none"
        text = f"there is no {which} of {kept.role}/{kept.replica} of app {kept.job.app_id}: the cluster{where} {has}"
        raise ClusterError(text, reason="NotFound")
    chosen = every[number - 1]
    return Choice(
        archived=kept.find(known.index(chosen) + 1) if chosen in known else None,
        live=chosen in live,
        previous=chosen in live and live[chosen].previous,
    )


def _attempt_of(ref: ContainerRunRef) -> Attempt:
    key = ref.key(ArchivedJob(app_id="", scheduler="", uid=""))
    return (key.created, key.pod_uid, key.restarts)


class ClusterWithArchive:
    """A `PodReader` that reads the log of one pod from an archive from the moment at which the pod is gone."""

    def __init__(self, cluster: PodReader, pod: str, kept: ArchivedReplica) -> None:
        """Read nothing yet.

        Args:
            cluster: The cluster.
            pod: Name of the pod.
            kept: The replica, with its archives.
        """
        self._cluster = cluster
        self._pod = pod
        self._kept = kept
        self._seen_uid: str | None = None
        self._archived: ArchivedCluster | None = None
        self._said = False

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object; a pod that is gone as the archive describes it."""
        found = self._cluster.get(kind, namespace, name)
        if kind != POD or name != self._pod:
            return found
        if found is not None:
            self._seen_uid, self._archived = str(found["metadata"].get("uid")), None
            return found
        archived = self._find()
        return None if archived is None else archived.get(kind, namespace, name)

    def logs(
        self, namespace: str, pod: str, container: str | None = None, *, follow: bool = False, **options: Any
    ) -> LogLines:
        """Return the lines of a container's log."""
        if self._archived is None:
            try:
                return self._cluster.logs(namespace, pod, container, follow=follow, **options)
            except ClusterError as error:
                if error.reason != "NotFound" or pod != self._pod or self._find() is None:
                    raise
        archived = self._archived
        if archived is None:
            raise ClusterError(f"there is no pod {pod!r} in namespace {namespace!r}", reason="NotFound")
        lines = archived.logs(namespace, pod, container, **options)
        if not self._said:
            self._said = True
            self._kept.say(f"pod {pod} is gone; its log is {archived.note}")
        return lines

    def _find(self) -> ArchivedCluster | None:
        """Return the archived log of the pod; of the pod that was seen, if one was."""
        if self._archived is None:
            found = self._kept.find()
            same = found is not None and found.pod == self._pod and self._seen_uid in (None, found.runs[0].pod_uid)
            self._archived = found if same else None
        return self._archived

    def list(self, kind: Kind, namespace: str | None, selector: Selector | None = None) -> list[Manifest]:
        """Return the objects of a kind in the cluster."""
        return self._cluster.list(kind, namespace, selector)

    def list_pods(self, namespace: str, selector: Selector, **options: Any) -> PodList:
        """Return the pods in the cluster that have some labels; options as of `PodReader.list_pods`."""
        return self._cluster.list_pods(namespace, selector, **options)

    def events(self, namespace: str, names: Collection[str | None]) -> Sequence[Manifest]:
        """Return the events of objects in the cluster."""
        return self._cluster.events(namespace, names)

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves a kind."""
        return self._cluster.serves(kind)

    def identify(self) -> ClusterIdentity:
        """Return the identity of the cluster."""
        return self._cluster.identify()


def open_archives(urls: Sequence[str | None]) -> list[Archive]:
    """Return the archives of some URLs, each once.

    Raises:
        InvalidJobError: A URL is not allowed.
    """
    return [open_archive(url) for url in dict.fromkeys(url for url in urls if url)]


def archived_job(archives: Sequence[Archive], scheduler: str, app_id: str, run: str | None) -> ArchivedJob | None:
    """Return the last archived run of an app. None: no archive has one.

    Args:
        archives: The archives.
        scheduler: `volcano` or `mcad`.
        app_id: `namespace:name`.
        run: Beginning of the uid of the job object. None: the last one.

    Raises:
        ClusterError: An archive cannot be read, or has other runs of the app only.
    """
    namespace, _, name = app_id.partition(":")
    for archive in archives:
        with _readable(archive):
            uids = archive.uids(namespace, name)
        matching = [uid for uid in uids if run is None or uid.startswith(run)]
        if matching:
            return ArchivedJob(app_id=app_id, scheduler=scheduler, uid=matching[-1])
        if uids:
            text = f"archive {archive.name} has no run {run!r} of app {app_id}; it has {listed(uids, SHOWN)}"
            raise ClusterError(text, reason="NotFound")
    return None


def archived_replicas(archives: Sequence[Archive], job: ArchivedJob) -> list[tuple[str, int]]:
    """Return role and number of the replicas of a job whose logs are archived.

    Raises:
        ClusterError: An archive cannot be read.
    """
    found: set[tuple[str, int]] = set()
    for archive in archives:
        with _readable(archive):
            found |= {(run.role, run.replica) for _, run in archive.read(archive.index(job))}
    return sorted(found)


@contextmanager
def _readable(archive: Archive) -> Iterator[None]:
    """Raise errors of the storage as errors of the archive."""
    try:
        yield
    except OSError as error:
        retryable = not isinstance(error, PermissionError)
        raise ClusterError(f"the archive {archive.name} cannot be read: {error}", retryable=retryable) from error
