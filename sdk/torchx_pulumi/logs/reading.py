"""The lines of a query across interrupted streams, restarts and retries, from one container or merged from several."""

from __future__ import annotations

import heapq
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from torchx_pulumi.logs.query import (
    LoggedContainer,
    LogQuery,
    checked,
    chosen_containers,
    logger,
    no_previous,
    not_started,
)
from torchx_pulumi.logs.resuming import Line, ResumedLog
from torchx_pulumi.logs.sources import POLL_S, LogSource
from torchx_pulumi.logs.waiting import LogClock, LogStop
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.timestamps import to_nanoseconds
from torchx_pulumi.runs.waiting import Patience

SILENCE_S = 20.0
"""Seconds without a line after which the state of the app and the connection are checked."""

SILENCE_OF_SEVERAL_S = 5.0
"""The same for one of several containers: the thread that waits checks whether it may end."""

TRIES = 6
"""Failed attempts in a row after which a read that does not follow the log fails."""

FIRST_TRIES = 4
"""Attempts to reach a cluster that has never answered: it may be the wrong one."""

LAST_S = 60.0
"""Seconds for which the cluster may be unreachable when only the last lines of an ended app are missing."""

REFUSED = ("Unauthorized", "Forbidden")
"""Reasons of a ClusterError for denied access."""

PASSING = ("NotFound", "BadRequest")
"""Temporary reasons: while a pod is replaced or starts, only the pod or only its log may exist."""

AHEAD = 1000
"""Lines that are read ahead of the caller."""

Label = Callable[[str], str]
"""Container -> what its lines begin with."""

Labelled = tuple[str, Line]
"""A container and a line of it."""


def read_source(
    source: LogSource,
    query: LogQuery,
    *,
    label: Label | None = None,
    clock: LogClock | None = None,
    stop: LogStop | None = None,
) -> Iterator[str]:
    r"""Return the lines of a query in a source, each ending in `\n`. Closing the iterator closes the connections.

    Args:
        source: Where the log is.
        query: The query, which is validated at once. Reading begins when the first line is requested.
        label: Returns the prefix of a container's lines. None: `[container] ` for several containers, else none.
        clock: The clock. None: that of the machine.
        stop: Ends the reading from any thread. None: it ends by itself.

    Raises:
        InvalidJobError: The query is not valid.
        ClusterError: No such pod or container, no log yet, no permission, or no answer.
    """
    return _lines(source, checked(query), label, clock or LogClock(), stop or LogStop())


def _lines(source: LogSource, query: LogQuery, label: Label | None, clock: LogClock, outer: LogStop) -> Iterator[str]:
    # The end of the block ends the threads of this read only.
    with outer.closing(LogStop()) as stop:
        found, waited = _containers(source, query, clock, stop)
        if found is None and stop.is_set():
            return
        if found is None:
            raise source.absent()
        chosen = chosen_containers(found, query)
        several = len(chosen) > 1
        silence_s = SILENCE_OF_SEVERAL_S if several else SILENCE_S
        logs = [_ContainerLog(source, query, item, clock, stop, silence_s, waited) for item in chosen]
        if not query.follow:
            merged = _merged_by_time(logs, query)
        elif several:
            merged = _followed(logs, stop)
        else:
            merged = logs[0].follow()
        label = label or (lambda name: f"[{name}] " if several else "")
        pattern = re.compile(query.regex or "")
        since_ns = 0 if query.since is None else to_nanoseconds(query.since)
        until_ns = sys.maxsize if query.until is None else to_nanoseconds(query.until)
        with closing(merged):  # type: ignore[type-var]  # they are generators
            for name, line in merged:
                if line.at_ns > until_ns and not (several and query.follow):
                    return
                if not since_ns <= line.at_ns <= until_ns:
                    continue
                shown = f"{line.stamp} {line.text}" if query.timestamps and line.stamp else line.text
                if pattern.search(line.text) or pattern.search(shown):
                    yield f"{label(name)}{shown}\n"


def _containers(
    source: LogSource, query: LogQuery, clock: LogClock, stop: LogStop
) -> tuple[Sequence[LoggedContainer] | None, bool]:
    """Return the pod's containers, and whether the pod was waited for, as for a log that is followed.

    Containers None: the pod is absent or was not read.
    """
    after: float | None = None
    patience, answered, failures, waited = Patience(), False, 0, False
    while True:
        try:
            observed = source.observe(after, stop)
            if observed is None or observed.containers is not None or observed.over or not query.follow:
                return None if observed is None else observed.containers, waited
            waited = True
            patience.answered()
            answered, failures = True, 0
        except ClusterError as error:
            failures += 1
            # A cluster that never answered may be the wrong one. One that answered before is waited for.
            over = patience.failed(error, clock.monotonic()) or error.reason == DIFFERENT_CLUSTER
            if over if answered else not error.retryable or failures >= FIRST_TRIES:
                raise
            clock.wait(POLL_S if answered else 0.1, stop)
        after = clock.monotonic()


