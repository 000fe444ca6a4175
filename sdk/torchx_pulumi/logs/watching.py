"""Observations of a pod whose log is followed, shared by all readers and limited in rate; and the clock."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Generic, Protocol, TypeVar

from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest

POLL_S = 1.0
"""Shortest time between two observations of a pod."""

FIRST_S = 0.1
"""The same before the first success: a first connection may fail."""

Found = TypeVar("Found")


class LogClock(Protocol):
    """The clock of log reading."""

    def now(self) -> datetime:
        """Return the current time with its zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        ...

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for some seconds, or until `stop` is set."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for some seconds, or until `stop` is set."""
        stop.wait(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """One observation of a pod whose log is followed."""

    pod: Manifest | None
    """The pod. None: it does not exist."""
    over: bool
    """The app had ended before the pod was read, so its log is complete."""


class Watch(Protocol):
    """Observes a pod and its app."""

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod | None:
        """Return an observation that began after a time. Wait for the rate limit.

        Args:
            after: Time of the reader's monotonic clock. None: an observation within the rate limit is sufficient.
            stop: Ends the wait.

        Returns:
            None: the wait was stopped.

        Raises:
            ClusterError: The observation failed.
        """
        ...


class Paced(Generic[Found]):
    """Calls a function for several threads: one call at a time, and a minimum time between calls."""

    def __init__(self, take: Callable[[], Found], every_s: float, clock: LogClock) -> None:
        self._take = take
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._at: float | None = None
        self._found: Found | ClusterError | None = None
        self._answered = False

    def get(self, after: float | None, stop: threading.Event) -> Found | None:
        """Return the result of a call; arguments and errors as of `Watch.observe`."""
        while not stop.is_set():
            with self._lock:
                now = self._clock.monotonic()
                left_s = 0.0 if self._at is None else self._at + self._pace_s - now
                known = self._at is not None and (self._at > after if after is not None else left_s > 0)
                if not known and left_s <= 0:
                    self._at, self._found, known = now, self._outcome(), True
                if known:
                    if isinstance(self._found, ClusterError):
                        # Raising the same error repeatedly would collect the frames of all callers.
                        raise copy.copy(self._found)
                    return self._found
            self._clock.wait(left_s, stop)
        return None

    @property
    def _pace_s(self) -> float:
        return self._every_s if self._answered else FIRST_S

    def _outcome(self) -> Found | ClusterError:
        try:
            found = self._take()
            self._answered = True
            return found
        except ClusterError as error:
            return error


class PodWatch:
    """Observes one pod, and whether its app has ended. Once ended, an app stays ended."""

    def __init__(
        self, cluster: PodReader, namespace: str, pod: str, ended: Callable[[], bool], clock: LogClock
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = pod
        self._ended = ended
        self._over = False
        self._observations = Paced(self._take, POLL_S, clock)

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod | None:
        """Return an observation; see `Watch.observe`."""
        return self._observations.get(after, stop)

    def _take(self) -> ObservedPod:
        self._over = self._over or self._ended()
        return ObservedPod(pod=self._cluster.get(POD, self._namespace, self._pod), over=self._over)
