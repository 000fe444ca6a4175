"""Polling of apps: one observation for all callers that ask at the same time, and an end of polls that learn nothing.

TorchX asks once for each replica whose log it prints, and asks again for as long as a state is not terminal. A caller
never gets an observation that began before its call, unless it follows a log and says so. Events, nodes and queues,
which explain why a job waits, are read again only every `EXPLAIN_EVERY_S` while a process polls a waiting job.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from torchx_pulumi.apps.look import Remembered
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.cached_reader import CachedReader
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.waiting import GONE_S, REFUSED_S, UNREACHABLE_S, Patience, progress_line
from torchx_pulumi.torchx_adapter.context import AdapterContext
from torchx_pulumi.torchx_adapter.observe import AppSnapshot, observe_app

OBSERVE_EVERY_S = 2.0
"""Shortest time between two observations of an app that is polled while it waits, or whose logs are followed."""

EXPLAIN_EVERY_S = 30.0
"""How long the explanation of a wait is kept while the app is polled."""

POLLS = 3
"""An app that waits is polled after so many observations in a row, each within `POLLING_S` of the last."""

POLLING_S = 3.0

MOST_APPS = 16
"""Apps whose last observation is kept."""

logger = logging.getLogger(__name__)

WAITS = (JobState.SUBMITTED, JobState.PENDING)

POLL_ENDS = (
    f"polling ends {GONE_S:g} s after a job's objects were found deleted, after {REFUSED_S:g} s if the access is "
    f"refused, and after {UNREACHABLE_S:g} s without an answer"
)

Reread = Callable[[RunEntry], RunEntry | None]
"""Reads an app again from its stack. None: its stack is gone."""


class SharedObservations:
    """The shared observations of one scheduler, by app."""

    def __init__(self, context: AdapterContext, reread: Reread) -> None:
        self._context = context
        self._reread = reread
        self._observations: OrderedDict[str, SharedObservation] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, entry: RunEntry) -> SharedObservation:
        """Return the observation that all callers for an app share."""
        with self._guard:
            found = self._observations.pop(entry.app_id, None) or SharedObservation(self._context, self._reread)
            self._observations[entry.app_id] = found
            while len(self._observations) > MOST_APPS:
                self._observations.popitem(last=False)
            return found


class SharedObservation:
    """The last observation of one app. For use by several threads."""

    def __init__(self, context: AdapterContext, reread: Reread) -> None:
        self._context = context
        self._reread = reread
        self._clock: LogClock = context.clock
        self._lock = threading.Lock()
        self._reader: CachedReader | None = None
        """Keeps what explains a wait. None: the app is not polled while it waits."""
        self._uid: str | None = None
        self._at: float | None = None
        self._snapshot: AppSnapshot | ClusterError | None = None
        self._remembered: Remembered | None = None
        self._polls = 0

    def now(self, entry: RunEntry) -> AppSnapshot:
        """Observe an app. Callers that come during an observation share the next one.

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
                self._observe(entry)
            return self._result()
        finally:
            self._lock.release()

    def later(self, entry: RunEntry, after: float | None, stop: threading.Event) -> AppSnapshot | None:
        """Return an observation that began after a moment, at most every `OBSERVE_EVERY_S`; see `LogSource`.

        Of an app that was launched again elsewhere, the new run is observed.
        """
        while not stop.is_set():
            with self._lock:
                left_s = self._left_s()
                if left_s <= 0 and not (after is not None and self._is_known(entry, after)):
                    known = self._context.index.get(entry) or entry
                    self._observe(known)
                    found = self._snapshot
                    if isinstance(found, AppSnapshot) and found.relaunched and (now := self._reread(known)) is not None:
                        self._observe(now)
                    self._uid = entry.uid
                    return self._result()
                if self._is_known(entry, after):
                    return self._result()
            self._clock.wait(max(left_s, 0.0), stop)
        return None

    @property
    def _waits(self) -> bool:
        found = self._snapshot
        return isinstance(found, AppSnapshot) and found.present and found.status.state in WAITS

    def _is_known(self, entry: RunEntry, after: float | None) -> bool:
        if self._at is None or self._uid != entry.uid:
            return False
        return after is None or self._at > after

    def _left_s(self) -> float:
        return 0.0 if self._at is None else self._at + OBSERVE_EVERY_S - self._clock.monotonic()

    def _observe(self, entry: RunEntry) -> None:
        now = self._clock.monotonic()
        polled = self._waits and self._at is not None and now - self._at < POLLING_S
        self._polls = self._polls + 1 if polled else 0
        if entry.uid != self._uid:
            self._remembered = None
        self._at, self._uid = now, entry.uid
        if not polled:
            self._reader = None
        try:
            self._snapshot = observe_app(self._context, entry, self._read_through, self._remembered)
            self._remembered = self._snapshot.look.remembered
        except ClusterError as error:
            self._snapshot = error
        if not self._waits:
            self._reader = None

    def _read_through(self, cluster: PodReader, job_object: Kind) -> PodReader:
        """Return a reader that reads the app's object and its pods each time, and the rest only if it is old."""
        if self._reader is None:
            self._reader = CachedReader(cluster, kept_s=EXPLAIN_EVERY_S, monotonic=self._clock.monotonic)
        return self._reader.with_fresh(job_object, POD)

    def _result(self) -> AppSnapshot:
        if isinstance(self._snapshot, ClusterError):
            # An error that is raised again and again keeps the frames of all its callers.
            raise copy.copy(self._snapshot)
        if self._snapshot is None:
            raise AssertionError("a result was asked for before the first observation")
        return self._snapshot


