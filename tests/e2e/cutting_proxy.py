"""A TCP proxy before an API server that cuts connections where a test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from torchx_pulumi.kube.kubeconfig import find_access


class CuttingProxy:
    """Forwards connections; each ends after as many bytes of answers as `limits` has for it; 0 lets none through."""

    def __init__(self, host: str, port: int, limits: list[int]) -> None:
        self._target = (host, port)
        self._limits = limits
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cuts = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=30)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._open |= {client, server}
                limit = self._limits.pop(0) if self._limits else None
            for source, sink, most in ((client, server, None), (server, client, limit)):
                thread = threading.Thread(target=self._forward, args=(source, sink, most), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(512):
                passed += len(data)
                if limit != 0:
                    sink.sendall(data)
                if limit is not None and passed > limit:
                    break
        self.cuts += limit is not None and passed > limit
        self._end(source, sink)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._end(*self._open)
        for thread in self._threads:
            thread.join(10)
        for end in self._open:
            end.close()


@contextmanager
def cutting_proxy(kubeconfig: str, limits: list[int]) -> Iterator[tuple[CuttingProxy, str]]:
    """Start a proxy before a cluster; gives it, and a kubeconfig whose way leads through it."""
    access = find_access(kubeconfig)
    assert access.config is not None
    config = json.loads(access.config)
    (item,) = config["clusters"]
    server = urlsplit(item["cluster"]["server"])
    assert server.hostname is not None
    assert server.port is not None
    proxy = CuttingProxy(server.hostname, server.port, limits)
    item["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    try:
        yield proxy, json.dumps(config)
    finally:
        proxy.close()
