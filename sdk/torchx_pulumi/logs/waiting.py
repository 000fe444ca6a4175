"""How the reading of logs waits, and what ends it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Protocol, TypeVar


class LogClock:
    """The clock of log reading: that of the machine."""

    def now(self) -> datetime:
        """Return the current time with its zone."""
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for some seconds, or until `stop` is set."""
        stop.wait(seconds)


class Closable(Protocol):
    """A stream of a log, or another `LogStop`."""

    def close(self) -> None:
        """End it. Called from any thread; further calls have no effect."""


Item = TypeVar("Item", bound=Closable)


class LogStop(threading.Event):
    """An event that ends the reading of several threads, also while they wait for a line."""

    def __init__(self) -> None:
        """Begin unset."""
        super().__init__()
        self._lock = threading.Lock()
        self._items: set[Closable] = set()

    def set(self) -> None:
        """End the reading. Does not wait for the threads."""
        with self._lock:
            super().set()
            items = [*self._items]
        for item in items:
            item.close()

    close = set

    @contextlib.contextmanager
    def closing(self, item: Item) -> Iterator[Item]:
        """Close an item at the end of the block, or as soon as the reading has to end."""
        with self._lock:
            self._items.add(item)
        if self.is_set():
            item.close()
        try:
            yield item
        finally:
            with self._lock:
                self._items.discard(item)
            item.close()
