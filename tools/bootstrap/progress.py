"""What the user sees while parts are made: one line that changes on a terminal, plain lines elsewhere.

Only output lives here. Time comes in as a function, so that tests can set it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Final, TextIO

PLAIN_EVERY_S: Final = 30.0
"""Seconds between two lines about the same part where the line cannot be updated."""


def clock_text(seconds: float) -> str:
    """Write a duration.

    >>> clock_text(75)
    '1:15'
    """
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


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
            self.say(f"{count} to make, about {clock_text(sum(self._left.values()))} min: {', '.join(self._left)}")

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
        elapsed = clock_text(self._now() - self._started)
        self._left.pop(self._current, None)
        self.say(f"{self._current}: {origin} in {elapsed} min")
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
        others_s = sum(expected for part, expected in self._left.items() if part != self._current)
        elapsed = clock_text(self._shown - self._started)
        text = f"[{number}/{max(self._total, number)}] {self._current}: {self._doing}, {elapsed}"
        expected_s = self._left.get(self._current)
        if expected_s is not None:
            text += f" of about {clock_text(expected_s)} min"
        others = len(self._left) - (self._current in self._left)
        text += f", {others} more to come (about {clock_text(others_s)} min)" if others else ", the last one"
        if not self._terminal:
            self.say(text)
            return
        print(f"\r\x1b[Kbootstrap: {text}", end="", file=self._stream, flush=True)
        self._line_open = True

    def _clear(self) -> None:
        if self._line_open:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._line_open = False
