"""Controllers of AppWrappers: MCAD for v1beta1, the AppWrapper operator for v1beta2. Never both in one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.local_cluster.api import Api
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit
from tools.local_cluster.webhooks import read_webhooks, refuses, register

_APP_WRAPPERS: Final = "/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers"
_PROBE: Final = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "metadata": {"name": "probe"},
    "spec": {"components": []},
}
"""An AppWrapper that only the operator's webhook refuses."""


def mcad(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield MCAD's controller, if the cluster has it."""
    if "mcad" not in settings.features:
        return
    port = settings.ports["mcad-health"]
    yield Component(
        name="mcad",
        command=(
            settings.program("mcad", "mcad-controller"),
            f"--kubeconfig={layout.kubeconfig}",
            f"--healthProbeListenAddr=127.0.0.1:{port}",
            # How long a job that did not fit stands aside; while it is not, it holds up the whole line.
            "--backofftime=5",
            "-v=2",
        ),
        ready=lambda: http_ok(f"http://127.0.0.1:{port}/healthz"),
        needs=("custom-resources",),
    )


def app_wrapper_operator(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the AppWrapper operator and its webhooks, if the cluster has it."""
    if "appwrapper" not in settings.features:
        return
    api, made = Api.of(layout, settings), Credentials.of(layout)
    health, port = settings.ports["appwrapper-health"], settings.ports["appwrapper-webhook"]
    webhooks = read_webhooks(settings.share("appwrapper") / "manifests.yaml", "appwrapper-")
    yield Component(
        name="appwrapper-operator",
        command=(
            settings.program("appwrapper", "appwrapper-operator"),
            f"--kubeconfig={layout.kubeconfig}",
            f"--health-address=127.0.0.1:{health}",
            f"--webhook-port={port}",
            f"--tls-cert-file={made.certificate}",
            f"--tls-private-key-file={made.key}",
        ),
        ready=lambda: http_ok(f"http://127.0.0.1:{health}/readyz"),
        needs=("custom-resources",),
    )
    yield Step(
        name="appwrapper-webhooks",
        run=lambda: register(layout, api, webhooks, f"https://127.0.0.1:{port}"),
        until=lambda: refuses(api, _APP_WRAPPERS, _PROBE, "vappwrapper.kb.io", "no podspecs"),
        needs=("appwrapper-operator", "namespaces"),
    )
