"""Copy the log of one container run from a cluster into an archive, complete or marked as incomplete."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import BinaryIO, cast

from torchx_pulumi.apps.ownership import Run
from torchx_pulumi.kube import LogLines, PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.query import ContainerRun, PodRun, runs_of_pod
from torchx_pulumi.logs.resuming import Line, ResumedLog, StreamOptions, read_line
from torchx_pulumi.logs.sources import open_stream
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at, time_at
from torchx_pulumi.model.timestamps import SECOND_NS, parse_time, to_nanoseconds

from torchx_pulumi_fleet.archive.archive import Archive, ArchivedRun, job_folder, key_of_run

LIMIT_BYTES = 64 << 20
"""Most bytes of the text of one container run that are kept by default."""

TRIES = 4
"""Interrupted streams without new text after which reading fails."""

PAUSE_S = 0.3
"""Seconds before the second stream; before each further one without new text, twice as long."""

LONGEST_PAUSE_S = 5.0

SILENCE_S = 15.0
"""Seconds without text of a followed log after which the pod is read again."""

SETTLE_S = 2.0
"""Seconds after which a pod's status is up to date if lines look like those of a later run."""

LATE_NS = 2 * SECOND_NS
"""Time after the end of a run, in whole seconds, after which a line looks like one of a later run."""

COMPRESSION = 6
"""Level of gzip."""

BLOCK_BYTES = 1 << 20
"""Bytes that are copied at once."""

LONGEST_STAMP = 64
"""Characters of a line in which its time is looked for."""

