"""The attempts of a replica in the cluster and in the archives that may have them, for every reader of logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchx_pulumi.log_archive.archive import Archive
from torchx_pulumi.log_archive.archived_log import ArchivedLog, Attempt
from torchx_pulumi.log_archive.location import open_archive
from torchx_pulumi.log_archive.runs import ArchivedJob, ContainerRunRef, runs_of_pod
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
    _said: set[str] = field(default_factory=set, init=False, compare=False)

    def find(self, attempt: int | None = None) -> ArchivedLog | None:
        """Return the archived log of an attempt (None: of the last one). None: no archive has it."""
        for archive in self.archives:
            try:
                return ArchivedLog(archive, self.job, self.role, self.replica, attempt=attempt)
            except ClusterError as error:
                if error.reason != "NotFound":
                    self.say(str(error))
        return None

    def of_pod(self, pod: str, uid: str | None) -> ArchivedLog | None:
        """Return the archived log of a pod that is gone, if it is that of the last attempt. None: it is not.

        Args:
            pod: Name of the pod.
            uid: Its uid. None: any.
        """
        found = self.find()
        if found is None or found.pod != pod or uid not in (None, found.runs[0].pod_uid):
            return None
        found.on_open = lambda: self._say_once(f"pod {pod} is gone; its log is {found.note}")
        return found

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)

    @property
    def names(self) -> str:
        """Return the names of the archives, for messages."""
        return " and ".join(archive.name for archive in self.archives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Where the log of an attempt is."""

    archived: ArchivedLog | None
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
    known = [] if archived is None else archived.attempts
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
        with archive.readable():
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
        with archive.readable():
            found |= {(run.role, run.replica) for _, run in archive.read(archive.index(job))}
    return sorted(found)
