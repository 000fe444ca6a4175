"""Connection: uvicorn's HTTP/1.1 connection with limits on time and number, so that clients hold little memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from torchx_pulumi_fleet.web import limits

ABORT = "abort"
"""Name in a request's `state` of the function that ends its connection at once, with what was not sent."""


class Connection(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Take what uvicorn gives."""
        super().__init__(config, server_state, {**app_state, ABORT: self.abort}, _loop)
        self._deadline: asyncio.TimerHandle | None = None
        self._waits_since: float | None = None
        """When it began to wait for a request. None: one is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or refuse the connection."""
        if len(self.connections) >= limits.CONNECTIONS and not self._make_room():
            transport.abort()
            return
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        if self.transport is None:
            # It was refused, and uvicorn does not know it.
            return
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the wait ends with a whole request only, so that a slow one gains nothing by another byte."""
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to read the end of this response."""
        super().on_response_complete()
        self._set_deadline()

    def abort(self) -> None:
        """End the connection at once; what the client has not read is dropped."""
        if self.transport is not None:
            self.transport.abort()

    def _set_deadline(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._waits_since = None
        elif self._deadline is None:
            self._waits_since = self.loop.time()
            self._deadline = self.loop.call_later(limits.HEAD_S, self.abort)

    def _make_room(self) -> bool:
        """End the connection that has waited longest; return whether there is one."""
        waiting = [each for each in self.connections if isinstance(each, Connection) and each._waits_since is not None]
        oldest: Connection | None = min(waiting, key=_since, default=None)
        if oldest is None:
            return False
        oldest.abort()
        # It is lost in the loop's next turn; it must not be chosen again before.
        self.connections.discard(oldest)
        return True


_since: Callable[[Connection], float] = lambda each: each._waits_since or 0.0  # noqa: E731
