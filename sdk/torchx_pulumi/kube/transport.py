"""The transport protocol of requests to an API server, and one shared transport for each access.

urllib3 is sufficient for all fields of a kubeconfig. The official client is used only if a caller passes one: its
import takes longer than all requests of a command.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from torchx_pulumi.kube.kubeconfig import Access

CONNECT_TIMEOUT_S = 5.0
"""Timeout of a connection attempt."""

READ_TIMEOUT_S = 30.0
"""Timeout between two reads of a response. A followed log has no such limit."""

Query = Sequence[tuple[str, str]]


def content_type(method: str) -> str:
    """Return the media type of a request's body."""
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


class Response:
    """The response to a request. Its body is not read yet."""

    def __init__(self, raw: Any, connection: Any, released: Callable[[], None] = lambda: None) -> None:
        """Wrap a response of urllib3.

        Args:
            raw: The response.
            connection: The socket from which it is read. None: it is not known.
            released: Called when the body was read to its end: the connection can serve again.
        """
        self.status = int(raw.status)
        self.socket = connection
        self._raw = raw
        self._released = released

    @property
    def data(self) -> bytes:
        """The whole body. An interrupted connection raises errors of urllib3 and OSError, here and in `blocks`."""
        data: bytes = self._raw.data
        self._release()
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield the body in the parts in which it is received."""
        yield from self._raw.stream(amt=None, decode_content=False)
        self._release()

    def _release(self) -> None:
        self._raw.release_conn()
        self._released()

    def set_silence(self, seconds: float | None) -> None:
        """Set the timeout between two further reads. None: no limit."""
        # The server may have closed the connection after a short body.
        with suppress(OSError):
            if self.socket is not None:
                self.socket.settimeout(seconds)

    def close(self) -> None:
        """Close the connection and end the wait of other threads, which closing alone does not do."""
        # TLS within the TLS of a proxy wraps the socket. The server may have closed it first.
        plain = getattr(self.socket, "socket", self.socket)
        with suppress(OSError):
            if plain is not None:
                plain.shutdown(socket.SHUT_RDWR)
        self._raw.close()
        self._raw.release_conn()


class Transport(Protocol):
    """Sends requests to one API server. Many threads may use it."""

    def request(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        accept: str = "application/json",
        read_timeout_s: float | None = READ_TIMEOUT_S,
    ) -> Response:
        """Send a request and return its response. An error status is not raised.

        Args:
            method: GET, POST, PUT, PATCH (a merge patch) or DELETE.
            path: Path on the server, quoted.
            query: Parameters.
            body: Value that is sent as JSON. None: no body.
            accept: Media type of the response.
            read_timeout_s: Timeout between two reads. None: no limit.

        Raises:
            ClusterError: Credentials cannot be read.
            OSError: No connection. Errors of urllib3 are raised as well.
        """
        ...


_transports: dict[tuple[Access, int], Transport] = {}
"""One transport, and so one pool of connections, for each access and process."""


def transport_of(access: Access) -> Transport:
    """Return the shared transport of an access. It is created at the first use.

    Raises:
        ClusterError: The kubeconfig cannot be used.
    """
    # Processes must not share a connection after a fork.
    key = (access, os.getpid())
    if key not in _transports:
        from torchx_pulumi.kube.http_client import HttpClient

        # Threads may create several transports at once, which make no connection. All use the same one.
        _transports.setdefault(key, HttpClient(access))
    return _transports[key]


def urllib3() -> Any:
    """Import urllib3 on demand: commands without requests do not need it."""
    return importlib.import_module("urllib3")