class _LaterRunError(Exception):
    """The stream of a run turned out to be that of a later one."""


@dataclass(slots=True)
class _ContainerLog:
    """Reads one container's log, without lost or repeated lines."""

    source: LogSource
    query: LogQuery
    container: LoggedContainer
    """The container as it was observed first."""
    clock: LogClock
    stop: LogStop
    silence_s: float
    waited: bool
    """The container had not started when its log was first asked for: all of its lines are new."""
    log: ResumedLog = field(init=False)
    failures: int = 0
    """Failures in a row."""
    failing_since: float | None = None
    """Time of the first of them."""
    patience: Patience = field(default_factory=Patience)
    worked: bool = False
    """A line or a state was read."""
    run: str | None = None
    """The run whose log the present stream has to be. None: any."""

    def __post_init__(self) -> None:
        query, name = self.query, self.container.name
        self.log = ResumedLog(
            lambda options: self.stop.closing(self.source.open(name, options)),
            since=query.since,
            tail_lines=None if self.waited else query.tail_lines,
            begins=self._check_first,
        )

    def once(self) -> Iterator[Labelled]:
        """Yield the current lines, or raise an error that says why they are missing."""
        previous = self.query.previous
        while not self.stop.is_set():
            try:
                yield from self._read(follow=False, previous=previous)
                return
            except ClusterError as error:
                if error.reason == "NotFound":
                    raise ClusterError(f"{error}; it was there a moment ago", reason=error.reason) from None
                if previous and "previous terminated container" in str(error):
                    raise no_previous(self.query, self.container) from None
                self._fail(error, last=True)

    def follow(self) -> Iterator[Labelled]:
        """Yield lines until the app has ended and all lines were returned.

        Raises:
            ClusterError: The pod never existed, the container never started, or the cluster remains unreachable.
        """
        # Runs of the container: the one that is read, one that had ended before it was read, and one read to its end.
        attached = ended = exhausted = None
        seen = False
        after: float | None = None
        while not self.stop.is_set():
            done = False
            try:
                observed = self.source.observe(after, self.stop)
                if observed is None:
                    return
                # The end is determined before the last read, so no line is written between the two.
                done = observed.over or (self.query.until is not None and self.clock.now() > self.query.until)
                found = self._find(observed.containers)
                current = None if found is None else found.current
                if ended is not None and ended == current:
                    # Nothing was started in its place while it was read.
                    exhausted = current
                if found is None or current is None or exhausted == current:
                    if done and not seen:
                        raise self.source.absent() if found is None else not_started(self.query, found)
                    if done:
                        yield from self._rest_of_stream()
                        return
                    if not seen:
                        self.waited, self.log.tail_lines = True, None
                    self._works()
                    continue
                seen = True
                if self.waited if attached is None else attached != current:
                    yield from self._rest_of_earlier(found, attached, exhausted)
                attached = current
                checked = current if found.may_restart and not done else None
                yield from self._read(follow=found.running and not done, run=checked)
                if done:
                    return
                ended = None if found.running else current
            except _LaterRunError:
                ended = None
            except ClusterError as error:
                if done and error.reason == "NotFound" and self.log.last_ns:
                    yield from self._rest_of_stream()
                    logger.warning("the end of the log of %s went with its pod: %s", self.query.pod, error)
                    return
                self._fail(error, last=done)
            finally:
                after = self.clock.monotonic()

    def _find(self, containers: Sequence[LoggedContainer] | None) -> LoggedContainer | None:
        """Return the container of those of the pod. None: it is absent."""
        return next((item for item in containers or () if item.name == self.container.name), None)

    def _rest_of_stream(self) -> Iterator[Labelled]:
        """Yield the last line of a run that ended without a newline, if no other stream had it, or can have it."""
        if (line := self.log.take_rest()) is not None:
            yield from self._labelled(line)

    def _rest_of_earlier(
        self, found: LoggedContainer, attached: str | None, exhausted: str | None
    ) -> Iterator[Labelled]:
        """Yield what was not read of the runs before the present one, and warn of what cannot be read any more.

        A node has the last run and, while that goes on, the one before it: the end of the one that was read, or all of
        one that came and went unseen.

        Args:
            found: The container.
            attached: The run that was read. None: the container had not started when its log was first asked for.
            exhausted: The last run that was read to its end. None: no run was.
        """
        has_previous = found.previous not in (None, found.current)
        if attached is None:
            is_missing = found.restarts > has_previous
        else:
            is_missing = attached not in (exhausted, found.previous) and not self.log.finished
        if is_missing:
            logger.warning("lines of an earlier run of %s are missing: a later one has its place", self.query.pod)
        try:
            if has_previous and found.previous != exhausted:
                yield from self._read(follow=False, previous=True)
        except ClusterError as error:
            if error.retryable or error.reason in REFUSED:
                raise
            logger.warning("the end of an earlier run of %s cannot be read any more: %s", self.query.pod, error)
        yield from self._rest_of_stream()

    def _check_first(self, line: Line) -> None:
        """Check the first line of a stream, which has no name of its run: the container may have been restarted.

        Raises:
            _LaterRunError: The run that was to be read is the previous one by now, and is read as such.
        """
        if self.run is None or self.log.is_known(line):
            return
        try:
            found = self._find(self.source.containers())
        except ClusterError as error:
            if error.reason not in REFUSED:
                raise
            # The user may list pods, and not read one: it is not checked.
            return
        # If it is not even the previous one, no other stream can have its lines.
        if found is not None and found.current != self.run == found.previous:
            raise _LaterRunError

    def _read(self, *, follow: bool, previous: bool = False, run: str | None = None) -> Iterator[Labelled]:
        """Yield the new lines of one stream. Further parts of a line are lines of their own.

        Raises:
            ClusterError: The stream cannot be read.
            _LaterRunError: The stream is not that of `run`. None: of any run.
        """
        self.run, silence_s = run, None
        if follow:
            until = self.query.until
            left_s = self.silence_s if until is None else (until - self.clock.now()).total_seconds()
            silence_s = min(self.silence_s, max(left_s, 0.1))
        try:
            for line in self.log.read(follow=follow, previous=previous, silence_s=silence_s):
                self._works()
                yield from self._labelled(line)
        except ClusterError as error:
            # The container wrote nothing for a while.
            if not follow or error.reason != "Silent":
                raise
        # A log without a line by now was empty, and all of its lines are new.
        self.log.tail_lines = self.log.tail_lines if self.log.last_ns else None
        self._works()

    def _labelled(self, line: Line) -> Iterator[Labelled]:
        if not line.continues:
            yield self.container.name, line
        elif line.text:
            yield self.container.name, replace(line, text=line.text.removeprefix("\r"))

    def _works(self) -> None:
        self.failures = 0
        self.failing_since = None
        self.patience.answered()
        self.worked = True

    def _fail(self, error: ClusterError, *, last: bool) -> None:
        """Wait before the next attempt, or raise the error.

        Args:
            error: Error of the attempt.
            last: The app has ended, which limits the time of further attempts.
        """
        if self.stop.is_set():
            return
        self.failures += 1
        now = self.clock.monotonic()
        self.failing_since = now if self.failing_since is None else self.failing_since
        may_pass, over = error.retryable, self.failures >= TRIES
        if self.query.follow:
            # The pod changes, or access worked before. A temporary refusal counts as no answer.
            passing = error.reason in PASSING
            may_pass = may_pass or (not last if passing else self.worked and error.reason != DIFFERENT_CLUSTER)
            over = self.patience.failed(ClusterError(str(error), retryable=error.retryable or passing), now)
            over = now - self.failing_since > LAST_S if last else over
        if over or not may_pass or (last and error.reason == "NotStarted"):
            raise error
        if self.failures == 1 and error.reason not in ("NotStarted", "NotFound"):
            logger.info("the log of %s was interrupted and is read again from there: %s", self.query.pod, error)
        self.clock.wait(min(0.1 * 2**self.failures, 3.0), self.stop)


