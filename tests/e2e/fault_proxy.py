"""An HTTP proxy in front of a registry that answers, delays and cuts as a test says, and counts what passes.

Clients use it as the registry (`FaultProxy.host`): it keeps their Host header, so that addresses of uploads lead
through it as well.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.loopback import LoopbackServer

_PIECE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to a request. Several may be given at once."""

    status: int | None = None
    """The proxy answers with it; nothing is forwarded."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of that answer."""
    body: bytes = b""
    cut_request: int | None = None
    """Bytes of the request's body after which both connections are cut. 0: before the registry gets any of it."""
    cut_answer: int | None = None
    """Bytes of the answer's body after which the connection is cut."""
    lose_answer: bool = False
    """The registry does what was asked, and the client gets no answer."""
    delay_s: float = 0.0
    """Seconds before the request is forwarded, and again before its answer is."""


@dataclass(kw_only=True)
class Passing:
    """A request, as it arrived."""

    number: int
    """From 0, in order of arrival."""
    method: str
    path: str
    length: int
    """Bytes of its body, as announced."""
    sent: int = 0
    """Bytes of its body that were forwarded."""
    status: int | None = None
    """The answer of the registry or the proxy. None: the client got none."""


class FaultProxy:
    """Forwards requests to a registry, with faults."""

    def __init__(self, address: str, *, buffered: bool = False) -> None:
        """Listen on loopback.

        Args:
            address: Host and port of the registry.
            buffered: Forward a request only once all of it has arrived, as nginx does.
        """
        self.fault: Callable[[Passing], Fault | None] = lambda passing: None
        """Decides what happens to a request."""
        self.requests: list[Passing] = []
        self.sent = 0
        """Bytes of all bodies of requests that were forwarded."""
        self.received = 0
        """Bytes of all bodies of answers that were forwarded."""
        self.after_bytes: int | None = None
        """Once so many bytes of bodies of requests have arrived, `then` is called, and all is cut. None: never."""
        self.after_requests: int | None = None
        """The same, for requests that arrived."""
        self.then: Callable[[], None] = lambda: None
        self.is_cut = False
        """Whether one of both has happened. Setting it to False ends it."""
        self._address = address
        self._buffered = buffered
        self._arrived = 0
        self._busy = self._open = 0
        self._guard = threading.Condition()
        self._ended = threading.Event()
        self._server = LoopbackServer(type("Handler", (_Handler,), {"proxy": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"

    def settle(self) -> None:
        """After a cut, wait until all connections have ended: what a killed process has sent may still be on its way.

        Clients that live on must have closed theirs.
        """
        assert self.is_cut
        host, _, port = self.host.partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as last:
            # Connections are accepted in order.
            last.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while last.recv(100):
                pass
        with self._guard:
            assert self._guard.wait_for(lambda: not self._open, timeout=60)

    def forget(self) -> None:
        """Once no request is under way, count from zero again, and end all faults."""
        with self._guard:
            assert self._guard.wait_for(lambda: not self._busy, timeout=60)
            self.requests, self.sent, self.received, self._arrived = [], 0, 0, 0
            self.after_bytes = self.after_requests = None
            self.is_cut = False
            self.fault = lambda passing: None

    def count(self, *words: str) -> int:
        """Return how many requests have one of some methods."""
        return sum(each.method in words for each in self.requests)

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _arrive(self, passing: Passing | None, count: int) -> int:
        """Count what arrived. Return how many of the bytes go on; fewer: all is cut after them."""
        with self._guard:
            if self.is_cut:
                return -1
            limit = self.after_bytes
            is_last = passing is not None and self.after_requests == len(self.requests)
            if passing is not None:
                passing.number = len(self.requests)
                self.requests.append(passing)
            left = count if limit is None else min(count, limit - self._arrived)
            self._arrived += left
            if not is_last and (limit is None or self._arrived < limit):
                return left
            self.is_cut = True
        self.then()
        return -1 if is_last else left


class _CutError(OSError):
    """The connections are to be closed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def setup(self) -> None:
        with self.proxy._guard:
            self.proxy._open += 1
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            with self.proxy._guard:
                self.proxy._open -= 1
                self.proxy._guard.notify_all()

    def handle_any(self) -> None:
        guard = self.proxy._guard
        with guard:
            self.proxy._busy += 1
        try:
            self.handle_counted()
        finally:
            with guard:
                self.proxy._busy -= 1
                guard.notify_all()

    do_HEAD = do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def handle_counted(self) -> None:
        passing = Passing(
            number=-1, method=self.command, path=self.path, length=int(self.headers.get("Content-Length") or 0)
        )
        server = http.client.HTTPConnection(self.proxy._address, timeout=60)
        try:
            if self.proxy._arrive(passing, 0) < 0:
                raise _CutError
            fault = self.proxy.fault(passing) or Fault()
            self.pause(fault)
            if fault.status is not None:
                for _ in self.pieces(passing.length):
                    pass
                self.finish_answer(passing, fault.status, fault.headers, fault.body)
                return
            self.forward(server, passing, fault)
        except OSError:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(2)
        finally:
            server.close()

    def pause(self, fault: Fault) -> None:
        if fault.delay_s and self.proxy._ended.wait(fault.delay_s):
            raise _CutError

    def pieces(self, length: int, cut: int | None = None) -> Iterator[bytes]:
        """Yield the body as it arrives."""
        position, end = 0, length if cut is None else min(cut, length)
        while position < end:
            piece = self.rfile.read1(min(_PIECE, end - position))  # type: ignore[attr-defined]
            if not piece:
                raise _CutError
            left = self.proxy._arrive(None, len(piece))
            position += len(piece)
            if left > 0:
                yield piece[:left]
            if left < len(piece) or self.proxy.is_cut:
                raise _CutError
        if end < length:
            raise _CutError

    def forward(self, server: http.client.HTTPConnection, passing: Passing, fault: Fault) -> None:
        pieces = self.pieces(passing.length, fault.cut_request)
        whole = b"".join(pieces) if self.proxy._buffered else None
        if fault.cut_request == 0:
            next(pieces, None)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders()
        for piece in pieces if whole is None else [whole]:
            server.send(piece)
            passing.sent += len(piece)
            with self.proxy._guard:
                self.proxy.sent += len(piece)
        answer = server.getresponse()
        if fault.lose_answer:
            answer.read()
            raise _CutError
        self.pause(fault)
        passing.status = answer.status
        self.send_response_only(answer.status)
        is_sized = answer.getheader("Content-Length") is not None
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        content = b"" if is_sized or self.command == "HEAD" or answer.status == 204 else answer.read()
        if not is_sized and answer.status != 204 and self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        sent = 0
        while piece := answer.read(_PIECE):
            kept = piece if fault.cut_answer is None else piece[: max(fault.cut_answer - sent, 0)]
            self.wfile.write(kept)
            sent += len(kept)
            with self.proxy._guard:
                self.proxy.received += len(kept)
            if len(kept) < len(piece) or self.proxy.is_cut:
                raise _CutError

    def finish_answer(self, passing: Passing, status: int, headers: dict[str, str], body: bytes) -> None:
        passing.status = status
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def fault_proxy(address: str, *, buffered: bool = False) -> Iterator[FaultProxy]:
    """Run a proxy in front of a registry."""
    proxy = FaultProxy(address, buffered=buffered)
    try:
        yield proxy
    finally:
        proxy.close()
