"""Connections to one API server, with bounds that detect those which a load balancer dropped without closing them.

| Event | Bound |
|---|---|
| idle time after which a connection is not used again | 30 s; 5 s for requests that must not be sent twice |
| the server's machine no longer answers (TCP keepalive) | 25 s on Linux, 35 s elsewhere; also for a followed log |
| first byte of the response to a GET on a reused connection | 10 s; then the GET is sent again on a new connection |
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3

from torchx_pulumi.kube.transport import CONNECT_TIMEOUT_S, Response

IDLE_S = 30.0
"""Longest idle time of a connection that is used again."""

SHORT_IDLE_S = 5.0
"""The same for requests that must not be sent twice."""

FIRST_BYTE_SHARE = 1 / 3
"""Share of a request's timeout for the first byte of the response on a reused connection: 10 s of 30 s."""

KEPT = 64
"""Idle connections that are kept for further requests."""

PROBE_AFTER_S = 20
"""Silence after which the system sends TCP keepalive probes."""

PROBE_EVERY_S = 5
PROBES = 3


def socket_options() -> list[tuple[int, int, int]]:
    """Return urllib3's default option and the options of TCP keepalive."""
    named = (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPALIVE", PROBE_AFTER_S),  # macOS
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", PROBE_AFTER_S * 1000),  # Linux: also while something was sent and not confirmed
    )
    found = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named if hasattr(socket, name)]
    return [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]


class _NotesSocket:
    """Keeps the socket, which urllib3 gives away if the server announces that it closes the connection."""

    noted: Any = None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.noted = self.sock  # type: ignore[attr-defined]


# Messages of urllib3 begin with the names of the classes.
class HTTPConnection(_NotesSocket, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """A connection of urllib3 that keeps its socket."""


class HTTPSConnection(_NotesSocket, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """A connection of urllib3 that keeps its socket."""


class ApiConnection:
    """One connection to an API server, for one request at a time. The first one opens it."""

    def __init__(self, pool: Any) -> None:
        """Use a pool of urllib3 that keeps one connection."""
        self.idle_since = 0.0
        """When its last response was read, in seconds of the wall clock. 0: it has not served a request."""
        self._pool = pool
        self._socket: Any = None
        pool.ConnectionCls = HTTPSConnection if pool.scheme == "https" else HTTPConnection

    @property
    def is_open(self) -> bool:
        """Return whether the server has not closed the connection, as far as the system knows."""
        try:
            return self._socket is not None and not urllib3.util.wait_for_read(self._socket, 0)
        except ValueError:
            # It is closed on this side.
            return False

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        first_byte_s: float | None,
        read_timeout_s: float | None,
        released: Callable[[], None],
    ) -> Response:
        """Send a request.

        Args:
            method: Method of HTTP.
            target: Path and query; for a proxy that forwards requests, the whole address.
            headers: Headers.
            body: Body of the request.
            first_byte_s: Timeout of the head of the response. None: no limit.
            read_timeout_s: Timeout between two reads of its body. None: no limit.
            released: Called when the body was read to its end.
        """
        # `request` of a manager would join headers of the same name.
        raw = self._pool.urlopen(
            method,
            target,
            headers=headers,
            body=body,
            preload_content=False,
            redirect=False,
            retries=False,
            assert_same_host=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=first_byte_s),
        )
        self._socket = getattr(raw.connection, "noted", None)
        response = Response(raw, self._socket, released)
        if first_byte_s != read_timeout_s:
            response.set_silence(read_timeout_s)
        return response

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class Connections:
    """The connections with the same certificates. Many threads may use them."""

    def __init__(self, new_pool: Callable[[], Any]) -> None:
        """Begin without connections.

        Args:
            new_pool: Returns a new pool of urllib3 for one connection.
        """
        self._new_pool = new_pool
        self._guard = threading.Lock()
        self._idle: list[ApiConnection] = []
        """Those that were used last are at the end."""
        self._kept = KEPT

    def take(self, longest_idle_s: float) -> ApiConnection:
        """Return an open connection that was used in the last seconds, else a new one."""
        # The wall clock also counts the time in which a machine is suspended.
        now = time.time()
        with self._guard:
            # After the clock was set back, no idle time is known.
            is_known = all(one.idle_since <= now for one in self._idle)
            idle = [one for one in self._idle if is_known and now - one.idle_since <= IDLE_S]
            dropped = [one for one in self._idle if one not in idle]
            found = None
            while found is None and idle and now - idle[-1].idle_since <= longest_idle_s:
                last = idle.pop()
                if last.is_open:
                    found = last
                else:
                    dropped.append(last)
            self._idle = idle
        for one in dropped:
            one.close()
        return found or self.new()

    def new(self) -> ApiConnection:
        """Return a new connection."""
        return ApiConnection(self._new_pool())

    def give_back(self, connection: ApiConnection) -> None:
        """Keep a connection whose response was read to its end."""
        connection.idle_since = time.time()
        with self._guard:
            is_kept = len(self._idle) < self._kept
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def close(self) -> None:
        """Close the idle connections, and each other one when its response was read."""
        with self._guard:
            idle, self._idle, self._kept = self._idle, [], 0
        for connection in idle:
            connection.close()
