"""Where the log of a pod is read from (`LogSource`, `PodSource`)."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from torchx_pulumi.kube import LogLines, Logs, PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.query import LoggedContainer, LogQuery, containers_of, no_pod
from torchx_pulumi.logs.resuming import StreamOptions
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest

POLL_S = 1.0
"""Shortest time between two observations of a pod."""

FIRST_S = 0.1
"""The same before the first success: a first connection may fail."""


def open_stream(cluster: Logs, namespace: str, pod: str, container: str, options: StreamOptions) -> LogLines:
    """Return the lines of a container's log in a cluster, with times and newlines; errors as of `Logs.logs`."""
    return cluster.logs(namespace, pod, container, timestamps=True, keep_ends=True, **asdict(options))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    """One observation of a pod whose log is read."""

    containers: Sequence[LoggedContainer] | None
    """Its containers, init containers first. None: the pod does not exist."""
    over: bool
    """The app had ended before the pod was read, so its log is complete."""


class LogSource(Protocol):
    """The logs of one pod. For use by several threads."""

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

    def containers(self) -> Sequence[LoggedContainer] | None:
        """Read the pod now, without a wait, and return its containers. None: it does not exist.

        Raises:
            ClusterError: The pod cannot be read.
        """

    def open(self, container: str, options: StreamOptions) -> LogLines:
        """Return the lines of a container's log, with times and newlines; errors as of `Logs.logs`."""

    def absent(self) -> ClusterError:
        """Return the error of a pod that does not exist."""


@dataclass
class PodSource:
    """The logs of a pod in its cluster, or from elsewhere once the pod is gone. Once ended, an app stays ended."""

    cluster: PodReader
    query: LogQuery
    """Names the pod, and the labels of its app for messages."""
    ended: Callable[[], bool] = lambda: True
    """Returns whether the app has ended. Called by one thread at a time."""
    clock: LogClock = field(default_factory=LogClock)
    instead: Callable[[str | None], LogSource | None] = lambda _uid: None
    """Returns where the log is while the pod does not exist, by the uid that the pod had. Uid None: it was not
    observed. Result None: nowhere."""
    _uid: str | None = None
    _elsewhere: LogSource | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _at: float | None = None
    _found: ObservedPod | ClusterError | None = None
    _every_s: float = FIRST_S
    _over: bool = False

    def observe(self, after: float | None, stop: threading.Event) -> ObservedPod | None:
        while not stop.is_set():
            with self._lock:
                now = self.clock.monotonic()
                left_s = 0.0 if self._at is None else self._at + self._every_s - now
                known = self._at is not None and (self._at > after if after is not None else left_s > 0)
                if not known and left_s <= 0:
                    self._at, known = now, True
                    try:
                        self._over = self._over or self.ended()
                        self._found = ObservedPod(containers=self.containers(), over=self._over)
                        self._every_s = POLL_S
                    except ClusterError as error:
                        self._found = error
                if known:
                    if isinstance(self._found, ClusterError):
                        # Raising the same error repeatedly would collect the frames of all callers.
                        raise copy.copy(self._found)
                    return self._found
            self.clock.wait(left_s, stop)
        return None

    def containers(self) -> Sequence[LoggedContainer] | None:
        """Read the pod and return its containers, or those of the log elsewhere. None: neither exists.

        Raises:
            ClusterError: The pod cannot be read.
        """
        pod = self.cluster.get(POD, self.query.namespace, self.query.pod)
        if pod is not None:
            return self.seen(pod)
        elsewhere = self._find()
        found = None if elsewhere is None else elsewhere.observe(None, threading.Event())
        return None if found is None else found.containers

    def seen(self, pod: Manifest) -> Sequence[LoggedContainer]:
        """Return the containers of the pod as it was read."""
        self._uid, self._elsewhere = text_at(pod, "metadata", "uid"), None
        return containers_of(pod)

    def open(self, container: str, options: StreamOptions) -> LogLines:
        elsewhere = self._elsewhere
        if elsewhere is None:
            try:
                return open_stream(self.cluster, self.query.namespace, self.query.pod, container, options)
            except ClusterError as error:
                elsewhere = self._find() if error.reason == "NotFound" else None
                if elsewhere is None:
                    raise
        return elsewhere.open(container, options)

    def _find(self) -> LogSource | None:
        self._elsewhere = self._elsewhere or self.instead(self._uid)
        return self._elsewhere

    def absent(self) -> ClusterError:
        return no_pod(self.cluster, self.query)