WITHIN_CHARACTER = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that begin no character."""


@dataclass(slots=True)
class LogCopy:
    """One copy of the log of a container run.

    Memory is bounded for any length of lines and log. The archive is written only after the log was
    read to its end, or as far as it can be.
    """

    cluster: PodReader
    """Cluster of the pod."""
    archive: Archive
    job: Run
    """Run of the job that the pod is of; its uid is known."""
    run: PodRun
    """The run as it was observed last."""
    stop: LogStop = field(default_factory=LogStop)
    """Ends the copy early."""
    limit_bytes: int = LIMIT_BYTES
    """Most bytes of text to keep: the first half and the last half."""
    advice: str = ""
    """How to change the limit, for the line about what was left out."""
    tries: int = TRIES
    """Interrupted streams without new text after which reading fails."""
    _follows: bool = field(init=False)
    """The container ran at the beginning: its log is read until it ends."""
    _spool: LimitedSpool = field(init=False)
    """What was read."""
    _log: ResumedLog = field(init=False)
    _asked_previous: bool = False
    """The current stream was opened as that of the previous run."""
    _first_ns: int | None = None
    """Time of the first line of the current stream. None: it has returned none."""
    _next_ns: int | None = None
    """Start of the next run, or creation of the next pod. None: absent or unknown."""
    _gone: bool = False
    """The pod, or its status of the run, does not exist any more."""
    _followed: bool = False
    """A followed stream was read to its end."""
    _settled: bool = False
    """The pod was read once more after its status may have been out of date."""

    def __post_init__(self) -> None:
        self._follows = self.run.running

    def make(self) -> ArchivedRun:
        """Copy the log, unless the archive has it as a whole, and return its record.

        What was read by a copy that was stopped or failed is stored as incomplete.

        Raises:
            ClusterError: The log cannot be read. `reason` is `NotFound` or `Replaced` if it is lost.
            OSError: The archive, or the folder for temporary files, cannot be written; errno ENOSPC: it is full.
        """
        known = self.archive.find(key_of_run(job_folder(self.job.app_id, self.job.uid or ""), self.run))
        if known is not None:
            return known
        self._begin()
        try:
            try:
                complete = self._read()
            except ClusterError:
                if not self._spool.size:
                    raise
                complete = False
            spool, log = self._spool, self._spool.finish()
            first_line_at = parse_time(spool.first_line.partition(" ")[0])
            run = ArchivedRun(
                app_id=self.job.app_id,
                scheduler=self.job.variant.scheduler,
                uid=self.job.uid or "",
                **{item.name: getattr(self.run, item.name) for item in fields(ContainerRun)},
                lines=spool.lines,
                bytes=spool.size,
                left_out_bytes=spool.left_out_bytes,
                complete=complete,
                copied_at=datetime.now(timezone.utc).replace(microsecond=0),
                first_line_at=None if first_line_at is None else first_line_at.replace(microsecond=0),
            )
            self.archive.write(run, log)
            return run
        finally:
            self._spool.close()

    def _begin(self) -> None:
        self._spool = LimitedSpool(self.limit_bytes, advice=self.advice)
        self._log = ResumedLog(self._open, with_rest=True, begins=self._check_first)

    def _read(self) -> bool:
        """Read the log. Return whether it was read to the end of an ended run.

        Raises:
            ClusterError: It cannot be read, or not to its end.
        """
        failures = 0
        while not self.stop.is_set():
            size, running, resume_at = self._spool.size, self.run.running, self._log.resume_at
            try:
                self._read_stream(follow=running)
                if self.stop.is_set():
                    break
                if not self._is_of_run():
                    self._begin_again()
                    continue
                self._followed = self._followed or running
                if not running or self._gone:
                    return True
                # The container has ended. Its status says so in a moment; then the rest of its log is read.
                failures = 0 if self._spool.size > size else failures + 1
            except ClusterError as error:
                if self.stop.is_set():
                    break
                if self._followed and not error.retryable:
                    return True
                silent = self._follows and error.reason == "Silent"
                failures = 0 if silent else 1 if self._spool.size > size else failures + 1
                if not error.retryable or failures >= self.tries:
                    raise
                if self._is_doubtful() and resume_at is None and self._first_ns is not None:
                    self._begin_again()
                if self._gone and self._followed:
                    return True
                if self._gone:
                    raise
            self.stop.wait(min(PAUSE_S * 2 ** min(failures, 10), LONGEST_PAUSE_S))
        return False

    def _read_stream(self, *, follow: bool) -> None:
        """Read one stream to its end."""
        self._first_ns, self._asked_previous = None, self.run.previous
        silence_s = SILENCE_S if follow else None
        for line in self._log.read(follow=follow, previous=self.run.previous, silence_s=silence_s):
            if self._spool.in_line and not line.continues:
                # The end of the line before cannot be read any more.
                self._spool.add("\n")
            stamp = f"{line.stamp} " if line.stamp and not line.continues else ""
            self._spool.add(f"{stamp}{line.text}" + ("\n" if line.ended else ""))
        if not self._log.finished and not self.stop.is_set():
            raise ClusterError(f"the log of {self._name} broke off", retryable=True, reason="BrokenStream")

    def _open(self, options: StreamOptions) -> AbstractContextManager[LogLines]:
        stream = open_stream(self.cluster, self.job.namespace, self.run.pod, self.run.container, options)
        return self.stop.closing(stream)

    def _check_first(self, line: Line) -> None:
        """Check the first line of a stream.

        Raises:
            ClusterError: The text is an error of the node, or the log is that of a later run.
        """
        if not line.stamp:
            # The kubelet sends the reason as text if it has lost the log.
            text = f"the node does not have the log of {self._name} any more: {line.text.strip()[:200]}"
            raise ClusterError(text, reason="NotFound")
        self._first_ns = line.at_ns
        if self._log.resume_at is not None and not self._is_of_run():
            raise ClusterError(f"the log of {self._name} goes on with that of a later run", retryable=True)

    def _is_of_run(self) -> bool:
        """Return whether the current stream is the log of the run, by the pod's status and the times of lines."""
        belongs = self._observe()
        end = self.run.finished_at
        late = end is not None and not self.run.previous and self._log.last_ns > to_nanoseconds(end) + LATE_NS
        if belongs and late and not self._settled and not self._gone:
            # The container may have been started again, and the status does not say so yet.
            self._settled = True
            self.stop.wait(SETTLE_S)
            belongs = self._observe()
        return belongs

    def _observe(self) -> bool:
        """Read the pod. Return whether the current stream is the log of the run.

        The stream is that of the run if the pod's status still has it at the place that was read, or if the stream
        begins before the next run does.
        """
        pod = self.cluster.get(POD, self.job.namespace, self.run.pod)
        replaced = pod is not None and text_at(pod, "metadata", "uid") != self.run.pod_uid
        self._gone = pod is None or replaced
        if pod is None:
            return True
        runs = [] if replaced else [run for run in runs_of_pod(pod) if run.container == self.run.container]
        starts = [run.started_at for run in runs if run.restarts > self.run.restarts]
        if replaced:
            starts = [time_at(pod, "metadata", "creationTimestamp")]
        self._next_ns = min((to_nanoseconds(start) for start in starts if start), default=None)
        is_before = self._first_ns is not None and self._next_ns is not None and self._first_ns < self._next_ns
        mine = next((run for run in runs if self._is_same(run)), None)
        if mine is None:
            self._gone = True
            return is_before or (self._next_ns is None and not replaced)
        self.run = mine
        return is_before or mine.previous == self._asked_previous

    def _is_same(self, run: PodRun) -> bool:
        if run.container_id and self.run.container_id:
            return run.container_id == self.run.container_id
        return run.restarts == self.run.restarts

    def _is_doubtful(self) -> bool:
        """Read the pod after an interrupted stream. Return whether the stream may have been the log of a later run."""
        try:
            return not self._observe() and self._next_ns is not None
        except ClusterError as error:
            if not error.retryable:
                raise
            # The next stream meets the same error, and counts it. A log that is not followed is soon read again.
            return not self._follows

    def _begin_again(self) -> None:
        """Drop what was read, or raise an error if the run has no log any more."""
        self._spool.close()
        self._begin()
        if self._gone:
            text = f"the log of {self._name} cannot be read any more: a later run has its place"
            raise ClusterError(text, reason="Replaced")

    @property
    def _name(self) -> str:
        run = f" (restart {self.run.restarts})" if self.run.restarts else ""
        return f"container {self.run.container!r} of pod {self.run.pod!r} in namespace {self.job.namespace!r}{run}"


