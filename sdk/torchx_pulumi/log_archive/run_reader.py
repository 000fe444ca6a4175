"""Reads the log of one container run to its end, across interrupted streams, and checks whose log it was."""

from __future__ import annotations

from collections.abc import Callable

from torchx_pulumi.kube import LogLines, PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive.runs import ContainerRunRef, runs_of_pod
from torchx_pulumi.log_archive.spool import LimitedSpool
from torchx_pulumi.logs import LogStop
from torchx_pulumi.logs.resuming import Line, ResumedLog, StreamOptions
from torchx_pulumi.logs.sources import open_stream
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.timestamps import SECOND_NS, to_nanoseconds

TRIES = 4
"""Interrupted streams without new text after which reading fails."""

PAUSE_S = 0.3
"""Seconds before the second stream; before each further one without new text, twice as long."""

LONGEST_PAUSE_S = 5.0

SILENCE_S = 15.0
"""Seconds without text of a followed log after which the pod is read again."""

SETTLE_S = 2.0
"""Seconds after which a pod's status is up to date, where lines look like those of a later run."""

LATE_NS = 2 * SECOND_NS
"""Time after the end of a run, in whole seconds, after which a line looks like one of a later run."""

REPLACED = "Replaced"
"""`reason` of the error about a run whose log cannot be read any more, because a later run has its place."""


