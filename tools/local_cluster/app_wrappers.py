"""Controllers of AppWrappers: MCAD for v1beta1, the AppWrapper operator for v1beta2. Never both in one cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tools.local_cluster.api import Api
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit

OPERATOR_NAMESPACE: Final = "kube-system"
OPERATOR_CONFIG: Final = "appwrapper-operator-config"
"""ConfigMap that the operator reads at its start."""


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
    """Yield the AppWrapper operator, if the cluster has it.

    Its webhooks are left out: they listen on a port that cannot be chosen.
    """
    if "appwrapper" not in settings.features:
        return
    api, port = Api.of(layout, settings), settings.ports["appwrapper-health"]
    yield Step(
        name="appwrapper-configuration",
        run=lambda: api.create(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps", _operator_config(port)),
        needs=("namespaces",),
    )
    yield Component(
        name="appwrapper-operator",
        command=(
            settings.program("appwrapper", "appwrapper-operator"),
            f"--kubeconfig={layout.kubeconfig}",
            f"--config={OPERATOR_CONFIG}",
        ),
        ready=lambda: http_ok(f"http://127.0.0.1:{port}/healthz"),
        needs=("custom-resources", "appwrapper-configuration"),
        environment={"NAMESPACE": OPERATOR_NAMESPACE},
    )


def _operator_config(port: int) -> dict[str, object]:
    content = {
        "controllerManager": {
            "health": {"bindAddress": f"127.0.0.1:{port}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": False,
        },
        "webhooksEnabled": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": OPERATOR_CONFIG},
        "data": {"config.yaml": json.dumps(content)},
    }
