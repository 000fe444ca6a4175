"""The log of a replica: from its pod, else from the archives that may have it; the same rules for every reader.

An attempt of a replica is one run of its main container: a pod, or one start of the container in it. Attempts are
numbered from 1 in the order of their pods' creation and of their restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeVar

from torchx_pulumi.log_archive.archive import Archive, ArchivedJob, ArchivedRun, newest_copies, uids_of
from torchx_pulumi.logs import LogClock, LogQuery, LogStop
from torchx_pulumi.logs.query import Attempt, ContainerRun, LoggedContainer, PodRun, runs_of_pod
from torchx_pulumi.logs.reading import REFUSED, Label, read_source
from torchx_pulumi.logs.resuming import StreamOptions
from torchx_pulumi.logs.sources import ObservedPod
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.text import listed
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.planning.names import label_value

SHOWN = 5
"""Runs in a message."""

Run = TypeVar("Run", bound=ContainerRun)


def attempts_of(runs: Iterable[ContainerRun]) -> list[Attempt]:
    """Return the attempts of a replica: runs of the main container, in pods without one those of all containers."""
    runs = [*runs]
    with_main = {run.pod_uid for run in runs if run.default}
    return sorted({run.attempt for run in runs if run.default or run.pod_uid not in with_main})


def runs_of_attempt(runs: Sequence[Run], attempts: Sequence[Attempt], number: int) -> list[Run]:
    """Return the run of each container in an attempt, init containers first.

    A container that is not the main one has its own number of restarts: in the last attempt of a pod its last run
    counts, in an earlier one the last of as many restarts.
    """
    attempt = attempts[number - 1]
    is_last = not any(one[:2] == attempt[:2] and one > attempt for one in attempts)
    there = [run for run in runs if run.attempt[:2] == attempt[:2]]
    chosen: dict[str, Run] = {}
    for run in sorted(there, key=lambda run: (not run.init, run.position, run.restarts)):
        counts = is_last and not run.default
        if run.attempt <= attempt or counts or run.container not in chosen:
            chosen[run.container] = run
    return [*chosen.values()]


class ArchivedLines:
    """`LogLines` of an archived log."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.finished = False
        self._lines = lines
        self._closed = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = None if self._closed else next(self._lines, None)
        if line is None:
            self.finished = not self._closed
            raise StopIteration
        return line

    def close(self) -> None:
        """End the reading. The file is closed with the last reference to it."""
        self._closed = True


class ArchivedLog:
    """The `LogSource` of an archived attempt of a replica. `logs.reading.read_source` reads it."""

    def __init__(
        self, archive: Archive, job: ArchivedJob, role: str, replica: int, *, attempt: int | None = None
    ) -> None:
        """Read the index of a replica.

        Args:
            archive: The archive.
            job: The job.
            role: Name of the role, as the user wrote it.
            replica: Replica in the role, from 0.
            attempt: Number of the attempt, from 1. None: the last one.

        Raises:
            ClusterError: The archive has no log of the replica, or no such attempt (`reason` is `NotFound`), or it
                cannot be read.
        """
        self._archive = archive
        name = f"{role}/{replica} of app {job.app_id}"
        folders = {job.replica_folder(text, replica) for text in (role, label_value(role))}
        with archive.readable():
            runs = archive.read(newest_copies(key for folder in folders for key in archive.index(folder)))
        if not runs:
            raise ClusterError(f"archive {archive.name} has no log of {name}", reason="NotFound")
        self.attempts = attempts_of(runs)
        """The attempts in the archive, the oldest first."""
        count = len(self.attempts)
        self.attempt = count if attempt is None else attempt
        """Number of the attempt."""
        if not 1 <= self.attempt <= count:
            text = f"archive {archive.name} has {count} attempts of {name}, found {self.attempt}"
            raise ClusterError(f"{text}; allowed are 1 to {count}", reason="NotFound")
        self.runs = runs_of_attempt(runs, self.attempts, self.attempt)
        """The runs of the attempt's containers, init containers first."""
        self.pod = self.runs[0].pod
        """Name of the pod of the attempt."""
        self.on_open: Callable[[], None] = lambda: None
        """Called once, when the first log of the attempt is opened."""

    @property
    def note(self) -> str:
        """Return one line about the archive, the attempt, the time of its copy, and what is missing."""
        copied = max(run.copied_at for run in self.runs)
        which = f"attempt {self.attempt} of {len(self.attempts)}, " if len(self.attempts) > 1 else ""
        missing = [
            f"; container {run.container}: {', and '.join(found)}" for run in self.runs if (found := _missing(run))
        ]
        return f"read from the archive {self._archive.name}: {which}copied at {format_time(copied)}{''.join(missing)}"

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod:  # noqa: ARG002 - it never changes
        default = max(self.runs, key=lambda run: (run.default, not run.init))
        containers = [
            LoggedContainer(name=run.container, init=run.init, default=run is default, current=run.identity)
            for run in self.runs
        ]
        return ObservedPod(containers=containers, over=True)

    def absent(self) -> ClusterError:
        """Return an error: the pod of an attempt always exists."""
        return ClusterError(f"archive {self._archive.name} has no pod {self.pod!r}", reason="NotFound")

    def open(self, container: str, options: StreamOptions) -> ArchivedLines:
        """Return the lines of a container's log from its beginning, whatever time is asked for."""
        key = next((run.key for run in self.runs if run.container == container), None)
        if key is None or options.previous:
            # The attempt before is a log of its own.
            raise ClusterError(
                f"archive {self._archive.name} has no such log of container {container!r} of pod {self.pod!r}",
                reason="NoPrevious" if options.previous else "NotFound",
            )
        said, self.on_open = self.on_open, lambda: None
        said()
        first = 0
        if options.tail_lines is not None:
            # The log is read twice, so that no line has to be kept, however long it is.
            last = max((number for number, _ in _numbered(self._archive.lines(key))), default=0)
            first = last + 1 - options.tail_lines
        return ArchivedLines(part for number, part in _numbered(self._archive.lines(key)) if number >= first)


