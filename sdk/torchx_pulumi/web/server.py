"""WebServer: serves an ASGI application by uvicorn, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from torchx_pulumi.web import limits
from torchx_pulumi.web.connections import Connection


class Served(Protocol):
    """An application whose open responses can be ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    def close(self) -> None:
        """End streams and logs. From any thread."""


class WebServer:
    """One server."""

    def __init__(self, application: Served, listener: socket.socket, report: Callable[[str], None]) -> None:
        """Take what is served, the listening socket, and what takes a line if the server fails."""
        self._application = application
        self._listener = listener
        self._report = report
        self._stopping = False
        config = uvicorn.Config(
            application,
            http=Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            # Failures of requests are reported by the application; a line for each bad request of a stranger would
            # fill the log.
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=limits.CONNECTIONS,
            timeout_keep_alive=int(limits.HEAD_S),
            timeout_graceful_shutdown=int(limits.STOP_S),
            h11_max_incomplete_event_size=limits.HEAD_BYTES,
        )
        self._server = uvicorn.Server(config)
        # A daemon: a request that waits for a backend cannot keep the process running.
        self._thread = threading.Thread(target=self._serve, name="web server", daemon=True)

    def start(self, stop: threading.Event | None = None) -> None:
        """Begin to answer. The socket listens already, so that no connection is refused before.

        Args:
            stop: Begins the end of the server when it is set, while others end as well. None: `stop` begins it.
        """
        # Inherited by each connection.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.SOCKET_BYTES)
        self._thread.start()
        if stop is not None:
            threading.Thread(target=self._stop_after, args=(stop,), name="web stop", daemon=True).start()

    def stop(self) -> bool:
        """End all responses, then the server; return whether everything has ended after at most twice `STOP_S`."""
        self._begin_stop()
        self._thread.join(2 * limits.STOP_S)
        return not self._thread.is_alive()

    def _stop_after(self, stop: threading.Event) -> None:
        stop.wait()
        self._begin_stop()

    def _begin_stop(self) -> None:
        self._stopping = True
        self._application.close()
        self._server.should_exit = True

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
            why = "it ended by itself"
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the controller goes on, and its people are told
            why = f"{type(error).__name__}: {error}"
        finally:
            self._listener.close()
        if not self._stopping:
            self._report(f"pages are not served any more: {why}; restart the controller, and please report this error")
