"""LogStop ends the reading of logs in several threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torchx_pulumi.kube import LogLines


class LogStop(threading.Event):
    """An event that ends what several threads read, also where they wait for a line."""

    def __init__(self) -> None:
        """Begin unset."""
        super().__init__()
        self._lock = threading.Lock()
        self._streams: set[LogLines] = set()

    def set(self) -> None:
        """End the reading. Does not wait for the threads."""
        with self._lock:
            super().set()
            streams = [*self._streams]
        for stream in streams:
            stream.close()

    @contextlib.contextmanager
    def closing(self, stream: LogLines) -> Iterator[None]:
        """Close a stream at the end of the block, or when the reading has to end."""
        self.add(stream)
        try:
            yield
        finally:
            self.remove(stream)
            stream.close()

    def add(self, stream: LogLines) -> None:
        """Close a stream when the reading has to end; at once, if it has to already."""
        with self._lock:
            self._streams.add(stream)
            over = self.is_set()
        if over:
            stream.close()

    def remove(self, stream: LogLines) -> None:
        """Leave a stream alone from now on."""
        with self._lock:
            self._streams.discard(stream)
