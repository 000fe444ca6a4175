"""The log of one container, read over broken streams, restarts and retries: no line lost, none given twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torchx_pulumi.cluster import Cluster, LogLines
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kinds import POD
from torchx_pulumi.logs.clock import Clock
from torchx_pulumi.logs.containers import no_pod, not_started, run_of
from torchx_pulumi.logs.query import Limits, LogQuery, logger
from torchx_pulumi.logs.stamps import Delivered, Line, part_of, read_line

POLL_S = 1.0
"""How often a pod is looked at while there is nothing to read."""

SILENCE_S = 20.0
"""After so long without a line it is asked whether the app has ended, and whether the connection lives."""

TRIES = 6
"""How often in a row a read may fail that does not follow the log."""

LAST_S = 60.0
"""How long a cluster may be out of reach when the app has ended and its last lines are wanted."""

GIVE_UP_AFTER_S = 600.0
"""How long a cluster may be out of reach while a log is followed."""


class ContainerLog:
    """Reads one container's log."""

    def __init__(
        self,
        cluster: Cluster,
        query: LogQuery,
        limits: Limits,
        container: str,
        *,
        ended: Callable[[], bool],
        clock: Clock,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.container = container
        self._cluster = cluster
        self._query = query
        self._limits = limits
        self._ended = ended
        self._clock = clock
        self._silence_s = silence_s
        self._delivered = Delivered()
        self._stop = threading.Event()
        self._stream: LogLines | None = None
        self._failures = 0
        self._failing_since: float | None = None

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
        while not self._stop.is_set():
            # Asked before the last read, so that nothing is written between the two.
            done = False
            try:
                done = self._is_over()
                pod = self._cluster.get(POD, self._query.namespace, self._query.pod)
                if pod is None:
                    if done and not seen:
                        raise no_pod(self._cluster, self._query)
                    if done:
                        return
                    self._pause(POLL_S)
                    continue
                run = run_of(pod, self.container)
                if run.current is None:
                    if done and not seen:
                        raise not_started(self._query, self.container, run)
                    if done:
                        return
                    self._pause(POLL_S)
                    continue
                seen = True
                if attached not in (None, run.current) and run.previous == attached != exhausted:
                    yield from self._rest_of_previous()
                attached = run.current
                if exhausted == run.current:
                    if done:
                        return
                    self._pause(POLL_S)
                    continue
                if run.running and not done:
                    if not (yield from self._read(follow=True)):
                        # It has ended, and its pod does not say so yet.
                        self._pause(POLL_S / 4)
                    continue
                yield from self._read(follow=False)
                if done:
                    return
                exhausted = run.current
            except ClusterError as error:
                self._fail(error, last=done)

    def _is_over(self) -> bool:
        until = self._limits.until
        return (until is not None and self._clock.now() > until) or self._ended()

    def _rest_of_previous(self) -> Iterator[Line]:
        """Return what a run wrote after its stream ended and before the next one began."""
        try:
            yield from self._read(follow=False, previous=True)
        except ClusterError as error:
            if error.retryable:
                raise
            logger.warning("the end of an earlier run of %s cannot be read any more: %s", self._query.pod, error)

    def _read(self, *, follow: bool, previous: bool = False) -> Any:
        """Yield the new lines of one stream; return whether there were any.

        The last line of a followed stream is left out where it has no end, since more may come of it: it is read again.
        What came of a line before that is yielded as a line, and what follows as another one.
        """
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
        any_new = False
        begun: Line | None = None
        try:
            for raw in stream:
                line = read_line(raw, self._delivered.last_ns) if begun is None else part_of(begun, raw)
                if follow and not line.ended and stream.finished:
                    break
                goes_on, begun = begun is not None, None if line.ended else line
                new = self._delivered.take(line, from_the_end=self._query.tail_lines is not None)
                if new is not None:
                    any_new = True
                    self._works()
                    yield replace(line, text=new.removeprefix("\r") if goes_on else new)
        finally:
            self._stream = None
            stream.close()
        self._works()
        return any_new

    def _silence_until(self) -> float:
        """Return how long a stream may be silent: not past the time at which following ends."""
        if self._limits.until is None:
            return self._silence_s
        left = (self._limits.until - self._clock.now()).total_seconds()
        return min(self._silence_s, max(left, 0.1))

    def _works(self) -> None:
        self._failures = 0
        self._failing_since = None

    def _fail(self, error: ClusterError, *, last: bool) -> None:
        """Wait before the next try, or raise.

        Args:
            error: What went wrong.
            last: Nothing more is written, so that the next tries must succeed soon.
        """
        if self._stop.is_set() or error.reason == "Silent":
            return
        # A pod that is seen and whose log is not, or the other way round, is being replaced or has just begun.
        passing = error.retryable or (self._query.follow and error.reason in ("NotFound", "BadRequest") and not last)
        if error.reason == "NotStarted" and last:
            raise error
        self._failures += 1
        now = self._clock.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if self._query.follow:
            too_long = now - self._failing_since > (LAST_S if last else GIVE_UP_AFTER_S)
        else:
            too_long = self._failures >= TRIES
        if not passing or too_long:
            raise error
        if self._failures == 1 and error.reason not in ("NotStarted", "NotFound"):
            logger.info("the log of %s is read again from where it broke off: %s", self._query.pod, error)
        self._pause(min(0.1 * 2**self._failures, 3.0))

    def _pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)
