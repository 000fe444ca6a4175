"""The log of one container across interrupted streams, restarts and retries, without lost or repeated lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchx_pulumi.logs.clock import LogClock
from torchx_pulumi.logs.containers import not_started
from torchx_pulumi.logs.query import Limits, LogQuery, logger
from torchx_pulumi.logs.resuming import Line, ResumedLog
from torchx_pulumi.logs.sources import LogSource
from torchx_pulumi.logs.stopping import LogStop
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
        source: LogSource,
        query: LogQuery,
        limits: Limits,
        container: str,
        *,
        clock: LogClock,
        stop: LogStop,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.container = container
        self._source = source
        self._query = query
        self._limits = limits
        self._clock = clock
        self._stop = stop
        self._silence_s = silence_s
        self._log = ResumedLog(
            lambda options: source.open(container, options), stop, since=limits.since, tail_lines=query.tail_lines
        )
        self._failures = 0
        self._failing_since: float | None = None
        self._patience = Patience()
        self._worked = False

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
                observed = self._source.observe(after, self._stop)
                if observed is None:
                    return
                # The end is determined before the last read, so no line is written between the two.
                done = observed.over or self._is_past_until()
                found = next((item for item in observed.containers or () if item.name == self.container), None)
                current = None if found is None else found.current
                if found is None or current is None or exhausted == current:
                    if done and not seen:
                        raise self._source.absent() if found is None else not_started(self._query, found)
                    if done:
                        return
                    self._works()
                    after = self._clock.monotonic()
                    continue
                seen = True
                if attached not in (None, current) and found.previous == attached != exhausted:
                    yield from self._rest_of_previous()
                attached = current
                yield from self._read(follow=found.running and not done)
                if done:
                    return
                if not found.running:
                    exhausted = current
            except ClusterError as error:
                if done and error.reason == "NotFound" and self._log.last_ns:
                    logger.warning("the end of the log of %s went with its pod: %s", self._query.pod, error)
                    return
                self._fail(error, last=done)
            after = self._clock.monotonic()

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
        """Yield the new lines of one stream. Further parts of a line are lines of their own."""
        silence_s = None
        if follow:
            until = self._limits.until
            left = self._silence_s if until is None else (until - self._clock.now()).total_seconds()
            silence_s = min(self._silence_s, max(left, 0.1))
        try:
            for line in self._log.read(follow=follow, previous=previous, silence_s=silence_s):
                self._works()
                if not line.continues:
                    yield line
                elif line.text:
                    yield replace(line, text=line.text.removeprefix("\r"))
        except ClusterError as error:
            # The container wrote nothing for a while.
            if not follow or error.reason != "Silent":
                raise
        self._works()

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
        self._clock.wait(min(0.1 * 2**self._failures, 3.0), self._stop)

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
