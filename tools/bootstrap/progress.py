"""What the user sees while parts are made: one line that changes on a terminal, plain lines elsewhere.

Only output lives here. Time comes in as a function, so that tests can set it.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, TextIO

PLAIN_EVERY_S: Final = 30.0
"""Seconds between two lines about the same part where the line cannot be updated."""


def duration_text(seconds: float) -> str:
    """Write a duration.

    >>> duration_text(75)
    '1 min 15 s'
    """
    whole = int(seconds)
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


class Progress:
    """Tells which part is being made, for how long, and what is left."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        terminal: bool | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty() if terminal is None else terminal
        self._now = now
        self._left: dict[str, int] = {}
        self._total = 0
        self._current = ""
        self._doing = ""
        self._started = 0.0
        self._shown = 0.0
        self._line_open = False
        self._said: set[str] = set()

    def plan(self, expected_s: Mapping[str, int]) -> None:
        """Say beforehand which parts will be made, with the seconds that each is expected to take."""
        self._left = dict(expected_s)
        self._total = len(self._left)
        if self._left:
            count = "1 part" if self._total == 1 else f"{self._total} parts"
            self.say(f"{count} to make, about {duration_text(sum(self._left.values()))}: {', '.join(self._left)}")

    def start(self, part: str, doing: str) -> None:
        """Turn to a part; `doing` says what is done, for example `building`."""
        self._current, self._doing = part, doing
        self._started = self._now()
        self._show()

    def tick(self) -> None:
        """Give the line a chance to be updated; call it about once a second."""
        if self._terminal or self._now() - self._shown >= PLAIN_EVERY_S:
            self._show()

    def finish(self, origin: str) -> None:
        """Say how the part was made, and strike it off."""
        elapsed = duration_text(self._now() - self._started)
        self._left.pop(self._current, None)
        self.say(f"{self._current}: {origin}, took {elapsed}")
        self._current = ""

    def once(self, text: str) -> None:
        """Say a line, but only the first time."""
        if text not in self._said:
            self._said.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Write a line of its own."""
        self._clear()
        print(f"bootstrap: {text}", file=self._stream, flush=True)

    def close(self) -> None:
        """Leave the terminal with no half-written line."""
        self._clear()

    def _show(self) -> None:
        self._shown = self._now()
        number = self._total - len(self._left) + 1
        expected = f" of about {duration_text(self._left[self._current])}" if self._current in self._left else ""
        elapsed = duration_text(self._shown - self._started)
        text = f"[{number}/{max(self._total, number)}] {self._current}: {self._doing}, {elapsed}{expected}"
        others = {part: seconds for part, seconds in self._left.items() if part != self._current}
        if others:
            text += f", {len(others)} more to come (about {duration_text(sum(others.values()))})"
        if not self._terminal:
            self.say(text)
            return
        # A line that wraps could not be taken back.
        text = f"bootstrap: {text}"[: shutil.get_terminal_size().columns - 1]
        print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)
        self._line_open = True

    def _clear(self) -> None:
        if self._line_open:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._line_open = False
