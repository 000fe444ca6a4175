"""Reporter: lines with their time on stderr; each problem once when it begins, and once when it ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timezone

from torchx_pulumi.model.text import one_line
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.stack_state.backend import without_credentials

MOST_FACTS = 10_000
"""Facts that are remembered as written: those that came up last. An earlier one may be written again."""


def _to_stderr(line: str) -> None:
    # A full disk under the log file, or a reader that has ended, must not end the work: only the line is lost.
    # A process that was started without the stream (`2>&-`) has None; a closed one raises ValueError.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


class Reporter:
    """Writes lines. For use by several threads."""

    def __init__(self, write: Callable[[str], None] = _to_stderr) -> None:
        """Take where lines go."""
        self._write = write
        self._guard = threading.Lock()
        self._problems: dict[str, str] = {}
        self._told: OrderedDict[str, None] = OrderedDict()

    def line(self, text: str) -> None:
        """Write a text as one line with the time; credentials of backends are left out."""
        whole = f"{format_time(datetime.now(timezone.utc))} {_shown(text)}"
        with self._guard:
            self._write(whole)

    def plain(self, text: str) -> None:
        """Write a text unchanged, also a secret that its reader needs."""
        with self._guard:
            self._write(text)

    def begin(self, problem: str, text: str) -> None:
        """Write a line about a problem, unless it has begun already."""
        with self._guard:
            if problem in self._problems:
                return
            self._problems[problem] = _shown(text)
        self.line(text)

    def end(self, problem: str, text: str) -> None:
        """Write a line about the end of a problem, if it has begun."""
        with self._guard:
            if self._problems.pop(problem, None) is None:
                return
        self.line(text)

    def once(self, fact: str, text: str) -> None:
        """Write a line about a fact that has no end, unless it was written already (see `MOST_FACTS`)."""
        with self._guard:
            known = fact in self._told
            self._told[fact] = None
            self._told.move_to_end(fact)
            if len(self._told) > MOST_FACTS:
                self._told.popitem(last=False)
        if not known:
            self.line(text)

    def forget(self, subject: str) -> None:
        """Drop a problem or a fact whose subject is gone, without a line."""
        with self._guard:
            self._problems.pop(subject, None)
            self._told.pop(subject, None)

    def problems(self) -> tuple[str, ...]:
        """Return the texts of the problems that have begun and not ended, the oldest first, without credentials."""
        with self._guard:
            return tuple(self._problems.values())


def _shown(text: str) -> str:
    # A name of a file or of an object may hold a line break.
    return one_line(without_credentials(text))
