"""Says what is going on: a line that is rewritten on a terminal, now and then a line in a log."""

from __future__ import annotations

import shutil
import sys
from typing import Final, TextIO

QUIET_S: Final = 2.0
"""Nothing is said about what takes less."""
_EVERY_S: Final = {True: 0.2, False: 5.0}
"""Seconds between lines: on a terminal, in a log."""


class Progress:
    """Where the tool tells what it does. Results go to stdout, this goes to stderr."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()
        self._said_s = 0.0
        self._open_line = False

    def say(self, text: str) -> None:
        """Print a line."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def waiting(self, names: list[str], elapsed_s: float) -> None:
        """Tell what is being waited for, if it takes long and there is something new to tell."""
        if not names:
            self._clear()
            self._said_s = 0.0
            return
        since = elapsed_s - self._said_s
        if elapsed_s < QUIET_S or 0 <= since < _EVERY_S[self._terminal]:
            return
        self._said_s = elapsed_s
        text = f"  {elapsed_s:3.0f} s, waiting for {', '.join(names)}"
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=self._stream, flush=True)
            self._open_line = True
        else:
            print(text, file=self._stream, flush=True)

    def _clear(self) -> None:
        if self._open_line:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._open_line = False
