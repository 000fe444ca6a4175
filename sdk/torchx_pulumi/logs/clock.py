"""The clock of log reading."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from typing import Protocol


class LogClock(Protocol):
    """The clock of log reading."""

    def now(self) -> datetime:
        """Return the current time with its zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        ...

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for some seconds, or until `stop` is set."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for some seconds, or until `stop` is set."""
        stop.wait(seconds)
