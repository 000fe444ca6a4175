"""One log read by several streams: each continues where the last one was interrupted, without repeats."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from torchx_pulumi.kube import LogLines
from torchx_pulumi.model.timestamps import EPOCH, SECOND_NS, parse_nanoseconds, to_nanoseconds

SLACK_NS = SECOND_NS
"""Time by which a line may be older than the previous one.

Standard output and standard error get their times separately and are then written to one file.
"""

HEAD = 256
"""First characters of a line that identify it, together with its time."""

MOST = 20_000
"""Lines that are remembered, which limits the memory for fast logs."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, or a part of one."""

    at_ns: int
    """Nanoseconds since 1970. A line without a time has that of the previous line."""
    stamp: str
    """The time as the API server sent it. Empty: the line has none."""
    text: str
    """The text without its newline."""
    ended: bool
    """The line had a newline. Otherwise the next part may continue it."""
    continues: bool = False
    """The text continues the line that was returned last."""


def read_line(raw: str, before_ns: int) -> Line:
    r"""Parse a line of the API server.

    Args:
        raw: The line, with its newline if it has one.
        before_ns: Time of the previous line.

    >>> line = read_line("1970-01-01T00:00:01.000000002Z step 1\n", 0)
    >>> line.at_ns, line.text, line.ended
    (1000000002, 'step 1', True)
    """
    ended = raw.endswith("\n")
    whole = raw[:-1] if ended else raw
    stamp, _, text = whole.partition(" ")
    at_ns = parse_nanoseconds(stamp)
    return Line(before_ns, "", whole, ended) if at_ns is None else Line(at_ns, stamp, text, ended)


@dataclass(slots=True)
class _Begun:
    """A line of a stream that is partly read."""

    at_ns: int
    stamp: str
    skip: int | None
    """Characters that were delivered before. None: all."""
    head: str = ""
    """Its first characters that were read."""
    read: int = 0
    """Characters that this stream returned of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What one stream of a container's log has, as the arguments of `Logs.logs`."""

    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    silence_s: float | None = None


