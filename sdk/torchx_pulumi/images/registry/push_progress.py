"""Progress of a push, and its lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from torchx_pulumi.images.units import megabytes


class PushProgress:
    """Counts what a push has sent. Threads share it; one of them reports."""

    def __init__(self, sizes: Mapping[str, int], report: Callable[[str], None]) -> None:
        self._sizes = dict(sizes)
        """Blob to bytes."""
        self._report = report
        self._guard = threading.Lock()
        self._sent: dict[str, int] = {}
        self._done: set[str] = set()
        self._note = ""

    def sent(self, digest: str, position: int) -> None:
        """Note how much of a blob was sent."""
        with self._guard:
            self._sent[digest] = position
            self._note = ""

    def done(self, digest: str) -> None:
        """Note that the registry has a blob."""
        with self._guard:
            self._done.add(digest)
            if digest not in self._sent:
                self._sizes[digest] = 0  # it was there, or was mounted

    def waits(self, note: str) -> None:
        """Note why an upload waits."""
        with self._guard:
            self._note = note

    def say(self) -> None:
        """Report a line. Call it at most once per second."""
        with self._guard:
            total = sum(self._sizes.values())
            sent = sum(min(self._sent.get(digest, 0), size) for digest, size in self._sizes.items())
            line = f"pushing, {len(self._done)} of {len(self._sizes)} blobs, {megabytes(sent)} of {megabytes(total)}"
            note = f"; {self._note}" if self._note else ""
        self._report(line + note)