class RunReader:
    """Reads one container run into a spool."""

    def __init__(
        self,
        cluster: PodReader,
        ref: ContainerRunRef,
        stop: LogStop,
        make_spool: Callable[[], LimitedSpool],
        opened: Callable[[], None],
        tries: int = TRIES,
    ) -> None:
        self.ref = ref
        """The run as it was observed last."""
        self._cluster = cluster
        self._stop = stop
        self._make_spool = make_spool
        self._opened = opened
        self._tries = tries
        self._first_ns: int | None = None
        """Time of the first line of the current stream. None: it has returned none."""
        self._next_ns: int | None = None
        """Start of the next run, or creation of the next pod. None: there is none, or it is not known."""
        self._begin()
        self._gone = False
        """The pod, or its status of the run, does not exist any more."""
        self._followed = False
        """A followed stream was read to its end."""
        self._settled = False
        """The pod was read once more after its status may have been out of date."""

    def _begin(self) -> None:
        self.spool = self._make_spool()
        """What was read."""
        self._log = ResumedLog(self._open, self._stop, with_rest=True, begins=self._check_first)

    def read(self, *, follow: bool) -> bool:
        """Read the log. Return whether it was read to the end of an ended run.

        Raises:
            ClusterError: It cannot be read, or not to its end.
        """
        failures = 0
        while not self._stop.is_set():
            size, running, resumed = self.spool.size, self.ref.running, self._log.resumes
            try:
                self._read_stream(follow=follow and running)
                if self._stop.is_set():
                    break
                if not self._is_of_run():
                    self._begin_again()
                    continue
                self._followed = self._followed or (follow and running)
                if not running or (self._gone and self._followed):
                    return True
                if not follow or self._gone:
                    return False
                # The container has ended. Its status says so in a moment; then the rest of its log is read.
                failures = 0 if self.spool.size > size else failures + 1
            except ClusterError as error:
                if self._stop.is_set():
                    break
                if self._followed and not error.retryable:
                    return True
                silent = follow and error.reason == "Silent"
                failures = 0 if silent else 1 if self.spool.size > size else failures + 1
                if not error.retryable or failures >= self._tries:
                    raise
                doubtful = self._is_doubtful(follow=follow)
                if doubtful and not resumed and self._first_ns is not None:
                    self._begin_again()
                if self._gone and self._followed:
                    return True
                if self._gone:
                    raise
            self._stop.wait(min(PAUSE_S * 2**failures, LONGEST_PAUSE_S))
        return False

    def _read_stream(self, *, follow: bool) -> None:
        """Read one stream to its end."""
        self._first_ns = None
        silence_s = SILENCE_S if follow else None
        for line in self._log.read(follow=follow, previous=self.ref.previous, silence_s=silence_s):
            if self.spool.in_line and not line.continues:
                # The end of the line before cannot be read any more.
                self.spool.add("\n")
            stamp = f"{line.stamp} " if line.stamp and not line.continues else ""
            self.spool.add(f"{stamp}{line.text}" + ("\n" if line.ended else ""))
        if not self._log.finished and not self._stop.is_set():
            raise ClusterError(f"the log of {self._name} broke off", retryable=True, reason="BrokenStream")

    def _open(self, options: StreamOptions) -> LogLines:
        stream = open_stream(self._cluster, self.ref.namespace, self.ref.pod, self.ref.container, options)
        self._opened()
        return stream

    def _check_first(self, line: Line) -> None:
        """Check the first line of a stream.

        Raises:
            ClusterError: The text is an error of the node, or the log is that of a later run.
        """
        if not line.stamp:
            # The kubelet sends the reason as text where it does not have the log any more.
            text = f"the node does not have the log of {self._name} any more: {line.text.strip()[:200]}"
            raise ClusterError(text, reason="NotFound")
        self._first_ns = line.at_ns
        if self._log.resumes and not self._is_of_run():
            raise ClusterError(f"the log of {self._name} goes on with that of a later run", retryable=True)

    def _is_of_run(self) -> bool:
        """Return whether the current stream is the log of the run, by the pod's status and the times of lines."""
        asked_previous = self.ref.previous
        belongs = self._observe(asked_previous)
        end = self.ref.finished_at
        late = end is not None and not self.ref.previous and self._log.last_ns > to_nanoseconds(end) + LATE_NS
        if belongs and late and not self._settled and not self._gone:
            # The container may have been started again, and the status does not say so yet.
            self._settled = True
            self._stop.wait(SETTLE_S)
            belongs = self._observe(asked_previous)
        return belongs

    def _observe(self, asked_previous: bool) -> bool:
        """Read the pod. Return whether the current stream is the log of the run.

        The stream is that of the run if the pod's status still has it at the place that was read, or if the stream
        begins before the next run does.
        """
        pod = self._cluster.get(POD, self.ref.namespace, self.ref.pod)
        self._gone = pod is None or text_at(pod, "metadata", "uid") != self.ref.pod_uid
        if pod is None:
            return True
        if self._gone:
            starts = [time_at(pod, "metadata", "creationTimestamp")]
            runs = []
        else:
            runs = [run for run in runs_of_pod(pod) if run.container == self.ref.container]
            starts = [run.started_at for run in runs if run.restarts > self.ref.restarts]
        self._next_ns = min((to_nanoseconds(start) for start in starts if start), default=None)
        is_before = self._first_ns is not None and self._next_ns is not None and self._first_ns < self._next_ns
        mine = next((run for run in runs if self._is_same(run)), None)
        if mine is None:
            replaced, self._gone = self._gone, True
            return is_before or (self._next_ns is None and not replaced)
        self.ref = mine
        return is_before or mine.previous == asked_previous

    def _is_same(self, run: ContainerRunRef) -> bool:
        if run.container_id and self.ref.container_id:
            return run.container_id == self.ref.container_id
        return run.restarts == self.ref.restarts

    def _is_doubtful(self, *, follow: bool) -> bool:
        """Read the pod after an interrupted stream. Return whether the stream may have been the log of a later run.

        Raises:
            ClusterError: The pod cannot be read.
        """
        try:
            return not self._observe(self.ref.previous) and self._next_ns is not None
        except ClusterError as error:
            if not error.retryable:
                raise
            # The next stream meets the same error, and counts it. A log that is not followed is soon read again.
            return not follow

    def _begin_again(self) -> None:
        """Drop what was read.

        Raises:
            ClusterError: The run has no log any more.
        """
        self.spool.close()
        self._begin()
        if self._gone:
            text = f"the log of {self._name} cannot be read any more: a later run has its place"
            raise ClusterError(text, reason=REPLACED)

    @property
    def _name(self) -> str:
        run = f" (restart {self.ref.restarts})" if self.ref.restarts else ""
        return f"container {self.ref.container!r} of pod {self.ref.pod!r} in namespace {self.ref.namespace!r}{run}"
