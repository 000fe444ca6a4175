"""Progress of a push, and its lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from torchx_pulumi.model.text import megabytes


class PushProgress:
    """Counts what a push has sent. Threads share it; one of them reports."""

    def __init__(self, sizes: Mapping[str, int], report: Callable[[str], None]) -> None:
        self._sizes = dict(sizes)
        """Blob to bytes."""
        self._report = report
        self._guard = threading.Lock()
        self._sent: dict[str, int] = {}
        self._done: set[str] = set()
        self._notes: dict[str, str] = {}

    def sent(self, digest: str, position: int) -> None:
        """Note how much of a blob was sent."""
        with self._guard:
            self._sent[digest] = position
            self._notes.pop(digest, None)

    def done(self, digest: str) -> None:
        """Note that the registry has a blob."""
        with self._guard:
            self._done.add(digest)
            self._notes.pop(digest, None)
            if digest not in self._sent:
                self._sizes[digest] = 0  # it was there, or was mounted

    def waits(self, digest: str, note: str) -> None:
        """Note why the upload of a blob waits."""
        with self._guard:
            self._notes[digest] = note

    def say(self) -> None:
        """Report a line. Call it at most once per second."""
        with self._guard:
            total = sum(self._sizes.values())
            sent = sum(min(self._sent.get(digest, 0), size) for digest, size in self._sizes.items())
            line = f"pushing, {len(self._done)} of {len(self._sizes)} blobs, {megabytes(sent)} of {megabytes(total)}"
            note = next(iter(self._notes.values()), None)
        self._report(f"{line}; {note}" if note else line)
