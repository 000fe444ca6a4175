"""Looks at what is followed: taken for all readers at once, and not too often."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.clock import Clock
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest

POLL_S = 1.0
"""Shortest time between two looks at a pod of its own."""

FIRST_S = 0.1
"""The same as long as no look has succeeded: a first connection may break."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLook:
    """What one look told of a pod whose log is followed."""

    pod: Manifest | None
    """None: there is no such pod."""
    over: bool
    """The app had ended before the look at the pod, so that its log is complete."""


class Watch(Protocol):
    """Tells how a pod and its app are."""

    def look(self, after: float | None, stop: threading.Event) -> PodLook | None:
        """Return a look that was begun later than a moment; wait until one may be taken.

        Args:
            after: The moment, by the clock of the reader. None: any look that is not older than two may be apart.
            stop: Ends the waiting.

        Returns:
            None: the waiting was stopped.

        Raises:
            ClusterError: The look failed.
        """
        ...


class Paced(Generic[Found]):
    """Takes looks for several threads: never two at once, and none sooner than a time after the last was begun."""

    def __init__(self, take: Callable[[], Found], every_s: float, clock: Clock) -> None:
        self._take = take
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._at: float | None = None
        self._found: Found | ClusterError | None = None
        self._answered = False

    def get(self, after: float | None, stop: threading.Event) -> Found | None:
        """Return a look; arguments and errors as `Watch.look`."""
        while not stop.is_set():
            with self._lock:
                now = self._clock.monotonic()
                left_s = 0.0 if self._at is None else self._at + self._pace_s - now
                known = self._at is not None and (self._at > after if after is not None else left_s > 0)
                if not known and left_s <= 0:
                    self._at, self._found, known = now, self._outcome(), True
                if known:
                    if isinstance(self._found, ClusterError):
                        # An error that is raised again and again keeps the frames of all who got it.
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
    """Looks at one pod, and asks whether its app has ended; once it has, that is never taken back."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str, ended: Callable[[], bool], clock: Clock) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = pod
        self._ended = ended
        self._over = False
        self._looks = Paced(self._take, POLL_S, clock)

    def look(self, after: float | None, stop: threading.Event) -> PodLook | None:
        """Return a look; see `Watch.look`."""
        return self._looks.get(after, stop)

    def _take(self) -> PodLook:
        self._over = self._over or self._ended()
        return PodLook(pod=self._cluster.get(POD, self._namespace, self._pod), over=self._over)
