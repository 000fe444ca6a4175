"""Reporter: lines with their time on stderr; each problem once when it begins, and once when it ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timezone

from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.stack_state.backend import without_credentials


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _to_stderr(line: str) -> None:
    # A full disk under the log file, or a reader that has ended, must not end the work: only the line is lost.
    # A process that was started without the stream (`2>&-`) has None; a closed one raises ValueError.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


class Reporter:
    """Writes lines. For use by several threads."""

    def __init__(self, write: Callable[[str], None] = _to_stderr, now: Callable[[], datetime] = _now) -> None:
        """Take where lines go, and the clock."""
        self._write = write
        self._now = now
        self._guard = threading.Lock()
        self._problems: set[str] = set()

    def line(self, text: str) -> None:
        """Write a text as one line with the time; credentials of backends are left out."""
        # A name of a file or of an object may hold a line break.
        whole = f"{format_time(self._now())} {one_line(without_credentials(text))}"
        with self._guard:
            self._write(whole)

    def begin(self, problem: str, text: str) -> None:
        """Write a line about a problem, unless it has begun already."""
        with self._guard:
            if problem in self._problems:
                return
            self._problems.add(problem)
        self.line(text)

    def end(self, problem: str, text: str) -> None:
        """Write a line about the end of a problem, if it has begun."""
        with self._guard:
            if problem not in self._problems:
                return
            self._problems.discard(problem)
        self.line(text)

    def forget(self, problem: str) -> None:
        """Drop a problem whose subject is gone, without a line."""
        with self._guard:
            self._problems.discard(problem)
