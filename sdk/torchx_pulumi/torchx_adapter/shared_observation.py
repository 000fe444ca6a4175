"""One look at an app for all who ask at once: TorchX asks once for every replica whose log it prints.

A caller never gets a look that was begun before the call, unless it follows a log and says so. What explains why a job
waits (events, nodes, queues) is asked again only every `EXPLAIN_EVERY_S` while one process polls a waiting job.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torchx_pulumi.kube import Cluster, LogLines
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.logs import Clock
from torchx_pulumi.logs.watching import PodLook
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.cluster_identity import ClusterIdentity
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.runs.waiting import progress_line
from torchx_pulumi.runs.whereabouts import UNDECIDED_CLUSTER
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.observe import AppSnapshot, observe_app

OBSERVE_EVERY_S = 2.0
"""Shortest time between two looks at an app that is polled while it waits, or whose logs are followed."""

EXPLAIN_EVERY_S = 30.0
"""How long what explains a wait is taken for true while the app is polled."""

POLLS = 3
"""So many looks in a row, each within `POLLING_S` of the last, at an app that waits are a poll."""

POLLING_S = 3.0

MOST_APPS = 16
"""Apps whose last look is kept."""

WAITS = (JobState.SUBMITTED, JobState.PENDING)

Answer = TypeVar("Answer")

Again = Callable[[RunEntry], RunEntry | None]


class SharedObservations:
    """The shared looks of one scheduler, by app."""

    def __init__(self, context: AdapterContext, again: Again) -> None:
        self._context = context
        self._again = again
        self._observations: OrderedDict[str, SharedObservation] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, entry: RunEntry) -> SharedObservation:
        """Return the look that all callers for an app share."""
        with self._guard:
            found = self._observations.pop(entry.app_id, None) or SharedObservation(self._context, self._again)
            self._observations[entry.app_id] = found
            while len(self._observations) > MOST_APPS:
                self._observations.popitem(last=False)
            return found


class SharedObservation:
    """The last look at one app."""

    def __init__(self, context: AdapterContext, again: Again) -> None:
        self._context = context
        self._again = again
        self._clock: Clock = context.clock
        self._lock = threading.Lock()
        self._explained: dict[Any, tuple[float, Any]] = {}
        self._uid: str | None = None
        self._at: float | None = None
        self._snapshot: AppSnapshot | ClusterError | None = None
        self._polls = 0

    def now(self, entry: RunEntry) -> AppSnapshot:
        """Look at an app; who comes while another caller looks shares the next look with all others who do.

        Raises:
            ClusterError: See `observe_app`.
        """
        came = self._clock.monotonic()
        alone = self._lock.acquire(blocking=False)
        if not alone:
            self._lock.acquire()
        try:
            if not self._is_known(entry, came):
                if self._waits and (not alone or self._polls >= POLLS):
                    self._clock.wait(self._left_s(), threading.Event())
                self._take(entry)
            return self._result()
        finally:
            self._lock.release()

    def later(self, entry: RunEntry, after: float | None, stop: threading.Event) -> AppSnapshot | None:
        """Return a look that was begun after a moment, at most every `OBSERVE_EVERY_S`; see `logs.watching.Watch`.

        An app that was launched again elsewhere is looked at as it is now.
        """
        while not stop.is_set():
            with self._lock:
                left_s = self._left_s()
                if left_s <= 0 and not (after is not None and self._is_known(entry, after)):
                    known = self._context.index.get(entry) or entry
                    self._take(known)
                    snapshot = self._snapshot
                    if (
                        isinstance(snapshot, AppSnapshot)
                        and snapshot.relaunched
                        and (now := self._again(known)) is not None
                    ):
                        self._take(now)
                    self._uid = entry.uid
                    return self._result()
                if self._is_known(entry, after):
                    return self._result()
            self._clock.wait(max(left_s, 0.0), stop)
        return None

    @property
    def _waits(self) -> bool:
        return (
            isinstance(self._snapshot, AppSnapshot) and self._snapshot.present and self._snapshot.status.state in WAITS
        )

    def _is_known(self, entry: RunEntry, after: float | None) -> bool:
        if self._at is None or self._uid != entry.uid:
            return False
        return after is None or self._at > after

    def _left_s(self) -> float:
        return 0.0 if self._at is None else self._at + OBSERVE_EVERY_S - self._clock.monotonic()

    def _take(self, entry: RunEntry) -> None:
        now = self._clock.monotonic()
        polled = self._waits and self._at is not None and now - self._at < POLLING_S
        self._polls = self._polls + 1 if polled else 0
        self._at, self._uid = now, entry.uid
        since = now - EXPLAIN_EVERY_S if polled else now
        try:
            self._snapshot = observe_app(
                self._context, entry, lambda cluster, head: _CachingCluster(cluster, head, self._explained, since, now)
            )
        except ClusterError as error:
            self._snapshot = error
        if not self._waits:
            self._explained.clear()

    def _result(self) -> AppSnapshot:
        if isinstance(self._snapshot, ClusterError):
            # An error that is raised again and again keeps the frames of all who got it.
            raise copy.copy(self._snapshot)
        if self._snapshot is None:
            raise AssertionError("a look was returned before it was taken")
        return self._snapshot


class PodOfApp:
    """Tells of one pod by the shared look at its app; a `logs.watching.Watch`."""

    def __init__(
        self,
        look: SharedObservation,
        cluster: Cluster,
        entry: RunEntry,
        pod: str,
        progress: ProgressCallback | None = None,
    ) -> None:
        """Watch one pod.

        Args:
            look: The shared look at its app.
            cluster: Where the pod is.
            entry: The app.
            pod: Name of the pod.
            progress: Takes a line per change of status, from the second observation on. None: no lines.
        """
        self._progress = progress
        self._observations = 0
        self._told = ""
        self._look = look
        self._cluster = cluster
        self._entry = entry
        self._pod = pod

    def look(self, after: float | None, stop: threading.Event) -> PodLook | None:
        """Return a look; see `Watch.look`."""
        snapshot = self._look.later(self._entry, after, stop)
        if snapshot is None:
            return None
        self._report(snapshot)
        if snapshot.error is not None and snapshot.error.reason != UNDECIDED_CLUSTER:
            line = progress_line(snapshot.status)
            why = "" if str(snapshot.error) in line else f"; {snapshot.error}"
            raise ClusterError(
                f"app {self._entry.app_id}, last known state: {line}{why}",
                retryable=snapshot.error.retryable,
                reason=snapshot.error.reason,
            )
        # In a cluster that is not known to be the one of the launch, the app's object is absent.
        over = (
            snapshot.error is not None or snapshot.status.state.terminal or snapshot.status.reason is Reason.NOT_FOUND
        )
        pods = snapshot.seen.pods
        pod = next((item for item in pods or () if item["metadata"]["name"] == self._pod), None)
        listed = pods is not None and snapshot.seen.listed
        if pod is None and (over or (not listed and snapshot.status.state not in WAITS)):
            # Pods outlive the object of their app for a moment; or they may not be listed.
            pod = self._cluster.get(POD, self._entry.namespace, self._pod)
        return PodLook(pod=pod, over=over)

    def _report(self, snapshot: AppSnapshot) -> None:
        self._observations += 1
        if (
            self._progress is None
            or self._observations == 1
            or (snapshot.error is None and snapshot.status.state not in WAITS)
        ):
            return
        line = f"waiting for the log of pod {self._pod}: {progress_line(snapshot.status)}"
        if line != self._told:
            self._told = line
            self._progress(line)


class _CachingCluster:
    """A cluster that is asked for the app's object and its pods, and for all else only when that was long ago."""

    def __init__(
        self, cluster: Cluster, head: Kind, kept: dict[Any, tuple[float, Any]], since: float, now: float
    ) -> None:
        """Put memory in front of a cluster.

        Args:
            cluster: The cluster.
            head: Kind of the app's object.
            kept: Questions to when they were asked, and to the answers; filled here.
            since: What was answered after this moment is not asked again.
            now: The present moment.
        """
        self.origin = self._cluster = cluster
        self._head = head
        self._kept = kept
        self._since = since
        self._now = now

    def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return an object, None if it is absent."""
        if kind in (self._head, POD):
            return self._cluster.get(kind, namespace, name)
        return self._remembered(("get", kind, namespace, name), lambda: self._cluster.get(kind, namespace, name))

    def list(self, kind: Kind, namespace: str | None, selector: Mapping[str, str] | None = None) -> list[Manifest]:
        """Return the objects of a kind, by name."""
        if kind == POD:
            return self._cluster.list(kind, namespace, selector)
        key = ("list", kind, namespace, tuple(sorted((selector or {}).items())))
        return self._remembered(key, lambda: self._cluster.list(kind, namespace, selector))

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster knows the kind."""
        return self._cluster.serves(kind)

    def identify(self) -> ClusterIdentity:
        """Return what tells this cluster from others."""
        return self._cluster.identify()

    def logs(self, namespace: str, pod: str, container: str | None = None, **options: Any) -> LogLines:
        """Return the lines of a container's log."""
        return self._cluster.logs(namespace, pod, container, **options)

    def _remembered(self, key: Any, read: Callable[[], Answer]) -> Answer:
        known = self._kept.get(key)
        if known is None or known[0] <= self._since:
            known = self._kept[key] = (self._now, read())
        answer: Answer = known[1]
        return answer
