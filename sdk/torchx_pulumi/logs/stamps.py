"""Lines of a log with their times in nanoseconds, and the lines that were already delivered."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from datetime import datetime, timedelta

from torchx_pulumi.model.timestamps import EPOCH, SECOND_NS, parse_nanoseconds

SLACK_NS = SECOND_NS
"""Time by which a line may be older than the previous one.

Standard output and standard error get their times separately and are then written to one file.
"""


HEAD = 256
"""First characters of a line that identify it, together with its time."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log, or a part of one."""

    at_ns: int
    """Nanoseconds since 1970. A line without a time has that of the previous line."""
    stamp: str
    """The time as the API server sent it. Empty: there is none."""
    text: str
    """The text without its newline."""
    ended: bool
    """The line had a newline. Otherwise the next part may continue it."""


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


def part_of(begun: Line, raw: str) -> Line:
    r"""Return a further part of a line.

    >>> part_of(Line(1, "a stamp", "one", False), " two\n")
    Line(at_ns=1, stamp='a stamp', text=' two', ended=True)
    """
    ended = raw.endswith("\n")
    return Line(begun.at_ns, begun.stamp, raw[:-1] if ended else raw, ended)


@dataclass(slots=True)
class _Begun:
    """A line of a stream that is partly read."""

    key: tuple[int, str]
    """Its time, and its first characters that were read."""
    read: int
    """Characters that this stream returned of it."""
    skip: int | None
    """Characters that were delivered before. None: all."""


class Delivered:
    """The lines delivered in the last seconds: where to resume, and which lines to skip.

    A line is identified by its time and its first characters, which limits the memory for long lines.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        """Time of the latest line."""
        self._first_ns: int | None = None
        self._window: deque[tuple[int, str]] = deque()
        self._again: Counter[tuple[int, str]] = Counter()
        self._matched = True
        self._begun: _Begun | None = None
        self._partial: tuple[tuple[int, str], int] | None = None
        """The line that was partly delivered, and the number of its delivered characters."""

    @property
    def resume_at(self) -> datetime | None:
        """Return the time from which to read again. None: nothing was delivered."""
        return None if self._first_ns is None else EPOCH + timedelta(seconds=self._resume_ns // SECOND_NS)

    @property
    def _resume_ns(self) -> int:
        return (self.last_ns - SLACK_NS) // SECOND_NS * SECOND_NS

    def begin_again(self) -> None:
        """Prepare for a stream that begins at `resume_at`."""
        self._again = Counter(self._window)
        self._matched = not self._again
        self._begun = None

    def take(self, line: Line, *, from_the_end: bool) -> str | None:
        """Record a line or a part of one. Return its new text. None: nothing is new.

        Args:
            line: The next line. A further part has the time of its line.
            from_the_end: The first stream began with the last lines of the log. Earlier lines are not delivered.
        """
        if self._begun is None:
            skip = self._delivered_of(line, from_the_end=from_the_end)
            self._begun = _Begun((line.at_ns, ""), 0, skip)
        begun = self._begun
        at_ns, head = begun.key
        begun.key = (at_ns, head + line.text[: HEAD - len(head)])
        text = None if begun.skip is None else line.text[max(begun.skip - begun.read, 0) :]
        begun.read += len(line.text)
        if line.ended:
            self._begun = None
        if begun.skip is None:
            return None
        self._first_ns = at_ns if self._first_ns is None else self._first_ns
        self.last_ns = max(self.last_ns, at_ns)
        if line.ended:
            self._partial = None
            self._window.append(begun.key)
            while self._window and self._window[0][0] < self._resume_ns:
                self._window.popleft()
        else:
            self._partial = (begun.key, max(begun.read, begun.skip))
        # The newline after a fully delivered text is not a line.
        return text if text or (line.ended and not begun.read and not begun.skip) else None

    def _delivered_of(self, line: Line, *, from_the_end: bool) -> int | None:
        """Return the number of delivered characters of a line. None: all of them."""
        found = self._replayed(line)
        if found is not None:
            self._again[found] -= 1
            self._matched = True
            return None
        if self._partial is not None:
            (at_ns, head), count = self._partial
            if line.at_ns == at_ns and (line.text.startswith(head) or head.startswith(line.text)):
                self._matched = True
                return count
        if from_the_end and not self._matched and line.at_ns <= (self._first_ns or 0):
            return None
        # Delivered lines come first. Missing ones were removed by a rotation of the log.
        self._again.clear()
        self._matched = True
        return 0

    def _replayed(self, line: Line) -> tuple[int, str] | None:
        key = (line.at_ns, line.text[:HEAD])
        if self._again[key] > 0:
            return key
        if line.ended or len(line.text) >= HEAD:
            return None
        # The first part of a line may be shorter than the characters that identify it.
        return next(
            (known for known, left in self._again.items() if left > 0 and _begins(known, line)),
            None,
        )


def _begins(known: tuple[int, str], line: Line) -> bool:
    return known[0] == line.at_ns and known[1].startswith(line.text)
