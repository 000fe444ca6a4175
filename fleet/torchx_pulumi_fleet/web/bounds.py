"""Bounds of responses: how many at a time, how long a client may take, and the headers that all of them have. ASGI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

import anyio
import anyio.to_thread
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchx_pulumi_fleet.web import limits
from torchx_pulumi_fleet.web.connections import ABORT

Result = TypeVar("Result")

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of each response that does not set them itself."""


class UnreadError(Exception):
    """A client did not read a part of a response in time; its connection was ended."""


class CutError(Exception):
    """A response goes no further, though it has not ended; its connection is ended, so that the client knows."""


class Slots:
    """Counts what is under way, up to a limit. For use by several threads."""

    def __init__(self, most: int, what: str) -> None:
        """Take the limit, and what is counted, in words for the client."""
        self.most, self.what = most, what
        self._count = 0
        self._guard = threading.Lock()

    def take(self) -> None:
        """Count one more.

        Raises:
            HTTPException: 503; there are as many as may be.
        """
        with self._guard:
            if self._count < self.most:
                self._count += 1
                return
        text = f"{self.most} {self.what} are open, which is the limit; try again later"
        raise HTTPException(503, text, headers={"Retry-After": str(limits.RETRY_AFTER_S)})

    def give(self) -> None:
        """Count one less."""
        with self._guard:
            self._count -= 1


class Workers:
    """Threads for what waits for a disk, a network or a processor."""

    def __init__(self) -> None:
        """Start none yet."""
        self._limiter: anyio.CapacityLimiter | None = None

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function in one of the threads. A caller that is cancelled does not wait for its end."""
        if self._limiter is None:
            # It belongs to the event loop.
            self._limiter = anyio.CapacityLimiter(limits.THREADS)
        call = partial(function, *arguments)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)


class Shared(Generic[Result]):
    """Something that is made once for all who ask for it within `SHARED_S`. Belongs to the server's event loop."""

    def __init__(self, workers: Workers, make: Callable[[], Result]) -> None:
        """Take the threads, and the function that makes it."""
        self._workers, self._make = workers, make
        self._made: asyncio.Task[Result] | None = None
        self._version: object = None

    async def get(self, version: object = None) -> Result:
        """Return it, made again for another version. An error is raised for all who waited, and is not kept."""
        if self._made is None or self._version != version:
            self._version = version
            self._made = asyncio.ensure_future(self._workers.run(self._make))
            self._made.add_done_callback(self._keep)
        # One client that leaves must not take it from the others.
        return await asyncio.shield(self._made)

    def _keep(self, made: asyncio.Task[Result]) -> None:
        kept_s = limits.SHARED_S if not made.cancelled() and made.exception() is None else 0.0
        made.get_loop().call_later(kept_s, self._drop, made)

    def _drop(self, made: asyncio.Task[Result]) -> None:
        if self._made is made:
            self._made = None


class Counted:
    """Counts the requests of an application."""

    def __init__(self, app: ASGIApp, slots: Slots) -> None:
        """Take the application and the slots."""
        self._app, self._slots = app, slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        self._slots.take()
        try:
            await self._app(scope, receive, send)
        finally:
            self._slots.give()


def bounded_send(scope: Scope, send: Send) -> Send:
    """Return a function that sends a response in parts, each of which the client has to take in time.

    Raises, from that function:
        UnreadError: It did not.
    """
    abort: Callable[[], None] = scope.get("state", {}).get(ABORT, lambda: None)

    async def send_in_time(message: Message) -> None:
        with anyio.move_on_after(limits.SEND_S):
            await send(message)
            return
        abort()
        raise UnreadError

    async def send_bounded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        # Not copied: many clients are sent the same bytes.
        body, start = memoryview(message.get("body", b"")), 0
        while len(body) - start > limits.PART_BYTES:
            part = bytes(body[start : start + limits.PART_BYTES])
            await send_in_time({**message, "body": part, "more_body": True})
            start += limits.PART_BYTES
        await send_in_time({**message, "body": bytes(body[start:])} if start else message)

    return send_bounded
