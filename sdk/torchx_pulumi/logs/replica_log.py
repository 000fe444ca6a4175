"""The log of a replica: from its pod, else from the archives that may have it; the same rules for every reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from torchx_pulumi.logs.archives import ArchivedAttempt, LogArchive
from torchx_pulumi.logs.query import LogQuery, PodRun, runs_of_pod
from torchx_pulumi.logs.reading import REFUSED, Label, read_source
from torchx_pulumi.logs.waiting import LogClock, LogStop
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedReplica:
    """A replica and the archives that may have its log."""

    archives: Sequence[LogArchive]
    """In the order in which they are asked. Empty: no archive is configured."""
    app_id: str
    """`namespace:job_name`."""
    uid: str
    """Uid of the job object of the run. Empty: not known."""
    role: str
    replica: int
    say: ProgressCallback
    """Takes the line that says what is read, and lines about archives that cannot be read."""
    unread: set[str] = field(default_factory=set)
    """Names of the archives that could not be read."""

    def find(self, attempt: int | None = None) -> ArchivedAttempt | None:
        """Return the archived log of an attempt (None: of the last one). None: no archive has it."""
        for archive in self.archives:
            try:
                return archive.find(self.app_id, self.uid, self.role, self.replica, attempt)
            except ClusterError as error:
                if error.reason != "NotFound" and archive.name not in self.unread:
                    self.unread.add(archive.name)
                    self.say(str(error))
        return None

    def of_pod(self, pod: str, uid: str | None) -> ArchivedAttempt | None:
        """Return the archived log of a pod that is gone, if it is that of the last attempt. None: it is not.

        Args:
            pod: Name of the pod.
            uid: Its uid. None: any.
        """
        found = self.find()
        if found is None or found.pod != pod or uid not in (None, found.runs[0].pod_uid):
            return None
        found.on_open = lambda: self.say(f"pod {pod} is gone; its log is {found.note}")
        return found

    @property
    def name(self) -> str:
        """Return the name of the replica, for messages."""
        return f"{self.role}/{self.replica}"

    @property
    def archive_names(self) -> str:
        """Return the names of the archives that could be read, for messages. Empty: there are none."""
        return " and ".join(archive.name for archive in self.archives if archive.name not in self.unread)


@dataclass(kw_only=True)
class ReplicaLog:
    """The log of a replica. This class reads archives; subclasses know the replica's pod."""

    kept: ArchivedReplica
    """The replica and the archives that may have its log."""
    clock: LogClock
    stop: LogStop = field(default_factory=LogStop)
    """Ends the reading."""
    why: str = ""
    """Why the cluster is not asked. Empty: the log is read from there first."""

    def lines(self, query: LogQuery) -> Iterator[str]:
        """Return the lines; if the pod goes before their end, the rest comes from an archive.

        Raises:
            ClusterError: The log cannot be read.
        """
        raise NotImplementedError

    def pod(self, query: LogQuery) -> Manifest | None:
        """Return the replica's pod. None: it is gone.

        Raises:
            ClusterError: It cannot be read, or the cluster is not the one of the launch.
        """
        raise NotImplementedError

    def label(self, query: LogQuery, found: ArchivedAttempt) -> Label | None:  # noqa: ARG002 - for subclasses
        """Return the prefix of the lines of an archived pod's containers; None as of `read_source`."""
        return None

    def read(self, query: LogQuery, attempt: int | None) -> Iterator[str]:
        """Return the lines of the log, each with its end: from the pod, else from an archive.

        Args:
            query: The query.
            attempt: Number of the attempt, of those whose logs are kept, from 1. None: the present one, or the one
                before it if the query says `previous`.

        Raises:
            InvalidJobError: The query is not valid.
            ClusterError: The log cannot be read, or the cluster is not the one of the launch.
        """
        kept, why = self.kept, self.why
        if attempt is None and not why and not (query.previous and kept.archives):
            return self._or_archived(query, kept.find)
        if attempt is None and not query.previous:
            archived, live = kept.find(), None
        else:
            pod = None
            try:
                pod = None if why else self.pod(query)
            except ClusterError as error:
                if not kept.archives:
                    raise
                why = str(error)
            archived, live = self._choose(pod, attempt)
        if live is not None:
            query = replace(query, previous=live.previous, follow=query.follow and not live.previous)
            return self._or_archived(query, lambda: archived)
        if archived is None:
            there = ", ".join(
                f"{role}/{number}" for role, number in archived_replicas(kept.archives, kept.app_id, kept.uid)
            )
            text = f"archive {kept.archive_names} has no log of {kept.name} of app {kept.app_id}; it has {there}"
            raise ClusterError(text, reason="NotFound")
        return self._archived_lines(archived, query, why)

    def _choose(self, pod: Manifest | None, attempt: int | None) -> tuple[ArchivedAttempt | None, PodRun | None]:
        """Return whether the log of an attempt is in an archive or in the replica's pod.

        `attempt` is its number from 1, or None for the one before the present one.
        """
        kept = self.kept
        archived = kept.find()
        known = [] if archived is None else archived.attempts
        live = {} if pod is None else {run.attempt: run for run in runs_of_pod(pod) if run.default}
        every = sorted({*known, *live})
        present = next((one for one, run in live.items() if not run.previous), every[-1] if every else None)
        number = attempt if attempt is not None else 0 if present is None else every.index(present)
        if not 1 <= number <= len(every):
            which = f"attempt {attempt}" if attempt is not None else "attempt before the present one"
            where = f"the cluster and archive {kept.archive_names} have" if kept.archive_names else "the cluster has"
            count = f"{len(every)}: allowed are 1 to {len(every)}" if every else "none"
            text = f"there is no {which} of {kept.name} of app {kept.app_id}: {where} {count}"
            raise ClusterError(text, reason="NotFound")
        chosen = every[number - 1]
        return kept.find(known.index(chosen) + 1) if chosen in known else None, live.get(chosen)

    def _archived_lines(self, found: ArchivedAttempt, query: LogQuery, why: str) -> Iterator[str]:
        """Return the lines of an archived log, and say where they are from. `why`, if not empty, is said too."""
        query = replace(query, pod=found.pod, previous=False, follow=False)
        lines = read_source(found, query, label=self.label(query, found), clock=self.clock, stop=self.stop)
        self.kept.say(f"{f'{why}; ' if why else ''}the log of {self.kept.name} is {found.note}")
        return lines

    def _or_archived(self, query: LogQuery, find: Callable[[], ArchivedAttempt | None]) -> Iterator[str]:
        """Return the lines of the pod's log, or those of the archive if the cluster shows none."""

        def instead(error: ClusterError) -> Iterator[str]:
            found = find() if _is_lost(error) else None
            if found is None:
                raise self._explained(error, None) from error
            why = f"pod {query.pod} is gone" if error.reason == "NotFound" else str(error)
            return self._archived_lines(found, query, why)

        try:
            lines = self.lines(query)
        except ClusterError as error:
            return instead(error)

        def read() -> Iterator[str]:
            begun = False
            try:
                with closing(lines):  # type: ignore[type-var]  # they are generators
                    for line in lines:
                        begun = True
                        yield line
                return
            except ClusterError as error:
                if begun:
                    raise self._explained(error, find()) from error
                rest = instead(error)
            yield from rest

        return read()

    def _explained(self, error: ClusterError, found: ArchivedAttempt | None) -> ClusterError:
        """Return an error with what the archives have."""
        text, names = str(error), self.kept.archive_names
        if found is not None:
            text = f"{error}; archive {names} has a copy of the log: read it again"
        elif names and _is_lost(error):
            text = f"{error}. Archive {names} has no copy of it"
        return ClusterError(text, retryable=error.retryable, reason=error.reason)


def _is_lost(error: ClusterError) -> bool:
    """Return whether an error means that the cluster lost a log, not that the log has not begun."""
    if error.retryable:
        return error.reason != "NotStarted"
    return error.reason in ("NotFound", "NoPrevious", DIFFERENT_CLUSTER, *REFUSED)


def find_archived_run(archives: Sequence[LogArchive], app_id: str, run: str | None) -> str | None:
    """Return the uid of the last archived run of an app, from the first archive that has one. None: none has one.

    Args:
        archives: The archives.
        app_id: `namespace:name`.
        run: Beginning of the uid of the job object. None: the last one.

    Raises:
        ClusterError: An archive cannot be read, or has other runs of the app only.
    """
    found = (archive.find_run(app_id, run) for archive in archives)
    return next((uid for uid in found if uid is not None), None)


def archived_replicas(archives: Sequence[LogArchive], app_id: str, uid: str) -> list[tuple[str, int]]:
    """Return role and number of the replicas of a run whose logs are archived.

    Raises:
        ClusterError: An archive cannot be read.
    """
    return sorted({each for archive in archives for each in archive.replicas(app_id, uid)})
