"""The Service `kubernetes`: the API server at the address where pods look for it.

The API server listens on loopback only, and there is no kube-proxy. Its Service has the bridge's own address, on which
socat takes connections and passes them on. The addresses of other Services lead nowhere; headless ones are names only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.local_cluster.addresses import API_PORT
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit

_LISTEN: Final = "reuseaddr,fork,backlog=128,nodelay,keepalive,keepidle=30,keepintvl=10,keepcnt=3"
"""A pod that is killed closes nothing: the kernel finds within a minute that it is gone."""


def kubernetes_service(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield what passes connections of pods on to the API server, if there are real pods."""
    if "socat" not in settings.parts:
        return
    made = Credentials.of(layout)
    yield Component(
        name="kubernetes-service",
        command=(
            settings.program("socat"),
            f"TCP4-LISTEN:{API_PORT},bind={settings.gateway},{_LISTEN}",
            f"TCP4:127.0.0.1:{settings.ports['kube-apiserver']},nodelay",
        ),
        ready=lambda: http_ok(f"https://{settings.gateway}:{API_PORT}/readyz", made),
        needs=("kube-apiserver", "pods-network"),
    )
