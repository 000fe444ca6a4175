"""The log of one container, read over broken streams, restarts and retries: no line lost, none given twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from torchx_pulumi.kube import Cluster, LogLines
from torchx_pulumi.logs.clock import Clock
from torchx_pulumi.logs.containers import Run, no_pod, not_started, run_of
from torchx_pulumi.logs.query import Limits, LogQuery, logger
from torchx_pulumi.logs.stamps import Delivered, Line, part_of, read_line
from torchx_pulumi.logs.watching import Watch
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.runs.waiting import Patience

SILENCE_S = 20.0
"""After so long without a line it is asked whether the app has ended, and whether the connection lives."""

TRIES = 6
"""How often in a row a read may fail that does not follow the log."""

LAST_S = 60.0
"""How long a cluster may be out of reach when the app has ended and its last lines are wanted."""

REFUSED = ("Unauthorized", "Forbidden")
"""Reasons of a ClusterError whose access is refused."""

PASSING = ("NotFound", "BadRequest")
"""Reasons that pass: a pod that is seen and whose log is not, or the other way round, is being replaced or begins."""


class ContainerLog:
    """Reads one container's log."""

    def __init__(
        self,
        cluster: Cluster,
        query: LogQuery,
        limits: Limits,
        container: str,
        *,
        watch: Watch,
        clock: Clock,
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
        """End the reading, in whichever thread it goes on."""
        self._stop.set()
        if (stream := self._stream) is not None:
            stream.close()

    def once(self) -> Iterator[Line]:
        """Return the lines that there are now.

        Raises:
            ClusterError: The container has not started, has no earlier run, or the cluster cannot be reached.
        """
        while not self._stop.is_set():
            try:
                yield from self._read(follow=False, previous=self._query.previous)
                return
            except ClusterError as error:
                self._fail(error, last=True)

    def follow(self) -> Iterator[Line]:
        """Return lines until the app has ended and all of them were given.

        Raises:
            ClusterError: The pod never was there, the container never started, or the cluster stays out of reach.
        """
        attached = exhausted = None
        seen = False
        after: float | None = None
        while not self._stop.is_set():
            done = False
            try:
                look = self._watch.look(after, self._stop)
                if look is None:
                    return
                # The end is asked for before the last read, so that nothing is written between the two.
                done = look.over or self._is_past_until()
                run = None if look.pod is None else run_of(look.pod, self.container)
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

    def _nothing(self, run: Run | None) -> ClusterError:
        return no_pod(self._cluster, self._query) if run is None else not_started(self._query, self.container, run)

    def _is_past_until(self) -> bool:
        until = self._limits.until
        return until is not None and self._clock.now() > until

    def _rest_of_previous(self) -> Iterator[Line]:
        """Return what a run wrote after its stream ended and before the next one began."""
        try:
            yield from self._read(follow=False, previous=True)
        except ClusterError as error:
            if error.retryable or error.reason in REFUSED:
                raise
            logger.warning("the end of an earlier run of %s cannot be read any more: %s", self._query.pod, error)

    def _read(self, *, follow: bool, previous: bool = False) -> Iterator[Line]:
        """Yield the new lines of one stream.

        The last line of a followed stream is left out where it has no end, since more may come of it: it is read again.
        What came of a line before that is yielded as a line, and what follows as another one.
        """
        try:
            yield from self._new_lines(follow=follow, previous=previous)
        except ClusterError as error:
            # Nothing was written for a while, which is no failure.
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
        # Where the node keeps a long line in blocks, a stream may begin with those of a line that was delivered.
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
        """Return how long a stream may be silent: not past the time at which following ends."""
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
        """Wait before the next try, or raise.

        Args:
            error: What went wrong.
            last: Nothing more is written, so that the next tries must succeed soon.
        """
        if self._stop.is_set():
            return
        passing = error.retryable or (self._query.follow and self._passes(error, last=last))
        if error.reason == "NotStarted" and last:
            raise error
        self._failures += 1
        if not passing or self._too_long(error, last=last):
            raise error
        if self._failures == 1 and error.reason not in ("NotStarted", "NotFound"):
            logger.info("the log of %s is read again from where it broke off: %s", self._query.pod, error)
        self._pause(min(0.1 * 2**self._failures, 3.0))

    def _passes(self, error: ClusterError, *, last: bool) -> bool:
        """Return whether what is refused now may be allowed again: access that worked once, or a pod that changes."""
        if error.reason in PASSING:
            return not last
        return self._worked and error.reason != DIFFERENT_CLUSTER

    def _too_long(self, error: ClusterError, *, last: bool) -> bool:
        if not self._query.follow:
            return self._failures >= TRIES
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        # What may pass although it is refused counts as no answer.
        counted = ClusterError(str(error), retryable=error.retryable or error.reason in PASSING)
        over = self._patience.failed(counted, now)
        return now - self._failing_since > LAST_S if last else over

    def _pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)
