"""Reads the log of one container run to its end, across interrupted streams, and checks whose log it was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torchx_pulumi.kube import Cluster, LogLines
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.log_archive.runs import ContainerRunRef, runs_of_pod
from torchx_pulumi.log_archive.spool import LimitedSpool
from torchx_pulumi.logs.stamps import Delivered, Line, part_of, read_line
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.timestamps import SECOND_NS, to_nanoseconds

TRIES = 4
"""Attempts without a new line after which reading fails."""

PAUSE_S = 0.3
"""Seconds before the second attempt; before each further one, twice as long."""

LONGEST_PAUSE_S = 5.0

SILENCE_S = 15.0
"""Seconds without a line of a followed log after which the pod is read again."""

SETTLE_S = 2.0
"""Seconds after which a pod's status is up to date for certain, where lines look like those of a later run."""

LONGEST_PART = 1 << 20
"""Characters of a line that are joined before they are stored."""

REPLACED = "Replaced"
"""`reason` of the error about a run whose log cannot be read any more, because a later run has its place."""


class Stop(Protocol):
    """Ends the reading; `copying.CopyStop`."""

    def is_set(self) -> bool:
        """Return whether reading has to end."""

    def wait(self, seconds: float) -> bool:
        """Wait, and return whether reading has to end."""

    def closing(self, stream: LogLines) -> AbstractContextManager[None]:
        """Close a stream at the end of the block, or when reading has to end."""