def _merged_by_time(logs: Sequence[_ContainerLog], query: LogQuery) -> Iterator[Labelled]:
    """Yield the current lines of containers, sorted by time. Containers without such a run are skipped."""
    run = "previous" if query.previous else "current"
    begun = [log for log in logs if getattr(log.container, run) is not None]
    if not begun:
        first = logs[0].container
        raise no_previous(query, first) if query.previous and first.current else not_started(query, first)
    yield from heapq.merge(*(log.once() for log in begun), key=lambda item: item[1].at_ns)


def _followed(logs: Sequence[_ContainerLog], stop: LogStop) -> Iterator[Labelled]:
    """Follow several containers, each in a thread."""
    come: queue.Queue[Labelled | Exception | None] = queue.Queue(AHEAD)

    def read(log: _ContainerLog) -> None:
        try:
            for labelled in log.follow():
                come.put(labelled)
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            come.put(error)
        finally:
            come.put(None)

    threads = [threading.Thread(target=read, args=(log,), daemon=True) for log in logs]
    try:
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            item = come.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        stop.set()
        # Threads that wait for room in the queue. One that waits for a line ends at its next timeout.
        for _ in range(20):
            while not come.empty():
                come.get_nowait()
            for thread in threads:
                thread.join(0.01)
            if not any(thread.is_alive() for thread in threads):
                break
