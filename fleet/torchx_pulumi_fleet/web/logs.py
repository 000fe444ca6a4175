"""The log of a replica for the page and the API: from its pod, else from the archives that may have it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from torchx_pulumi.apps.app import App
from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import REFUSED
from torchx_pulumi.logs.replica_log import ArchivedReplica, ReplicaLog, find_archived_run
from torchx_pulumi.logs.sources import POLL_S
from torchx_pulumi.logs.waiting import LogClock, LogStop
from torchx_pulumi.model.errors import ClusterError, Problem, TorchxPulumiError, invalid_job
from torchx_pulumi.planning.names import label_value

from torchx_pulumi_fleet.archive.archived_log import ArchiveSource
from torchx_pulumi_fleet.tracker.live_fleet import LiveApp
from torchx_pulumi_fleet.tracker.observing import ClusterView
from torchx_pulumi_fleet.web.archives import KnownArchives
from torchx_pulumi_fleet.web.pod_log import AppEnd, PodLog

NOTE = "# torchx-pulumi: "
"""Beginning of a line that is not of the log: it says where the log is read from, or why it goes no further."""

LONGEST_PART = 64 << 10
"""Characters of the longest text that is passed on at once. A longer line comes in parts."""

STATUSES = {
    **dict.fromkeys(("NotFound", "NoContainer", "NoPrevious"), 404),
    "NotStarted": 409,
    **dict.fromkeys(REFUSED, 403),
}
"""Reason of a `ClusterError` to the status of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The log to read."""

    role: str
    """Name of the role."""
    replica: int
    """Replica in the role, from 0."""
    attempt: int | None = None
    """Number of the attempt, of those whose logs are kept, from 1. None: the present one."""
    run: str | None = None
    """Uid of the job object, or its beginning. None: the present run."""
    container: str | None = None
    """Name of a container. None: the one that is read by default."""
    tail: int | None = None
    """Lines at the end of the log to begin with. None: all lines."""
    since: datetime | None = None
    """Leave out lines from before this time, aware. None: none. Unless the log is followed, or an attempt is named, the
    end of the attempt before the present one is a part of it."""
    follow: bool = False
    """Go on until the app has ended. An attempt or a run that is over ends by itself."""
    timestamps: bool = True
    """Each line begins with its time, as Kubernetes writes it."""


def status_of(error: TorchxPulumiError) -> int:
    """Return the HTTP status of an error that `LiveLogs.open` raises."""
    if not isinstance(error, ClusterError):
        return 400
    return STATUSES.get(error.reason or "", 503 if error.retryable else 502)


class LiveLogs:
    """Logs of the apps that a controller tracks. For use by several threads."""

    def __init__(
        self,
        view_of: Callable[[App], ClusterView | None],
        find: Callable[[str], LiveApp | None],
        archives: KnownArchives,
        *,
        clock: LogClock | None = None,
    ) -> None:
        """Name the sources; nothing is read.

        Args:
            view_of: Returns the watched cluster of an app. None: it is not watched.
            find: Returns an app by its id as it is now. None: its stack is gone.
            archives: The archives that may have logs, and the rule for pods with Secrets.
            clock: The clock. None: that of the machine.
        """
        self._view_of = view_of
        self._find = find
        self._archives = archives
        self._clock = clock or LogClock()

    def open(self, app: LiveApp, request: LogRequest, stop: LogStop) -> Iterator[str]:
        """Return the text of a log in parts of at most `LONGEST_PART` characters; each line has its end.

        Lines that begin with `NOTE` are not of the log; the first one says where it is read from. An error that occurs
        later is the last of them: reading the parts raises nothing. Nothing is read ahead of the caller but a line.

        Args:
            app: The app.
            request: The log.
            stop: Ends the reading, also where it waits for a line. Has to be set, or the iterator closed, in the end.

        Raises:
            InvalidJobError: There is no such role or replica.
            ClusterError: The log cannot be read.
        """
        tracked, notes = app.app, deque[str]()
        _check_replica(app, request, self._clock.now())
        archives, problems = self._archives.of(tracked)
        notes.extend(problems)
        kept = ArchivedReplica(
            archives=[ArchiveSource(archive) for archive in archives],
            app_id=tracked.app_id,
            uid=tracked.uid or "",
            role=request.role,
            replica=request.replica,
            say=notes.append,
        )
        end = AppEnd(app, self._view_of(tracked), self._find, self._clock.now)
        log = PodLog(kept=kept, end=end, rules=self._archives.rules, clock=self._clock, stop=stop)
        query = LogQuery(
            namespace=tracked.run.namespace,
            pod=f"of {request.role}/{request.replica}",
            containers=None if request.container is None else (request.container,),
            follow=request.follow,
            timestamps=request.timestamps,
            tail_lines=request.tail,
            since=request.since,
            app_labels=tracked.run.pod_selector,
        )
        if request.run is not None and not (tracked.uid or "").startswith(request.run):
            return _begun(_of_earlier_run(log, request, query), notes, stop)
        if not request.follow and request.attempt is None and request.since is not None:
            return _begun(_since_then(log, query, notes), notes, stop)
        if not request.follow:
            return _begun(log.read(query, request.attempt), notes, stop)
        if request.attempt is None and not end.why() and log.pod(query) is None:
            return _shown(_when_there_is_a_pod(log, end, query, notes, stop), notes, stop)
        return _shown(log.read(query, request.attempt), notes, stop, end)


def _check_replica(app: LiveApp, request: LogRequest, now: datetime) -> None:
    """Raise an error if the app is known to have no such replica.

    Raises:
        InvalidJobError: It has not.
    """
    wanted = {role["name"]: int(role["wanted"]) for role in app.row(now).roles}
    wanted = wanted or {role: len(pods) for role, pods in (app.app.run.expected or {}).items()}
    if not wanted or request.run is not None:
        # An earlier run may have had others.
        return
    replicas = wanted.get(request.role, wanted.get(label_value(request.role)))
    if replicas is None:
        text = f"found {request.role!r}, allowed are {', '.join(map(repr, wanted))}"
        raise invalid_job(app.app.app_id, [Problem("role", text)])
    if not 0 <= request.replica < replicas:
        text = f"found {request.replica}, allowed are 0 to {replicas - 1} for role {request.role!r}"
        raise invalid_job(app.app.app_id, [Problem("replica", text)])


def _since_then(log: PodLog, query: LogQuery, notes: deque[str]) -> Iterator[str]:
    """Yield the lines from a time on. Those of the attempt before the present one come first, if that began since.

    Raises:
        ClusterError: The present log cannot be read. What is missing of the one before is a note.
    """
    first, count = "", 0
    if log.began_since(query):
        try:
            for line in log.read(replace(query, previous=True), None):
                first, count = first or line, count + 1
                yield line
        except ClusterError as error:
            # The first attempt follows no other.
            if error.reason != "NotFound":
                notes.append(f"the end of the attempt before is not read: {error}")
    present = log.read(query, None)
    head = next(present, "")
    if query.timestamps and head == first:
        # While a container waits to be started again, a node gives its last run for both.
        yield from islice(present, max(count - 1, 0), None)
    elif head:
        yield head
        yield from present


def _of_earlier_run(log: PodLog, request: LogRequest, query: LogQuery) -> Iterator[str]:
    """Return the lines of a run whose job object is not the present one.

    Raises:
        ClusterError: No archive has the log, or it cannot be read.
    """
    kept = log.kept
    uid = find_archived_run(kept.archives, kept.app_id, request.run)
    if uid is None:
        where = f"archive {kept.archive_names} has" if kept.archives else "there is no archive that could have"
        text = f"{where} no log of app {kept.app_id}; leave `run` out for the present run"
        raise ClusterError(text, reason="NotFound")
    earlier = ReplicaLog(kept=replace(kept, uid=uid), clock=log.clock, stop=log.stop, why=f"run {uid}")
    return earlier.read(query, request.attempt)


def _when_there_is_a_pod(log: PodLog, end: AppEnd, query: LogQuery, notes: deque[str], stop: LogStop) -> Iterator[str]:
    """Yield notes until the replica has a pod or its app has ended, and then the lines."""
    said, what = "", log.kept.name
    while not stop.is_set() and not end.why():
        try:
            if log.pod(query) is not None:
                break
            line = f"waiting for the pod of {what}: app {log.kept.app_id} is {end.state()}"
        except ClusterError as error:
            if not error.retryable:
                raise
            line = f"waiting for the pod of {what}: {error}"
        if line != said:
            said = line
            yield _note(line)
        log.clock.wait(POLL_S, stop)
    if not stop.is_set():
        yield from _shown(log.read(query, None), notes, stop, end)


def _begun(lines: Iterator[str], notes: deque[str], stop: LogStop) -> Iterator[str]:
    """Read the first line, so that an error is raised before anything is passed on.

    Raises:
        ClusterError: The log cannot be read.
    """
    first = next(lines, None)

    def whole() -> Iterator[str]:
        with closing(lines):  # type: ignore[type-var]  # they are generators
            if first is not None:
                yield first
                yield from lines

    return _shown(whole(), notes, stop)


def _shown(lines: Iterator[str], notes: deque[str], stop: LogStop, end: AppEnd | None = None) -> Iterator[str]:
    """Yield notes and lines in parts, and an error as a last note."""
    try:
        with closing(lines):  # type: ignore[type-var]  # they are generators
            # Before the first line is waited for.
            yield from _taken(notes)
            for line in lines:
                yield from _taken(notes)
                for start in range(0, len(line), LONGEST_PART):
                    yield line[start : start + LONGEST_PART]
                if stop.is_set():
                    return
        if end is not None and (why := end.why()):
            notes.append(f"end of the log: {why}")
    except TorchxPulumiError as error:
        notes.append(f"the log goes no further: {error}")
    if not stop.is_set():
        yield from _taken(notes)


def _taken(notes: deque[str]) -> Iterator[str]:
    while notes:
        yield _note(notes.popleft())


def _note(text: str) -> str:
    return f"{NOTE}{' '.join(text.split())}\n"
