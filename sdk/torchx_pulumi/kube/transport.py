"""Requests to an API server: the transport protocol, responses and errors.

urllib3 is sufficient for all fields of a kubeconfig. The official client is used only if a caller passes one: its
import takes longer than all requests of a command.
"""

from __future__ import annotations

import importlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import EXPIRED
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import text_at

CONNECT_TIMEOUT_S = 5.0
"""Timeout of a connection attempt."""

READ_TIMEOUT_S = 30.0
"""Timeout between two reads of a response. A followed log has no such limit."""

SHOWN = 500
"""Characters of a body that are shown if it is not a Kubernetes status: proxies send whole pages."""

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to an API server."""

    method: str
    """GET, POST, PUT, PATCH (a merge patch) or DELETE."""
    path: str
    """Path on the server, quoted."""
    query: Query = ()
    body: Any = None
    """Value that is sent as JSON. None: no body."""
    accept: str = "application/json"
    """Media type of the response."""
    read_timeout_s: float | None = READ_TIMEOUT_S
    """Timeout between two reads. None: no limit."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that state the media types."""
        sent = "application/merge-patch+json" if self.method == "PATCH" else "application/json"
        return {"Accept": self.accept} | ({} if self.body is None else {"Content-Type": sent})


class Response:
    """The response to a request. Its body is not read yet."""

    def __init__(self, raw: Any, connection: Any, released: Callable[[], None] = lambda: None) -> None:
        self.status = int(raw.status)
        self.socket = connection
        """The socket from which it is read, if known."""
        self._raw = raw
        """The response of urllib3."""
        self._released = released
        """Called when the body was read to its end: the connection can serve again."""

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
        # Its pool is not used again. The thread that reads may be giving the connection back to it just now.
        self._raw.close()


class Transport(Protocol):
    """Sends requests to one API server. Many threads may use it."""

    def request(self, request: ApiRequest) -> Response:
        """Send a request and return its response. An error status is not raised.

        Raises:
            ClusterError: Credentials cannot be read.
            OSError: No connection. Errors of urllib3 are raised as well.
        """


def urllib3() -> Any:
    """Import urllib3 on demand: commands without requests do not need it."""
    return importlib.import_module("urllib3")


def response_error(
    status: int, body: bytes, where: str, kind: Kind | None, *, absence_is_fine: bool = True
) -> ClusterError | None:
    """Return the error of a response, or None if the requested object is absent.

    Paths that every API server has are of no `kind`. Without `absence_is_fine`, an absent object is an error.
    """
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    message = (text_at(answer, "message") or text[:SHOWN]).strip()
    reason = text_at(answer, "reason") or ""
    answered, retryable = f"{where} answered {status}: {message}", status == 429 or status >= 500
    named = text_at(answer, "details", "name")
    if status == 404 and (absence_is_fine or not named):
        if kind is None or named:
            return None
        absent = f"{kind.installed_by} is not installed there" if kind.installed_by else "its definition is absent"
        unserved = f"{where} does not serve {kind.kind} ({kind.api_version})"
        answered, reason = f"{unserved}: {absent}; install it, or choose another cluster", "NotServed"
    elif status == 401:
        answered = f"{where} does not accept the credentials of this kubeconfig: {message}; log in again"
        # A proxy in front of an API server sends no Kubernetes status.
        reason = reason or "Unauthorized"
    elif status == 403:
        answered = f"{where} forbids it: {message}; ask its administrator for the permission"
        reason = reason or "Forbidden"
    elif status == 410 or (status == 504 and "Too large resource version" in message):
        # Older API servers say `Gone`. The version is too large if the cluster was restored from a backup.
        answered, retryable, reason = f"{where} answered 410: {message}", True, EXPIRED
    elif status == 400 and "waiting to start" in message:
        answered, retryable, reason = f"{message} (at {where})", True, "NotStarted"
    return ClusterError(answered, retryable=retryable, reason=reason)


def connection_error(error: BaseException, where: str) -> ClusterError:
    """Return the error of a failed connection."""
    cause = getattr(error, "reason", None) or error
    inner = cause.args[0] if cause.args else None
    # Older releases of urllib3 compare host names themselves and raise their own error. Others are interruptions.
    is_distrusted = isinstance(inner, ssl.SSLCertVerificationError) or type(inner).__name__ == "CertificateError"
    if is_distrusted and isinstance(cause, urllib3().exceptions.SSLError):
        return ClusterError(f"{where} shows a certificate that the kubeconfig does not trust: {cause}")
    text = str(cause).rpartition(">: ")[2] or type(cause).__name__
    return ClusterError(
        f"{where} cannot be reached: {text}; check that it runs and that the context is the right one",
        retryable=True,
        reason="Silent" if isinstance(error, urllib3().exceptions.ReadTimeoutError) else "Unreachable",
    )
