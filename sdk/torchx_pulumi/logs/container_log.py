"""The log of one container across interrupted streams, restarts and retries, without lost or repeated lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from torchx_pulumi.kube import LogLines, PodReader
from torchx_pulumi.logs.containers import ContainerRun, no_pod, not_started, run_of
from torchx_pulumi.logs.query import Limits, LogQuery, logger
from torchx_pulumi.logs.stamps import Delivered, Line, part_of, read_line
from torchx_pulumi.logs.watching import LogClock, Watch
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.runs.waiting import Patience

SILENCE_S = 20.0
"""Seconds without a line after which the state of the app and the connection are checked."""

TRIES = 6
"""Failed attempts in a row after which a read that does not follow the log fails."""

LAST_S = 60.0
"""Seconds for which the cluster may be unreachable when only the last lines of an ended app are missing."""

REFUSED = ("Unauthorized", "Forbidden")
"""Reasons of a ClusterError for denied access."""

PASSING = ("NotFound", "BadRequest")
"""Temporary reasons: while a pod is replaced or starts, only the pod or only its log may exist."""


class ContainerLog:
    """Reads one container's log."""

    def __init__(
        self,
        cluster: PodReader,
        query: LogQuery,
        limits: Limits,
        container: str,
        *,
        watch: Watch,
        clock: LogClock,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.container = container
        self._cluster = cluster
        self._query = query
        self._limits = limits
        self._watch = watch
        self._clock = clock
        self._silence_s = silence_s
        self._delivered = Delivered()
        self._stop = threading.Event()
        self._stream: LogLines | None = None
        self._failures = 0
        self._failing_since: float | None = None
        self._patience = Patience()
        self._worked = False

    def stop(self) -> None:
        """End the reading in any thread."""
        self._stop.set()
        if (stream := self._stream) is not None:
            stream.close()

    def once(self) -> Iterator[Line]:
        """Yield the current lines.

        Raises:
            ClusterError: The container has not started, has no previous run, or the cluster cannot be reached.
        """
        while not self._stop.is_set():
            try:
                yield from self._read(follow=False, previous=self._query.previous)
                return
            except ClusterError as error:
                self._fail(error, last=True)

    def follow(self) -> Iterator[Line]:
        """Yield lines until the app has ended and all lines were returned.

        Raises:
            ClusterError: The pod never existed, the container never started, or the cluster remains unreachable.
        """
        attached = exhausted = None
        seen = False
        after: float | None = None
        while not self._stop.is_set():
            done = False
            try:
                observed = self._watch.observe(after, self._stop)
                if observed is None:
                    return
                # The end is determined before the last read, so no line is written between the two.
                done = observed.over or self._is_past_until()
                run = None if observed.pod is None else run_of(observed.pod, self.container)
                if run is None or run.current is None or exhausted == run.current:
                    if done and not seen:
                        raise self._nothing(run)
                    if done:
                        return
                    self._works()
                    after = self._clock.monotonic()
                    continue
                seen = True
                if attached not in (None, run.current) and run.previous == attached != exhausted:
                    yield from self._rest_of_previous()
                attached = run.current
                if run.running and not done:
                    yield from self._read(follow=True)
                else:
                    yield from self._read(follow=False)
                    if done:
                        return
                    exhausted = run.current
            except ClusterError as error:
                if done and error.reason == "NotFound" and self._delivered.last_ns:
                    logger.warning("the end of the log of %s went with its pod: %s", self._query.pod, error)
                    return
                self._fail(error, last=done)
            after = self._clock.monotonic()

    def _nothing(self, run: ContainerRun | None) -> ClusterError:
        return no_pod(self._cluster, self._query) if run is None else not_started(self._query, self.container, run)

    def _is_past_until(self) -> bool:
        until = self._limits.until
        return until is not None and self._clock.now() > until

    def _rest_of_previous(self) -> Iterator[Line]:
        """Yield the lines of the previous run that were written after its stream ended."""
        try:
            yield from self._read(follow=False, previous=True)
        except ClusterError as error:
            if error.retryable or error.reason in REFUSED:
                raise
            logger.warning("the end of an earlier run of %s cannot be read any more: %s", self._query.pod, error)

    def _read(self, *, follow: bool, previous: bool = False) -> Iterator[Line]:
        """Yield the new lines of one stream.

        An unfinished last line of a followed stream is not yielded: it is read again, because it may continue. Parts
        that were received earlier are yielded as lines of their own.
        """
        try:
            yield from self._new_lines(follow=follow, previous=previous)
        except ClusterError as error:
            # The container wrote nothing for a while.
            if not follow or error.reason != "Silent":
                raise
        self._works()

    def _new_lines(self, *, follow: bool, previous: bool) -> Iterator[Line]:
        resume_at = self._delivered.resume_at
        self._delivered.begin_again()
        stream = self._cluster.logs(
            self._query.namespace,
            self._query.pod,
            self.container,
            follow=follow,
            previous=previous,
            timestamps=True,
            tail_lines=self._query.tail_lines if resume_at is None else None,
            since=resume_at or self._limits.since,
            silence_s=self._silence_until() if follow else None,
            keep_ends=True,
        )
        self._stream = stream
        if self._stop.is_set():
            stream.close()
        begun: Line | None = None
        # A node stores a long line in blocks. A stream may begin inside a delivered line.
        may_be_rest = self._delivered.last_ns > 0
        try:
            for raw in stream:
                line = read_line(raw, self._delivered.last_ns) if begun is None else part_of(begun, raw)
                if may_be_rest and not line.stamp:
                    continue
                may_be_rest = False
                if follow and not line.ended and stream.finished:
                    break
                goes_on, begun = begun is not None, None if line.ended else line
                new = self._delivered.take(line, from_the_end=self._query.tail_lines is not None)
                if new is not None:
                    self._works()
                    yield replace(line, text=new.removeprefix("\r") if goes_on else new)
        finally:
            self._stream = None
            stream.close()

    def _silence_until(self) -> float:
        """Return the seconds for which a stream may be silent, at most until following ends."""
        if self._limits.until is None:
            return self._silence_s
        left = (self._limits.until - self._clock.now()).total_seconds()
        return min(self._silence_s, max(left, 0.1))

    def _works(self) -> None:
        self._failures = 0
        self._failing_since = None
        self._patience.answered()
        self._worked = True

    def _fail(self, error: ClusterError, *, last: bool) -> None:
        """Wait before the next attempt, or raise the error.

        Args:
            error: Error of the attempt.
            last: The app has ended, which limits the time of further attempts.
        """
        if self._stop.is_set():
            return
        passing = error.retryable or (self._query.follow and self._passes(error, last=last))
        if error.reason == "NotStarted" and last:
            raise error
        self._failures += 1
        if not passing or self._is_over(error, last=last):
            raise error
        if self._failures == 1 and error.reason not in ("NotStarted", "NotFound"):
            logger.info("the log of %s was interrupted and is read again from there: %s", self._query.pod, error)
        self._pause(min(0.1 * 2**self._failures, 3.0))

    def _passes(self, error: ClusterError, *, last: bool) -> bool:
        """Return whether an error may be temporary: the pod changes, or access worked before."""
        if error.reason in PASSING:
            return not last
        return self._worked and error.reason != DIFFERENT_CLUSTER

    def _is_over(self, error: ClusterError, *, last: bool) -> bool:
        if not self._query.follow:
            return self._failures >= TRIES
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        # A temporary refusal counts as no answer.
        counted = ClusterError(str(error), retryable=error.retryable or error.reason in PASSING)
        over = self._patience.failed(counted, now)
        return now - self._failing_since > LAST_S if last else over

    def _pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)
