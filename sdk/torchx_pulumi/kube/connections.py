"""Connection pools that detect connections which a load balancer dropped without closing them.

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
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.kube.transport import urllib3

IDLE_S = 30.0
"""Longest idle time of a connection that is used again."""

SHORT_IDLE_S = 5.0
"""The same for requests that must not be sent twice."""

NEVER_S = -1.0
"""Idle time that forces a new connection."""

FIRST_BYTE_SHARE = 1 / 3
"""Share of a request's timeout for the first byte of the response on a reused connection: 10 s of 30 s."""

PROBE_AFTER_S = 20
"""Silence after which the system sends TCP keepalive probes."""

PROBE_EVERY_S = 5
PROBES = 3


class RequestBounds(threading.local):
    """Bounds of this thread's request, and whether its connection is reused."""

    longest_idle_s = IDLE_S
    first_byte_s: float | None = None
    """None: the timeout of the request."""
    reused = False
    """The connection served another request before."""


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


def pools(bounds: RequestBounds) -> Mapping[str, type]:
    """Return the pool classes by scheme, which apply the bounds of the current request."""
    own = urllib3().connectionpool
    return {"http": _bounded(own.HTTPConnectionPool, bounds), "https": _bounded(own.HTTPSConnectionPool, bounds)}


def _bounded(pool: Any, bounds: RequestBounds) -> type:
    class Bounded(pool):  # type: ignore[misc]
        """Overrides the methods by which urllib3 1 and 2 take, return and use connections."""

        def _get_conn(self, timeout: float | None = None) -> Any:
            connection = super()._get_conn(timeout)
            # The wall clock also counts the time in which a machine is suspended.
            idle_s = time.time() - getattr(connection, "idle_since", 0.0)
            if getattr(connection, "sock", None) is not None and not 0 <= idle_s <= bounds.longest_idle_s:
                connection.close()
                connection = self._new_conn()
            bounds.reused = getattr(connection, "sock", None) is not None
            return connection

        def _put_conn(self, conn: Any) -> None:
            if conn is not None and self.pool is not None and self.pool.full():
                # More watches and logs were open at once than connections are kept: urllib3 would warn about each.
                conn.close()
                return
            if conn is not None:
                conn.idle_since = time.time()
            super()._put_conn(conn)

        def _make_request(self, conn: Any, method: str, url: str, *args: Any, timeout: Any, **kwargs: Any) -> Any:
            limit_s = bounds.first_byte_s if bounds.reused else None
            if limit_s is None:
                return super()._make_request(conn, method, url, *args, timeout=timeout, **kwargs)
            short = urllib3().Timeout(connect=timeout.connect_timeout, read=limit_s)
            made = super()._make_request(conn, method, url, *args, timeout=short, **kwargs)
            if conn.sock is not None:
                conn.sock.settimeout(timeout.read_timeout)
            return made

    # Messages of urllib3 begin with the class name.
    Bounded.__name__ = pool.__name__
    return Bounded
