"""WorkQueue: keys with due times. A key is in it once, and at most one worker has it."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key")


class WorkQueue(Generic[Key]):
    """Keys that workers take when they are due. For use by several threads."""

    def __init__(
        self,
        *,
        retry_s: float = 0.5,
        longest_retry_s: float = 30.0,
        group: Callable[[Key], Hashable] = lambda _: None,
        most_of_group: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Create an empty queue.

        Args:
            retry_s: Delay after the first failure of a key; it doubles with each further one.
            longest_retry_s: Longest delay after a failure.
            group: Returns the group of a key: what a key waits for, others of its group wait for too.
            most_of_group: Keys of one group that are taken at the same time. None: any number.
            clock: Monotonic time in seconds.
            chance: Returns numbers from 0 to 1, for the jitter of delays after failures.
        """
        self._retry_s = retry_s
        self._longest_retry_s = longest_retry_s
        self._clock = clock
        self._chance = chance
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, Key]] = []
        self._order = itertools.count()
        self._due: dict[Key, tuple[float, bool]] = {}
        self._busy: set[Key] = set()
        self._group = group
        self._most_of_group = most_of_group
        self._taken: Counter[Hashable] = Counter()
        self._held: dict[Hashable, list[tuple[float, int, Key]]] = {}
        self._again: dict[Key, tuple[float, bool]] = {}
        self._failures: dict[Key, int] = {}
        self._closed = False

    def add(self, key: Key, delay_s: float = 0.0, *, pending: bool = True) -> None:
        """Add a key; of several due times the earliest counts.

        Args:
            key: The key.
            delay_s: Time until it is due.
            pending: There may be something to do. False: only a routine look, which need not happen before an exit.
        """
        with self._condition:
            self._put(key, self._clock() + delay_s, pending)

    def retry(self, key: Key, longest_s: float = math.inf) -> None:
        """Add a key after a failure, with a delay that doubles each time, up to `longest_s`."""
        with self._condition:
            count = self._failures.get(key, 0) + 1
            self._failures[key] = count
            delay_s = min(self._retry_s * 2.0 ** min(count - 1, 16), self._longest_retry_s, longest_s)
            self._put(key, self._clock() + delay_s * (0.75 + self._chance() / 4), True)

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a key."""
        with self._condition:
            self._failures.pop(key, None)

    def take(self) -> Key | None:
        """Wait for a key that is due, and return it; `done` follows. None: the queue is closed."""
        with self._condition:
            while not self._closed:
                now = self._clock()
                wait_s = None
                while self._heap:
                    at, _, key = self._heap[0]
                    if self._due.get(key, (None,))[0] != at:
                        # Replaced by an earlier time.
                        heapq.heappop(self._heap)
                        continue
                    if at > now:
                        wait_s = at - now
                        break
                    entry, group = heapq.heappop(self._heap), self._group(key)
                    if self._most_of_group is not None and self._taken[group] >= self._most_of_group:
                        self._held.setdefault(group, []).append(entry)
                        continue
                    self._taken[group] += 1
                    del self._due[key]
                    self._busy.add(key)
                    return key
                self._condition.wait(wait_s)
            return None

    def done(self, key: Key) -> None:
        """Give a key back; what was added in the meantime is due at its time."""
        with self._condition:
            self._busy.discard(key)
            group = self._group(key)
            self._taken[group] -= 1
            for entry in self._held.pop(group, ()):
                heapq.heappush(self._heap, entry)
            again = self._again.pop(key, None)
            if again is not None:
                self._put(key, *again)
            self._condition.notify_all()

    def hurry(self) -> None:
        """Make all pending keys due now."""
        with self._condition:
            now = self._clock()
            for key, (at, pending) in [*self._due.items()]:
                if pending and at > now:
                    self._put(key, now, True)

    def pending(self) -> list[Key]:
        """Return the keys that are being worked on, or that there may be something to do for."""
        with self._condition:
            waiting = [key for key, (_, pending) in self._due.items() if pending]
            return list(dict.fromkeys([*self._busy, *waiting]))

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until no key is pending; return whether that is so."""
        end = time.monotonic() + timeout_s
        with self._condition:
            while self._busy or any(pending for _, pending in self._due.values()):
                left_s = end - time.monotonic()
                if left_s <= 0 or self._closed:
                    return False
                self._condition.wait(min(left_s, 0.2))
            return True

    def close(self) -> None:
        """Let workers end."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _put(self, key: Key, at: float, pending: bool) -> None:
        if key in self._busy:
            known = self._again.get(key)
            self._again[key] = (at, pending) if known is None else (min(known[0], at), known[1] or pending)
            return
        known = self._due.get(key)
        if known is not None:
            pending = known[1] or pending
            if known[0] <= at:
                self._due[key] = (known[0], pending)
                return
        self._due[key] = (at, pending)
        heapq.heappush(self._heap, (at, next(self._order), key))
        self._condition.notify()
