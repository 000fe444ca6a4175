"""The part of a log that was received, so that an interrupted stream is continued without lost or repeated text."""

from __future__ import annotations

from datetime import datetime, timedelta

from torchx_pulumi.logs.stamps import SLACK_NS, read_line
from torchx_pulumi.model.timestamps import EPOCH, SECOND_NS

LONGEST_STAMP = 64
"""Characters of a line in which its time is looked for."""


class Received:
    """Counts the received lines of the last seconds. Memory does not depend on their number or length.

    A stream that begins at a time has all lines from that time on, in the order of the log. As many of them are left
    out as were received before, then as many characters as were received of a line without an end.
    """

    def __init__(self) -> None:
        self.last_ns = 0
        """Time of the latest line. 0: none was received."""
        self._counts: dict[int, int] = {}
        """Second -> complete lines of that second."""
        self._at_ns = 0
        """Time of the current line of the stream."""
        self._in_line = False
        """The stream has returned a part of the current line."""
        self._skips_line = False
        """The current line was received before."""
        self._lines_to_skip = 0
        self._to_drop = 0
        """Characters of the current line that were received before."""
        self._open_ns = 0
        """Time of the line without an end that was received last."""
        self._open_size = 0
        """Characters that were received of it. 0: the last line had an end."""

    @property
    def resume_at(self) -> datetime | None:
        """Return the time from which to read again. None: nothing was received."""
        return None if not self.last_ns else EPOCH + timedelta(seconds=self._resume_second)

    @property
    def _resume_second(self) -> int:
        return max(self.last_ns - SLACK_NS, 0) // SECOND_NS

    def begin_again(self) -> None:
        """Prepare for a stream that begins at `resume_at`."""
        first = self._resume_second
        self._lines_to_skip = sum(count for second, count in self._counts.items() if second >= first)
        self._in_line = self._skips_line = False
        self._to_drop = 0

    def take(self, part: str) -> str:
        """Record a line of a stream, or a part of one, with its time. Return the text that is new."""
        start = ""
        if not self._in_line:
            line = read_line(part[:LONGEST_STAMP], self.last_ns)
            self._at_ns = line.at_ns
            self._skips_line = self._lines_to_skip > 0 and line.at_ns <= self.last_ns
            if self._skips_line:
                self._lines_to_skip -= 1
            elif self._open_size and line.at_ns == self._open_ns:
                self._to_drop = self._open_size
            else:
                # The end of the line before cannot be read any more.
                start = "\n" if self._open_size else ""
                self._open_ns, self._open_size, self._to_drop = line.at_ns, 0, 0
        self._in_line = not part.endswith("\n")
        if self._skips_line:
            return ""
        self.last_ns = max(self.last_ns, self._at_ns)
        new = part[self._to_drop :]
        self._to_drop -= min(self._to_drop, len(part))
        self._open_size += len(new)
        if not self._in_line:
            self._open_size = 0
            self._count()
        return start + new

    def _count(self) -> None:
        second = self._at_ns // SECOND_NS
        if second not in self._counts:
            first = self._resume_second
            self._counts = {known: count for known, count in self._counts.items() if known >= first}
        self._counts[second] = self._counts.get(second, 0) + 1
