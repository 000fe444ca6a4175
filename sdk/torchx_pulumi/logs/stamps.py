"""Lines of a log and the times that they carry, in whole nanoseconds, so that none is rounded."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache

STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND_NS = 1_000_000_000

SLACK_NS = SECOND_NS
"""How much earlier a line may carry its time than one that was written before it.

Standard output and standard error are stamped apart, and then written one after the other.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    at_ns: int
    """When it was written, since 1970. A line without a time: that of the line before."""
    stamp: str
    """The time as the API server gives it. Empty: it gave none."""
    text: str
    """Without its end."""
    ended: bool
    """It had a newline."""


def nanoseconds_of(moment: datetime) -> int:
    """Return the nanoseconds since 1970 of a time that has a zone."""
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def read_line(raw: str, before_ns: int) -> Line:
    r"""Read a line as the API server sends it.

    Args:
        raw: The line, with its newline if it has one.
        before_ns: Time of the line before.

    >>> line = read_line("1970-01-01T00:00:01.000000002Z step 1\n", 0)
    >>> line.at_ns, line.text, line.ended
    (1000000002, 'step 1', True)
    """
    ended = raw.endswith("\n")
    whole = raw[:-1] if ended else raw
    stamp, _, text = whole.partition(" ")
    found = STAMP.match(stamp)
    if found is None:
        return Line(before_ns, "", whole, ended)
    try:
        at_ns = _second(found[1], found[3]) * SECOND_NS + int((found[2] or "0").ljust(9, "0"))
    except ValueError:
        return Line(before_ns, "", whole, ended)
    return Line(at_ns, stamp, text, ended)


@lru_cache(maxsize=16)
def _second(text: str, zone: str) -> int:
    moment = datetime.fromisoformat(text + ("+00:00" if zone == "Z" else zone))
    return int((moment - EPOCH).total_seconds())


class Delivered:
    """What was delivered of the last seconds: where to begin again, and which lines not to give twice."""

    def __init__(self) -> None:
        self.last_ns = 0
        """Time of the latest line."""
        self._first_ns: int | None = None
        self._window: deque[tuple[int, str]] = deque()
        self._again: Counter[tuple[int, str]] = Counter()
        self._matched = True

    @property
    def resume_at(self) -> datetime | None:
        """From when to ask again. None: nothing was delivered."""
        return None if self._first_ns is None else EPOCH + timedelta(seconds=self._resume_ns // SECOND_NS)

    @property
    def _resume_ns(self) -> int:
        return (self.last_ns - SLACK_NS) // SECOND_NS * SECOND_NS

    def begin_again(self) -> None:
        """Expect a stream that begins at `resume_at`."""
        self._again = Counter(self._window)
        self._matched = not self._again

    def take(self, line: Line, *, from_the_end: bool) -> bool:
        """Tell whether a line of the stream is new, and remember it.

        Args:
            line: The next one.
            from_the_end: The first stream began with some lines of the end; what lay before them was not wanted.
        """
        key = (line.at_ns, line.text)
        if self._again[key] > 0:
            self._again[key] -= 1
            self._matched = True
            return False
        if from_the_end and not self._matched and line.at_ns <= (self._first_ns or 0):
            return False
        # What was delivered comes first; the rest of it went when the log was rotated.
        self._again.clear()
        self._matched = True
        self._first_ns = line.at_ns if self._first_ns is None else self._first_ns
        self.last_ns = max(self.last_ns, line.at_ns)
        self._window.append(key)
        while self._window and self._window[0][0] < self._resume_ns:
            self._window.popleft()
        return True