class PollLimits:
    """Counts for how long each app has been polled without learning its state. For use by several threads."""

    def __init__(self, clock: LogClock, words: Sequence[str] | None) -> None:
        """Begin without a call.

        Args:
            clock: Measures how long an app is asked for.
            words: Arguments of the command `torchx` that asks. None: another program asks.
        """
        self._clock = clock
        self._is_command = words is not None
        self._is_log = "log" in (words or ())
        self._waits: dict[str, Patience] = {}
        self._said = ""
        self._absent: tuple[str, float] | None = None
        """App of the last call and time of the first such call, if the app was not found. None: it was found."""
        self._guard = threading.Lock()

    def check_absent(self, app_id: str) -> None:
        """Note that an app was not found: `torchx log` of TorchX 0.7.0 would ask for it for ever.

        Raises:
            ClusterError: The command `torchx` has asked for this app only for `GONE_S`. Other programs get no error.
        """
        with self._guard:
            now_s = self._clock.monotonic()
            if self._absent is None or self._absent[0] != app_id:
                self._absent = app_id, now_s
            since_s = self._absent[1]
        if self._is_command and now_s - since_s >= GONE_S:
            text = f"app {app_id} is not known here; it was deleted, or never launched"
            raise ClusterError(f"{text}; `torchx list` names the apps that are known", reason=Reason.NOT_FOUND.value)

    def check(self, entry: RunEntry, snapshot: AppSnapshot) -> None:
        """Note the result of an observation.

        Raises:
            ClusterError: The state has not been learned for so long that a caller would wait for ever. The message
                has the last known state and the reason.
        """
        status, error = snapshot.status, snapshot.error
        self._report(entry, status)
        gone = error is None and (status.state, status.reason) == (JobState.UNKNOWN, Reason.NOT_FOUND)
        with self._guard:
            self._absent = None
            if status.state.terminal or (error is None and not gone):
                self._waits.pop(entry.app_id, None)
                return
            patience = self._waits.setdefault(entry.app_id, Patience())
            now_s = self._clock.monotonic()
            over = patience.gone(now_s) if error is None else patience.failed(error, now_s)
        if not over:
            return
        if error is None:
            text = f"{status.message}; its end is unknown, and the cluster has no trace of it any more"
            raise ClusterError(f"app {entry.app_id}: {text}; {POLL_ENDS}", reason=Reason.NOT_FOUND.value)
        raise ClusterError(
            f"app {entry.app_id}, last known state: {progress_line(status)}; {POLL_ENDS}",
            retryable=error.retryable,
            reason=error.reason,
        )

    def _report(self, entry: RunEntry, status: JobStatus) -> None:
        """Log what the command `torchx log` waits for, at the start and at each change: it asks without a word."""
        if not self._is_log or status.state not in WAITS:
            return
        line = f"waiting for app {entry.app_id} to start: {progress_line(status)}"
        with self._guard:
            known, self._said = self._said, line
        if line != known:
            logger.info("%s", line)