class RunReader:
    """Reads one container run into a spool.

    A followed log that is interrupted is continued. A log that is not followed is then read again from its beginning.
    """

    def __init__(
        self,
        cluster: Cluster,
        ref: ContainerRunRef,
        stop: Stop,
        make_spool: Callable[[], LimitedSpool],
        opened: Callable[[], None],
    ) -> None:
        self.ref = ref
        """The run as it was observed last."""
        self.spool = make_spool()
        """What was read."""
        self._cluster = cluster
        self._stop = stop
        self._make_spool = make_spool
        self._opened = opened
        self._delivered = Delivered()
        self._begun: Line | None = None
        """Line of which the current stream has returned a part."""
        self._open_ns: int | None = None
        """Time of the line whose end the spool does not have yet."""
        self._first_ns: int | None = None
        """Time of the first line of the current stream."""
        self._last_ns = 0
        self._unfinished = ""
        """Last line of a followed stream, without its end."""
        self._gone = False
        """The pod, or its status of the run, does not exist any more."""
        self._followed = False
        """A followed stream was read to its end."""
        self._settled = False

    def read(self, *, follow: bool) -> bool:
        """Read the log. Return whether it was read to the end of an ended run.

        Raises:
            ClusterError: It cannot be read, or not to its end.
        """
        failures = 0
        tracks = follow and self.ref.running
        while not self._stop.is_set():
            size, running = self.spool.size, self.ref.running
            try:
                self._stream(follow=follow and running, tracks=tracks)
                if self._stop.is_set():
                    break
                if not self._is_of_run():
                    self._begin_again()
                    continue
                self._followed = self._followed or (follow and running)
                if not running or (self._gone and follow):
                    self._add_unfinished()
                    return True
                if not follow or self._gone:
                    return False
                # The container ended, and its status says so in a moment; then its log is read once more.
            except ClusterError as error:
                if self._followed and error.reason == "NotFound":
                    self._add_unfinished()
                    return True
                if self.spool.size > size:
                    failures = 0
                if error.reason != "Silent":
                    failures += 1
                if error.reason != "Silent" and (not error.retryable or failures >= TRIES):
                    raise
                if not tracks:
                    self._begin_again()
                if not self._look_again():
                    raise
            self._stop.wait(min(PAUSE_S * 2**failures, LONGEST_PAUSE_S))
        self._add_unfinished()
        return False

    def _stream(self, *, follow: bool, tracks: bool) -> None:
        """Read one stream to its end."""
        resume_at = self._delivered.resume_at if tracks else None
        self._delivered.begin_again()
        self._first_ns, self._unfinished = None, ""
        stream = self._cluster.logs(
            self.ref.namespace,
            self.ref.pod,
            self.ref.container,
            follow=follow,
            previous=self.ref.previous,
            timestamps=True,
            since=resume_at,
            silence_s=SILENCE_S if follow else None,
            keep_ends=True,
        )
        self._opened()
        with self._stop.closing(stream):
            if tracks:
                self._take_tracked(stream, follow=follow, resumed=resume_at is not None)
            else:
                self._take_all(stream)
            if not stream.finished and not self._stop.is_set():
                raise ClusterError(f"the log of {self._name} broke off", retryable=True, reason="BrokenStream")

    def _take_all(self, stream: LogLines) -> None:
        """Add every part of a stream."""
        in_line = False
        for part in stream:
            if not in_line:
                self._note_time(read_line(part[:64], self._last_ns))
            self.spool.add(part)
            in_line = not part.endswith("\n")

    def _take_tracked(self, stream: LogLines, *, follow: bool, resumed: bool) -> None:
        """Add the lines of a stream that are new. Parts of a line are joined, up to a length."""
        held, self._begun = "", None
        for part in stream:
            held += part
            if held.endswith("\n") or len(held) >= LONGEST_PART:
                resumed = self._take(held, resumed=resumed)
                held = ""
        if held and follow:
            self._unfinished = held
        elif held:
            self._take(held, resumed=resumed)

    def _take(self, raw: str, *, resumed: bool) -> bool:
        """Add what is new of a line or of a part of one. Return whether no line of a continued stream has come yet."""
        begun = self._begun
        line = read_line(raw, self._delivered.last_ns) if begun is None else part_of(begun, raw)
        if begun is None and resumed and not line.stamp:
            # The stream begins within a line.
            return resumed
        if begun is None:
            self._note_time(line)
            if resumed and not self._is_of_run():
                raise ClusterError(f"the log of {self._name} is that of a later run", retryable=True)
        new = self._delivered.take(line, from_the_end=False)
        if new is not None:
            self._add(line, new, goes_on=begun is not None)
        self._begun = None if line.ended else line
        return False

    def _add(self, line: Line, new: str, *, goes_on: bool) -> None:
        goes_on = goes_on or (self._open_ns is not None and self._open_ns == line.at_ns)
        start = f"{line.stamp} " if line.stamp else ""
        if not goes_on and self._open_ns is not None:
            # Its newline was all that was left of the line before.
            self.spool.add("\n")
        end = "\n" if line.ended else ""
        self.spool.add(f"{new}{end}" if goes_on else f"{start}{new}{end}")
        self._open_ns = None if line.ended else line.at_ns

    def _note_time(self, line: Line) -> None:
        if not line.stamp and self._first_ns is None:
            # The kubelet sends the reason as text where it has no log file any more.
            text = f"the node has no log of {self._name} any more: {line.text[:200]}"
            raise ClusterError(text, reason="NotFound")
        self._first_ns = line.at_ns if self._first_ns is None else self._first_ns
        self._last_ns = max(self._last_ns, line.at_ns)

    def _add_unfinished(self) -> None:
        """Add the last line of a followed log, which has no end and cannot be read again."""
        if self._unfinished:
            if self._open_ns is not None and self._begun is None:
                self.spool.add("\n")
            self.spool.add(self._unfinished)
        self._unfinished = ""

    def _is_of_run(self) -> bool:
        """Return whether the stream that was read is the log of the run, by the pod's status and the lines' times."""
        asked_previous = self.ref.previous
        belongs = self._observe(asked_previous)
        end = self.ref.finished_at
        late = end is not None and not self.ref.previous and self._last_ns > to_nanoseconds(end) + 2 * SECOND_NS
        if belongs and late and not self._settled and not self._gone:
            # The container may have been started again, and the status does not say so yet.
            self._settled = True
            self._stop.wait(SETTLE_S)
            belongs = self._observe(asked_previous)
        return belongs

    def _observe(self, asked_previous: bool) -> bool:
        """Read the pod, and return whether the stream that was read is the log of the run."""
        pod = self._cluster.get(POD, self.ref.namespace, self.ref.pod)
        if pod is None:
            self._gone = True
            return True
        if text_at(pod, "metadata", "uid") != self.ref.pod_uid:
            self._gone = True
            created = time_at(pod, "metadata", "creationTimestamp")
            return self._first_ns is not None and created is not None and self._first_ns < to_nanoseconds(created)
        runs = [run for run in runs_of_pod(pod) if run.container == self.ref.container]
        mine = next((run for run in runs if self._is_same(run)), None)
        starts = [to_nanoseconds(run.started_at) for run in runs if run.restarts > self.ref.restarts and run.started_at]
        is_before = self._first_ns is not None and bool(starts) and self._first_ns < min(starts)
        if mine is None:
            self._gone = True
            return is_before or not starts
        self.ref = mine
        return is_before or mine.previous == asked_previous

    def _is_same(self, run: ContainerRunRef) -> bool:
        if run.container_id and self.ref.container_id:
            return run.container_id == self.ref.container_id
        return run.restarts == self.ref.restarts

    def _begin_again(self) -> None:
        """Drop what was read.

        Raises:
            ClusterError: The run has no log any more.
        """
        if self._gone:
            text = f"the log of {self._name} cannot be read any more: a later run has its place"
            raise ClusterError(text, reason=REPLACED)
        self.spool.close()
        self.spool = self._make_spool()
        self._delivered = Delivered()
        self._open_ns, self._last_ns, self._unfinished = None, 0, ""

    def _look_again(self) -> bool:
        """Read the pod after an interrupted stream. Return whether the run may still have a log."""
        self._gone = False
        try:
            self._observe(self.ref.previous)
        except ClusterError as error:
            if not error.retryable:
                raise
            # The next attempt reports it.
            return True
        return not self._gone

    @property
    def _name(self) -> str:
        run = "" if not self.ref.restarts else f" (after restart {self.ref.restarts})"
        return f"container {self.ref.container!r} of pod {self.ref.pod!r} in namespace {self.ref.namespace!r}{run}"