class LimitedSpool:
    """Keeps the first half and the last half of a limit of a log; what is between them is left out and counted.

    Memory is bounded by the longest part that `add` gets. Temporary files have no name: they are gone with the process.
    """

    def __init__(self, limit_bytes: int, *, advice: str = "") -> None:
        """Begin an empty log.

        Args:
            limit_bytes: Most bytes of text to keep.
            advice: How to change the limit, for the line about what was left out.
        """
        self._limit = limit_bytes
        self._advice = advice
        self._file = _temporary_file()
        self._zipped = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=COMPRESSION, mtime=0)
        self._half = limit_bytes // 2
        self._head_room = limit_bytes - self._half
        self._tail: BinaryIO | None = None
        """The end of what follows the first half. None: the first half has room."""
        self._tail_bytes = 0
        self.in_line = False
        """The last line has no end yet."""
        self._cut_line = False
        """The first half ends within a line."""
        self.first_line = ""
        """Beginning of the first line."""
        self.last_line = ""
        """Beginning of the last line."""
        self.lines = 0
        self.size = 0
        """Bytes of the whole log."""
        self.left_out_bytes = 0
        """Bytes between the first and the last half; known after `finish`."""

    def add(self, part: str) -> None:
        """Add a line, or a part of one.

        Raises:
            OSError: The disk with temporary files is full.
        """
        if not self.in_line:
            self.lines += 1
            self.last_line = part[:LONGEST_STAMP]
            self.first_line = self.first_line or self.last_line
        data = part.encode("utf-8", "replace")
        self.size += len(data)
        if self._tail is None:
            data = self._fill_head(data)
        if data and self._tail is not None:
            self._fill_tail(self._tail, data)
        self.in_line = not part.endswith("\n")

    def finish(self) -> BinaryIO:
        """Complete the log and return it, compressed, from its beginning. Nothing can be added any more.

        Raises:
            OSError: The disk with temporary files is full.
        """
        if self._tail is not None:
            self._write_tail(self._tail)
        self._zipped.close()
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Remove the temporary files."""
        for file in (self._zipped, self._file, self._tail):
            # The log is dropped: what cannot be written of it does not matter.
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def _fill_head(self, data: bytes) -> bytes:
        """Write to the first half. Return what has no room in it: whole lines, unless the line is a long one."""
        head = data
        if len(data) > self._head_room:
            is_long = self.in_line or len(data) > self._half
            # Decoding drops a character that is not whole.
            head = data[: self._head_room].decode(errors="ignore").encode() if is_long else b""
            self._tail = _temporary_file()
        if head:
            self._zipped.write(head)
            self._head_room -= len(head)
            self._cut_line = not head.endswith(b"\n")
        return data[len(head) :]

    def _fill_tail(self, tail: BinaryIO, data: bytes) -> None:
        """Add to the text after the first half; at least the last half of the limit is kept."""
        tail.write(data)
        self._tail_bytes += len(data)
        if self._tail_bytes > 2 * self._half + BLOCK_BYTES:
            self._tail = _temporary_file()
            with tail:
                tail.seek(-self._half, os.SEEK_END)
                shutil.copyfileobj(tail, self._tail, BLOCK_BYTES)
            self.left_out_bytes += self._tail_bytes - self._half
            self._tail_bytes = self._half

    def _write_tail(self, tail: BinaryIO) -> None:
        begin = max(self._tail_bytes - self._half, 0)
        tail.seek(begin)
        if self.left_out_bytes + begin:
            start = begin
            while block := tail.readline(BLOCK_BYTES):
                start += len(block)
                if block.endswith(b"\n"):
                    break
            in_line = start == self._tail_bytes
            if in_line:
                # No line begins in the last half: it is the end of one.
                tail.seek(begin)
                first = tail.read(4)
                start = begin + len(first) - len(first.lstrip(WITHIN_CHARACTER))
                tail.seek(start)
            self.left_out_bytes += start
            stamp = read_line(self.last_line, 0).stamp
            stamp, cut = f"{stamp} " if stamp else "", "\n" if self._cut_line else ""
            text = (
                f"[torchx-pulumi: {self.left_out_bytes:,} bytes of this log were left out here: it has more than "
                f"{self._limit:,} bytes, the limit for one run of a container{self._advice}]"
            )
            mark = f"{cut}{stamp}{text}\n{stamp if in_line else ''}"
            self._zipped.write(mark.encode())
        shutil.copyfileobj(tail, self._zipped, BLOCK_BYTES)


def _temporary_file() -> BinaryIO:
    return cast("BinaryIO", tempfile.TemporaryFile())
