"""The image registry: Debian's docker-registry on loopback, without log-in, filled from the cache of images."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit


def registry(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the registry, if there is one."""
    if settings.registry is None:
        return
    port = settings.ports["registry"]
    content = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(layout.data / "registry")},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    file = layout.write_config("registry", "config.yml", json.dumps(content))  # JSON is YAML
    yield Component(
        name="registry",
        command=(settings.program("registry", "docker-registry"), "serve", str(file)),
        ready=lambda: http_ok(f"http://127.0.0.1:{port}/v2/"),
    )
