"""An API server of this process that lists and watches the objects of a `FakeCluster` over HTTP, with faults."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.errors import ClusterError

from tests.fakes import FakeCluster
from tests.loopback import ApiServer, LoopbackServer

CODES = {"Forbidden": 403, "Expired": 410, "NotServed": 404}
PATHS = {"/api/v1/pods": kinds.POD, "/api/v1/events": kinds.EVENT, "/api/v1/services": kinds.SERVICE}


class WatchServer:
    """Serves a fake cluster. It can stop, start again at the same port, cut its streams, and fall silent."""

    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake
        self.asked: list[str] = []
        self.silent = threading.Event()
        """No event is sent while it is set."""
        self.page_size = 500
        self.broken: str | None = None
        """Text that each watch sends first instead of an event."""
        self.port = 0
        self._server: Any = None
        self._streams: set[socket.socket] = set()
        self._stopping = threading.Event()

    def cluster(self) -> KubernetesCluster:
        config = ApiServer(port=self.port).config()
        return KubernetesCluster.connect(json.dumps(config))

    def count(self, text: str) -> int:
        return sum(text in asked for asked in self.asked)

    def start(self) -> None:
        owner = self
        self._stopping = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                owner._streams.add(self.request)

            def finish(self) -> None:
                owner._streams.discard(self.request)
                with contextlib.suppress(OSError):
                    super().finish()

            def do_GET(self) -> None:
                owner.asked.append(self.path)
                owner._answer(self)

            def log_message(self, *args: Any) -> None:
                """Stay silent."""

        self._server = LoopbackServer(Handler, self.port)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def cut(self) -> None:
        """End all connections, also within an event."""
        for stream in [*self._streams]:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        self.fake.end_watches()

    def _answer(self, handler: Any) -> None:
        address = urlsplit(handler.path)
        query = dict(parse_qsl(address.query))
        kind, namespace, name = _target(address.path)
        pairs = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
        selector = {key: value if equals else None for key, equals, value in pairs}
        if kind is None:
            self._send(handler, 404, {})
            return
        try:
            if name is not None:
                found = self.fake.get(kind, namespace, name)
                self._send(handler, 200 if found else 404, found or {"details": {"name": name}})
            elif "watch" in query:
                self._stream(handler, kind, namespace, selector, query["resourceVersion"])
            else:
                listed, version = self.fake.list_versioned(kind, namespace, selector)
                self._send(handler, 200, self._page(listed, version, int(query.get("continue", "0"))))
        except ClusterError as error:
            self._send(handler, CODES.get(error.reason, 500), _status(error))

    def _page(self, found: list[Any], version: str, start: int) -> Any:
        end = start + self.page_size
        more = {"continue": str(end)} if end < len(found) else {}
        items = [{key: value for key, value in one.items() if key not in ("apiVersion", "kind")} for one in found]
        return {"kind": "List", "metadata": {"resourceVersion": version, **more}, "items": items[start:end]}

    def _send(self, handler: Any, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _stream(self, handler: Any, kind: Kind, namespace: str | None, selector: Any, version: str) -> None:
        events = self.fake.watch(kind, namespace, selector, version=version)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.flush()
        if self.broken is not None:
            self._chunk(handler, self.broken)
        try:
            for event in events:
                while self.silent.is_set() and not self._stopping.wait(0.02):
                    pass
                self._chunk(handler, json.dumps({"type": event.type, "object": event.object}) + "\n")
        except ClusterError as error:
            self._chunk(handler, json.dumps({"type": "ERROR", "object": _status(error)}) + "\n")
        handler.wfile.write(b"0\r\n\r\n")

    def _chunk(self, handler: Any, text: str) -> None:
        data = text.encode()
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _target(path: str) -> tuple[Kind | None, str | None, str | None]:
    """Return kind, namespace and name of a path."""
    _, api, version, *parts = path.split("/")
    namespace = parts[1] if parts[0] == "namespaces" else None
    plural, *name = parts[2:] if namespace else parts
    return PATHS.get(f"/{api}/{version}/{plural}"), namespace, name[0] if name else None


def _status(error: ClusterError) -> Any:
    code = CODES.get(error.reason, 500)
    return {"kind": "Status", "code": code, "message": str(error), "reason": error.reason or "InternalError"}


@contextlib.contextmanager
def watch_server(fake: FakeCluster) -> Iterator[WatchServer]:
    server = WatchServer(fake)
    server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(Exception):
            server.stop()
