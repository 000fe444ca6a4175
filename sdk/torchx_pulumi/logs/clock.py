"""Time, as following a log needs it."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """What tells the time and lets it pass."""

    def now(self) -> datetime:
        """Return the time, with its zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""
        ...

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Let time pass, or less of it where `stop` is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Sleep, unless `stop` is set."""
        stop.wait(seconds)
