"""Servers of this process for tests of connections: an API server with or without TLS, and an HTTP proxy."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any

Config = dict[str, Any]

NAME = "api.cluster.test"
"""A name in the server's certificate that leads nowhere but through a proxy."""

Answer = tuple[int, Any]


class LoopbackServer(http.server.ThreadingHTTPServer):
    """Serves HTTP on a port of loopback, a free one unless it is named; each connection has a thread."""

    # With Python's 5 the kernel drops what arrives at once beyond that; such a client connects or asks seconds later.
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, handler: Callable[..., http.server.BaseHTTPRequestHandler], port: int = 0, host: str = "127.0.0.1"
    ) -> None:
        super().__init__((host, port), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Send a body at once after its head, not when the client has acknowledged the head 40 ms later."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def handle_error(self, *args: Any) -> None:
        """Report what is wrong with a handler, not that a client hung up."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*args)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Reserve a loopback port that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


class Certificates:
    """An authority, a server's certificate for loopback, and as many clients as are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign", "-keyout", "ca.key", "-out", "ca.crt",
        )  # fmt: skip
        self.server = self.make("server", f"subjectAltName=IP:127.0.0.1,DNS:{NAME}")

    @property
    def authority(self) -> bytes:
        return (self.folder / "ca.crt").read_bytes()

    def make(self, name: str, extension: str = "extendedKeyUsage=clientAuth") -> Path:
        """Make a certificate for a name; the file holds its key as well."""
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        # Python 3.13 asks clients for what RFC 5280 requires: this, and the use of the authority's key.
        (self.folder / f"{name}.ext").write_text(f"{extension}\nauthorityKeyIdentifier=keyid\n")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt",
        )  # fmt: skip
        pair = self.folder / f"{name}.pem"
        pair.write_bytes(self.certificate(name) + self.key(name))
        return pair

    def certificate(self, name: str) -> bytes:
        return (self.folder / f"{name}.crt").read_bytes()

    def key(self, name: str) -> bytes:
        return (self.folder / f"{name}.key").read_bytes()

    def context(self, *, clients: bool = True) -> ssl.SSLContext:
        """TLS of a server; with `clients` it asks them for a certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.authority.decode())
        context.verify_mode = ssl.CERT_OPTIONAL if clients else ssl.CERT_NONE
        context.load_cert_chain(self.server)
        return context

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


@dataclass
class Asked:
    """A request that arrived."""

    method: str
    path: str
    headers: Message
    name: str | None
    """Common name in the client's certificate."""

    @property
    def authorization(self) -> str | None:
        return self.headers.get("Authorization")


def always_fine(asked: Asked) -> Answer:
    return 200, {}


@dataclass
class ApiServer:
    """Answers what a test wants, and remembers what it was asked."""

    answer: Callable[[Asked], Answer] = always_fine
    context: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _open: set[int] = field(default_factory=set)
    _dead: set[int] = field(default_factory=set)
    _ended: threading.Event = field(default_factory=threading.Event)

    def forget(self) -> None:
        """Drop the open connections without a word, as a load balancer does."""
        self._dead |= self._open

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http{'s' if self.context else ''}://{host}:{self.port}"

    def config(self, user: Config | None = None, *, host: str = "127.0.0.1", **cluster: Any) -> Config:
        """A kubeconfig whose context `lab` leads here."""
        return {
            "clusters": [{"name": "c", "cluster": {"server": self.url(host), **cluster}}],
            "users": [{"name": "u", "user": {"token": "hush"} if user is None else user}],
            "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "lab",
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[ApiServer]:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                owner.connections += 1
                super().setup()
                owner._open.add(id(self))

            def finish(self) -> None:
                owner._open.discard(id(self))
                super().finish()

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                shown = self.connection.getpeercert() if owner.context else None  # type: ignore[attr-defined]
                name = dict(pair[0] for pair in shown["subject"])["commonName"] if shown else None
                asked = Asked(self.command, self.path, self.headers, name)
                owner.asked.append(asked)
                if id(self) in owner._dead:
                    owner._ended.wait(30)
                    self.close_connection = True
                    return
                code, body = owner.answer(asked)
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_DELETE = do_GET

            def log_message(self, *args: Any) -> None:
                """Stay silent."""

        server = LoopbackServer(Handler)
        self.port = server.server_port
        if self.context is not None:
            server.socket = self.context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            server.shutdown()
            server.server_close()
            thread.join(10)


class LoopbackProxy:
    """Accepts connections on loopback; subclasses serve each of them in a thread."""

    def __init__(self) -> None:
        self._ends: list[socket.socket] = []
        """Sockets to close at the end."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._ends.append(client)
            self._start(client)

    def _start(self, client: socket.socket) -> None:
        """Serve a connection in a thread. Called in the order of the connections."""
        self._run(self._serve, client)

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _connect(self, target: tuple[str, int]) -> socket.socket:
        """Connect to the server behind the proxy."""
        server = socket.create_connection(target, timeout=30)
        server.settimeout(None)
        self._ends.append(server)
        return server

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections and threads."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end(*self._ends)
        for thread in self._threads:
            thread.join(10)
        for end in self._ends:
            end.close()


class HttpProxy(LoopbackProxy):
    """Tunnels every CONNECT to one address, for any requested name, and forwards other requests there as well."""

    def __init__(
        self, target: tuple[str, int], *, password: str | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self._target = target
        self._password = password
        self._context = context
        self.asked: list[str] = []
        """First line of each request, in order."""
        super().__init__()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                client = self._context.wrap_socket(client, server_side=True)
                self._ends.append(client)
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            first, *lines = head.decode("latin-1").split("\r\n")
            self.asked.append(first)
            wanted = base64.b64encode(f"me:{self._password}".encode()).decode()
            if self._password is not None and f"proxy-authorization: basic {wanted}".lower() not in [
                line.lower() for line in lines
            ]:
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                client.close()
                return
            server = self._connect(self._target)
            if first.startswith("CONNECT "):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                method, url, version = first.split(" ")
                path = "/" + url.split("/", 3)[3]
                server.sendall("\r\n".join([f"{method} {path} {version}", *lines]).encode("latin-1"))
            self._run(self._forward, client, server)
            self._forward(server, client)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._end(source, sink)


@contextlib.contextmanager
def http_proxy(target: tuple[str, int], **more: Any) -> Iterator[HttpProxy]:
    """Run a proxy."""
    proxy = HttpProxy(target, **more)
    try:
        yield proxy
    finally:
        proxy.close()
