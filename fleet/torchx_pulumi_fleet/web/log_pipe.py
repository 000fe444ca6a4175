"""LogPipe: a log that a thread reads and a client takes. What the client has not taken holds the reader up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from torchx_pulumi.logs.waiting import LogStop

from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.bounds import CutError

Open = Callable[[LogStop], Iterator[str]]
"""Opens a log, which may wait and may raise; reading it raises nothing."""


class LogPipe:
    """One log."""

    def __init__(self, opened: Open, ended: Callable[[], None]) -> None:
        """Start to read, in a thread.

        Args:
            opened: Opens the log.
            ended: Is called when the thread ends, in it.
        """
        self._open, self._ended = opened, ended
        self._loop = asyncio.get_running_loop()
        self._stop = LogStop()
        self._room = threading.Condition()
        self._parts: list[bytes] = []
        self._size = 0
        self._over = False
        self._whole = False
        self._news = asyncio.Event()
        self._begun: asyncio.Future[Exception | None] = self._loop.create_future()
        threading.Thread(target=self._read, name="web log", daemon=True).start()

    async def begun(self) -> None:
        """Wait until the log is open.

        Raises:
            Exception: It cannot be opened.
        """
        error = await self._begun
        if error is not None:
            raise error

    async def parts(self, may: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Give the log as it is read, until it ends. The caller has to call `close` afterwards.

        Args:
            may: Returns whether the client may still read.

        Raises:
            CutError: It goes on, but not for this client: the server ends, or the client may not read any more.
        """
        while may():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), limits.PING_S)
            self._news.clear()
            taken, over = self._take()
            if taken:
                yield taken
            if over and self._whole:
                return
            if over:
                break
        raise CutError

    def close(self) -> None:
        """End the reader. From any thread."""
        self._stop.set()
        with self._room:
            self._room.notify_all()

    def _take(self) -> tuple[bytes, bool]:
        with self._room:
            taken = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._room.notify_all()
            return taken, self._over

    def _read(self) -> None:
        try:
            lines = self._open(self._stop)
        except Exception as error:  # noqa: BLE001 - raised where the request is answered
            self._tell(self._begin, error)
        else:
            self._tell(self._begin, None)
            for line in lines:
                if not self._put(line.encode(errors="replace")):
                    break
            self._whole = not self._stop.is_set()
        finally:
            self._stop.set()
            with self._room:
                self._over = True
            self._tell(self._news.set)
            self._ended()

    def _put(self, part: bytes) -> bool:
        """Add a part when there is room; return whether it is still wanted."""
        with self._room:
            while self._size >= limits.PART_BYTES and not self._stop.is_set():
                self._room.wait()
            self._parts.append(part)
            self._size += len(part)
            first = len(self._parts) == 1
        if first:
            self._tell(self._news.set)
        return not self._stop.is_set()

    def _begin(self, error: Exception | None) -> None:
        if not self._begun.done():
            self._begun.set_result(error)

    def _tell(self, function: Callable[..., None], *arguments: object) -> None:
        # After the end of the server there is no client either.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)
