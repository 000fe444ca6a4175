"""WorkQueue: keys with due times, and the threads that take them. At most one worker has a key."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


def start_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread: a server that does not answer must not keep the process running."""
    thread = threading.Thread(target=target, name=f"controller {name}", daemon=True)
    thread.start()
    return thread


def wait_until(met: Callable[[], bool], stop: threading.Event, timeout_s: float) -> bool:
    """Wait until a condition is met, `stop` is set or the time is over; return whether it is met."""
    end = time.monotonic() + timeout_s
    while not met():
        if stop.wait(0.02) or time.monotonic() >= end:
            return False
    return True


@dataclass(slots=True)
class _Item:
    """The state of one key."""

    due: float | None = None
    """When it is due. None: it is not queued."""
    pending: bool = False
    """There may be something to do then."""
    busy: bool = False
    """A worker has it."""
    failures: int = 0


@dataclass(eq=False)
class WorkQueue(Generic[Key]):
    """Keys that workers take when they are due. For use by several threads."""

    retry_s: float = 0.5
    """Delay after the first failure of a key; it doubles with each further one."""
    longest_retry_s: float = 30.0
    """Longest delay after a failure."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic time in seconds."""

    def __post_init__(self) -> None:
        """Begin empty."""
        self._condition = threading.Condition()
        self._items: defaultdict[Key, _Item] = defaultdict(_Item)
        self._heap: list[tuple[float, int, Key]] = []
        """Keys by due time, without those that a worker has. An entry with another time than its item is outdated."""
        self._order = itertools.count()
        self._closed = False

    def add(self, key: Key, delay_s: float = 0.0, *, pending: bool = True) -> None:
        """Add a key; of several due times the earliest counts.

        Args:
            key: The key.
            delay_s: Time until it is due.
            pending: There may be something to do. False: only a routine look, which need not happen before an exit.
        """
        with self._condition:
            self._put(key, self.clock() + delay_s, pending=pending)

    def retry(self, key: Key, longest_s: float = math.inf) -> None:
        """Add a key after a failure, with a delay that doubles each time, up to `longest_s`."""
        with self._condition:
            item = self._items[key]
            delay_s = min(self.retry_s * 2.0 ** min(item.failures, 16), self.longest_retry_s, longest_s)
            item.failures += 1
            # Jitter: keys that failed together are not tried together again.
            self._put(key, self.clock() + delay_s * (0.75 + random.random() / 4), pending=True)  # noqa: S311

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a key."""
        with self._condition:
            if key in self._items:
                self._items[key].failures = 0

    def serve(self, work: Callable[[Key], object]) -> None:
        """Call a function with each key that is due, until the queue is closed. Several threads may do so."""
        while (key := self.take()) is not None:
            try:
                work(key)
            finally:
                self.done(key)

    def take(self) -> Key | None:
        """Wait for a key that is due, and return it; `done` follows. None: the queue is closed."""
        with self._condition:
            while not self._closed:
                while self._heap and self._is_outdated(*self._heap[0]):
                    heapq.heappop(self._heap)
                wait_s = self._heap[0][0] - self.clock() if self._heap else None
                if wait_s is not None and wait_s <= 0:
                    _, _, key = heapq.heappop(self._heap)
                    self._items[key] = _Item(busy=True, failures=self._items[key].failures)
                    # Another worker waits for the next one meanwhile.
                    self._condition.notify()
                    return key
                self._condition.wait(wait_s)
            return None

    def done(self, key: Key) -> None:
        """Give a key back; what was added in the meantime is due at its time."""
        with self._condition:
            item = self._items[key]
            item.busy = False
            if item.due is not None:
                heapq.heappush(self._heap, (item.due, next(self._order), key))
                self._condition.notify()
            elif not item.failures:
                del self._items[key]

    def hurry(self) -> None:
        """Make all pending keys due now."""
        with self._condition:
            for key, item in self._items.items():
                if item.pending:
                    self._put(key, self.clock(), pending=True)

    def pending(self) -> list[Key]:
        """Return the keys that are being worked on, or that there may be something to do for."""
        with self._condition:
            return [key for key, item in self._items.items() if item.busy or item.pending]

    def close(self) -> None:
        """Let workers end."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _put(self, key: Key, at: float, *, pending: bool) -> None:
        item = self._items[key]
        item.pending = item.pending or pending
        if item.due is not None and item.due <= at:
            return
        item.due = at
        if not item.busy:
            heapq.heappush(self._heap, (at, next(self._order), key))
            self._condition.notify()

    def _is_outdated(self, at: float, _: int, key: Key) -> bool:
        return key not in self._items or self._items[key].busy or self._items[key].due != at