@dataclass
class ResumedLog:
    """The log of one container, read by one stream after the other.

    A stream begins with the lines of the last seconds before the interruption; those that were delivered are skipped. A
    line is identified by its time and its first characters, which limits the memory for long lines.
    """

    open_stream: Callable[[StreamOptions], AbstractContextManager[LogLines]]
    """Opens a stream with times and newlines, which ends with the block; errors as of `Logs.logs`."""
    since: datetime | None = None
    """Time, with a zone, of the first line. None: all lines."""
    tail_lines: int | None = None
    """Number of lines at the end of the log to begin with. None: all lines."""
    with_rest: bool = False
    """A last line without newline is returned when a followed stream ends. False: it is read again by the next stream,
    because it may continue."""
    begins: Callable[[Line], None] = lambda _line: None
    """Takes the first line of each stream before it counts; what it raises ends the stream."""
    finished: bool = False
    """The last stream was read to its end."""
    last_ns: int = 0
    """Time of the latest line in nanoseconds since 1970. 0: no line was read."""
    _line_ns: int = 0
    """Time of the last line of the current stream, which counts for a line without one."""
    _window: deque[tuple[int, str]] = field(default_factory=deque)
    """The delivered lines of the last seconds."""
    _older_ns: int | None = None
    """Lines up to this time that come before the first known one are left out. None: none are."""
    _again: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Those of them that the current stream has not returned again."""
    _matched: bool = True
    _begun: _Begun | None = None
    _partial: tuple[tuple[int, str], int] | None = None
    """The line that was partly delivered, and the number of its delivered characters."""
    _rest: str = ""
    """The last line of a followed stream, if it has no newline and no stream has given it since."""

    @property
    def resume_at(self) -> datetime | None:
        """Return the time from which to read again. None: from the beginning."""
        return EPOCH + timedelta(seconds=self._resume_ns // SECOND_NS) if self.last_ns else None

    @property
    def _resume_ns(self) -> int:
        return (self.last_ns - SLACK_NS) // SECOND_NS * SECOND_NS

    def is_known(self, line: Line) -> bool:
        """Return whether the first line of a stream was delivered in the last seconds, or a part of it was."""
        delivered = any(at_ns == line.at_ns and _is_same(head, line.text) for at_ns, head in self._window)
        return delivered or self._is_partial(line.at_ns, line.text)

    def read(self, *, follow: bool, previous: bool = False, silence_s: float | None = None) -> Iterator[Line]:
        """Yield the new lines of one stream, long or unfinished ones in parts.

        Args:
            follow: Continue until the container ends.
            previous: Read the container's run before its last restart.
            silence_s: Seconds without a line after which the stream counts as interrupted. None: as of `Logs.logs`.

        Raises:
            ClusterError: As of `Logs.logs` and `LogLines`.
        """
        self.finished = False
        if follow and self.tail_lines == 0 and not self.last_ns:
            self._begin_at_end()
        resume_at = self.resume_at
        self._again = Counter(self._window)
        self._matched = not self._again
        self._begun = None
        self._line_ns = 0
        options = StreamOptions(
            follow=follow,
            previous=previous,
            tail_lines=self.tail_lines if resume_at is None else None,
            since=resume_at or self.since,
            silence_s=silence_s,
        )
        first = True
        with self.open_stream(options) as stream:
            for raw in stream:
                if first:
                    line = read_line(raw, 0)
                    # A node stores a long line in blocks. A stream may begin inside a delivered line, and that of an
                    # archive begins with the log.
                    if resume_at is not None and (not line.stamp or line.at_ns < to_nanoseconds(resume_at)):
                        continue
                    self.begins(line)
                    first = False
                    if self._rest and not raw.startswith(self._rest) and not self.is_known(line):
                        # The stream is that of a later run.
                        yield from filter(None, [self.take_rest()])
                if follow and not self.with_rest and not raw.endswith("\n") and stream.finished:
                    # Parts of a longer line were returned.
                    self._rest = raw if self._begun is None else ""
                    break
                if self._rest and raw.startswith(self._rest):
                    self._rest = ""
                new = self._take(raw)
                if new is not None:
                    yield new
            self.finished = stream.finished

    def take_rest(self) -> Line | None:
        """Return a last line that was left for the next stream, because it has no newline, and was not in that.

        To be asked for if no further stream can have it. None: there is no such line.
        """
        rest, self._rest = self._rest, ""
        line = self._take(rest) if rest else None
        # What comes next is no part of it.
        self._begun, self._line_ns = None, 0
        return line

    def _begin_at_end(self) -> None:
        """Take the last line as delivered, so that a stream that is opened again gives what was written since."""
        self._begun, self._line_ns, empty = None, 0, True
        with self.open_stream(StreamOptions(tail_lines=1, since=self.since)) as stream:
            for raw in stream:
                self._take(raw)
                empty = False
        # All lines of a log that is empty now are new.
        self.tail_lines = None if empty else 0

    def _take(self, raw: str) -> Line | None:
        """Record a line of the stream, or a part of one. Return the new part. None: it was delivered before."""
        begun, line = self._begun, read_line(raw, self._line_ns)
        if begun is None:
            self._line_ns, text = line.at_ns, line.text
            begun = _Begun(line.at_ns, line.stamp, self._delivered_of(line))
        else:
            text = raw.removesuffix("\n")
        self._begun = None if line.ended else begun
        start = begun.read
        begun.read += len(text)
        begun.head += text[: HEAD - len(begun.head)]
        if begun.skip is None:
            return None
        if not self.last_ns and self.tail_lines is not None:
            self._older_ns = begun.at_ns
        self.last_ns = max(self.last_ns, begun.at_ns)
        key = (begun.at_ns, begun.head)
        if self._partial is not None and not self._is_partial(begun.at_ns, begun.head):
            # A last line without newline, of another run.
            self._window.append(self._partial[0])
        self._partial = None if line.ended else (key, max(begun.read, begun.skip))
        if line.ended:
            self._window.append(key)
            while self._window and self._window[0][0] < self._resume_ns:
                self._window.popleft()
            if len(self._window) > MOST:
                # Times go back: the line that is dropped may be the later one.
                dropped_ns, _ = self._window.popleft()
                self._older_ns = max(self._older_ns or 0, dropped_ns, self._window[0][0])
        text = text[max(begun.skip - start, 0) :]
        continues = start > 0 or begun.skip > 0
        return Line(begun.at_ns, begun.stamp, text, line.ended, continues) if text or line.ended else None

    def _is_partial(self, at_ns: int, text: str) -> bool:
        """Return whether a text of a time is of the line that was partly delivered."""
        return self._partial is not None and self._partial[0][0] == at_ns and _is_same(self._partial[0][1], text)

    def _delivered_of(self, line: Line) -> int | None:
        """Return the number of delivered characters of a line. None: all of them."""
        key = (line.at_ns, line.text[:HEAD])
        if not self._again[key] and not line.ended and len(line.text) < HEAD:
            # The first part of a line may be shorter than the characters that identify it.
            same = (known for known in +self._again if known[0] == line.at_ns and known[1].startswith(line.text))
            key = next(same, key)
        if self._again[key]:
            self._again[key] -= 1
            self._matched = True
            return None
        if self._partial is not None and self._is_partial(line.at_ns, line.text):
            self._matched = True
            return self._partial[1]
        if not self._matched and self._older_ns is not None and line.at_ns <= self._older_ns:
            return None
        # Delivered lines come first. Missing ones were removed by a rotation of the log.
        self._again.clear()
        self._matched = True
        return 0


def _is_same(head: str, text: str) -> bool:
    """Return whether texts of one time are of the same line: the first characters of it, and a part from its start."""
    return text.startswith(head) or head.startswith(text)
