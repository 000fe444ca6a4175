"""Pools whose requests are not held up by a connection that was dropped without a word, as load balancers do.

| What | Bound |
|---|---|
| a connection that was idle for longer is not used again | 30 s; 5 s for what must not be sent twice |
| the other side's machine no longer answers (keepalive) | 25 s on Linux, 35 s elsewhere; also while a log is followed |
| first answer to a GET on a connection that was used before | 10 s; then once more on a new one |
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.kube.transport import urllib3

IDLE_S = 30.0
"""Longest idle time after which a connection is used again."""

SHORT_IDLE_S = 5.0
"""The same for requests that are sent once only."""

NEVER_S = -1.0
"""Idle time that no connection has: a new one is made."""

FIRST_ANSWER = 1 / 3
"""Share of a request's timeout in which the answer begins on a connection that was used before: 10 s of 30 s."""

PROBE_AFTER_S = 20
"""Silence after which the system asks the other side whether it is there."""

PROBE_EVERY_S = 5
PROBES = 3


class Lane(threading.local):
    """What this thread's request asks of its connection, and what it got."""

    longest_idle_s = IDLE_S
    first_answer_s: float | None = None
    """None: no limit but the request's own."""
    reused = False
    """The connection served another request before."""


def socket_options() -> list[tuple[int, int, int]]:
    """Return urllib3's own option, and those by which the system finds out that the other side is gone."""
    named = (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPALIVE", PROBE_AFTER_S),  # macOS
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", PROBE_AFTER_S * 1000),  # Linux: also while something was sent and not confirmed
    )
    found = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named if hasattr(socket, name)]
    return [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]


def pools(lane: Lane) -> Mapping[str, type]:
    """Return the classes of pools, by scheme, that keep to what a lane says."""
    own = urllib3().connectionpool
    return {"http": _bounded(own.HTTPConnectionPool, lane), "https": _bounded(own.HTTPSConnectionPool, lane)}


def _bounded(pool: Any, lane: Lane) -> type:
    class Bounded(pool):  # type: ignore[misc]
        """Both releases of urllib3 take connections, return them and use them through these methods."""

        def _get_conn(self, timeout: float | None = None) -> Any:
            connection = super()._get_conn(timeout)
            # The wall clock: others stand still while a laptop sleeps.
            idle_s = time.time() - getattr(connection, "idle_since", 0.0)
            if getattr(connection, "sock", None) is not None and not 0 <= idle_s <= lane.longest_idle_s:
                connection.close()
                connection = self._new_conn()
            lane.reused = getattr(connection, "sock", None) is not None
            return connection

        def _put_conn(self, conn: Any) -> None:
            if conn is not None:
                conn.idle_since = time.time()
            super()._put_conn(conn)

        def _make_request(self, conn: Any, method: str, url: str, *args: Any, timeout: Any, **kwargs: Any) -> Any:
            limit_s = lane.first_answer_s if lane.reused else None
            if limit_s is None:
                return super()._make_request(conn, method, url, *args, timeout=timeout, **kwargs)
            short = urllib3().Timeout(connect=timeout.connect_timeout, read=limit_s)
            made = super()._make_request(conn, method, url, *args, timeout=short, **kwargs)
            if conn.sock is not None:
                conn.sock.settimeout(timeout.read_timeout)
            return made

    # Messages of urllib3 begin with the name of the class.
    Bounded.__name__ = pool.__name__
    return Bounded
