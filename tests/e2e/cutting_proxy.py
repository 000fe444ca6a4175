"""A TCP proxy before an API server that cuts connections where a test says."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from torchx_pulumi.kube.kubeconfig import find_access

from tests.loopback import LoopbackProxy


class CuttingProxy(LoopbackProxy):
    """Forwards connections. Each ends after the bytes of answers that `limits` has for it; 0 lets none through."""

    def __init__(self, host: str, port: int, limits: list[int]) -> None:
        self._target = (host, port)
        self._limits = limits
        self.cuts = 0
        super().__init__()

    def _start(self, client: socket.socket) -> None:
        self._run(self._serve, client, self._limits.pop(0) if self._limits else None)

    def _serve(self, client: socket.socket, limit: int | None = None) -> None:
        try:
            server = self._connect(self._target)
        except OSError:
            client.close()
            return
        self._run(self._forward, client, server, None)
        self._forward(server, client, limit)

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


@contextmanager
def cutting_proxy(kubeconfig: str, limits: list[int]) -> Iterator[tuple[CuttingProxy, str]]:
    """Start a proxy before a cluster; gives it, and a kubeconfig whose way leads through it."""
    access = find_access(kubeconfig)
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