def _missing(run: ArchivedRun) -> list[str]:
    found = []
    if not run.complete:
        found.append("copied before its end, which is missing")
    if run.left_out_bytes:
        found.append(f"{run.left_out_bytes:,} of its {run.bytes:,} bytes were left out, at the line that says so")
    if run.may_lack_beginning and run.started_at is not None and run.first_line_at is not None:
        late_s = (run.first_line_at - run.started_at).total_seconds()
        found.append(
            f"its first line is {late_s:.0f} s younger than the container, whose node may have removed lines before it "
            "(a node gives the last 10 MiB of a log by default)"
        )
    return found


def _numbered(parts: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each part of a log with the number of its line, from 0."""
    number = 0
    for part in parts:
        yield number, part
        number += part.endswith("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedReplica:
    """A replica and the archives that may have its log."""

    archives: Sequence[Archive]
    """In the order in which they are asked. Empty: no archive is configured."""
    job: ArchivedJob
    role: str
    replica: int
    say: ProgressCallback
    """Takes the line that says what is read, and lines about archives that cannot be read."""

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
        found.on_open = lambda: self.say(f"pod {pod} is gone; its log is {found.note}")
        return found

    @property
    def name(self) -> str:
        """Return the name of the replica, for messages."""
        return f"{self.role}/{self.replica}"

    @property
    def archive_names(self) -> str:
        """Return the names of the archives, for messages."""
        return " and ".join(archive.name for archive in self.archives)


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

    def label(self, query: LogQuery, found: ArchivedLog) -> Label | None:  # noqa: ARG002 - for subclasses
        """Return what lines of an archived pod's containers begin with; None as of `read_source`."""
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
            there = ", ".join(f"{role}/{number}" for role, number in archived_replicas(kept.archives, kept.job))
            text = f"archive {kept.archive_names} has no log of {kept.name} of app {kept.job.app_id}; it has {there}"
            raise ClusterError(text, reason="NotFound")
        return self._archived_lines(archived, query, why)

    def _choose(self, pod: Manifest | None, attempt: int | None) -> tuple[ArchivedLog | None, PodRun | None]:
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
            where = f" and archive {kept.archive_names}" if kept.archives else ""
            has = f"have {len(every)}: allowed are 1 to {len(every)}" if every else "have none"
            text = f"there is no {which} of {kept.name} of app {kept.job.app_id}: the cluster{where} {has}"
            raise ClusterError(text, reason="NotFound")
        chosen = every[number - 1]
        return kept.find(known.index(chosen) + 1) if chosen in known else None, live.get(chosen)

    def _archived_lines(self, found: ArchivedLog, query: LogQuery, why: str) -> Iterator[str]:
        """Return the lines of an archived log, and say where they are from. `why`, if not empty, is said too."""
        query = replace(query, pod=found.pod, previous=False, follow=False)
        lines = read_source(found, query, label=self.label(query, found), clock=self.clock, stop=self.stop)
        self.kept.say(f"{f'{why}; ' if why else ''}the log of {self.kept.name} is {found.note}")
        return lines

    def _or_archived(self, query: LogQuery, find: Callable[[], ArchivedLog | None]) -> Iterator[str]:
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

    def _explained(self, error: ClusterError, found: ArchivedLog | None) -> ClusterError:
        """Return an error with what the archives have."""
        text, names = str(error), self.kept.archive_names
        if found is not None:
            text = f"{error}; archive {names} has a copy of the log: read it again"
        elif self.kept.archives and _is_lost(error):
            text = f"{error}. Archive {names} has no copy of it"
        return ClusterError(text, retryable=error.retryable, reason=error.reason)


def _is_lost(error: ClusterError) -> bool:
    """Return whether an error means that the cluster lost a log, not that the log has not begun."""
    if error.retryable:
        return error.reason != "NotStarted"
    return error.reason in ("NotFound", "NoPrevious", DIFFERENT_CLUSTER, *REFUSED)


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
    job = ArchivedJob(app_id=app_id, scheduler=scheduler, uid="")
    for archive in archives:
        with archive.readable():
            uids = uids_of(archive.index(job.app_folder))
        matching = [uid for uid in uids if uid.startswith(run or "")]
        if matching:
            return replace(job, uid=matching[0])
        if uids:
            text = f"archive {archive.name} has no run {run!r} of app {app_id}; it has {listed(uids[::-1], SHOWN)}"
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
            found |= {(run.role, run.replica) for run in archive.read(archive.index(job.folder))}
    return sorted(found)
