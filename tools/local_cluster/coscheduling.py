"""The default scheduler, with gangs: it binds the pods of AppWrappers, as Volcano's scheduler binds its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit

COSCHEDULER: Final = "coscheduler"
"""Name by which a pod asks for the profile that knows PodGroups."""

PERMIT_WAIT_S: Final = 10
"""Seconds that the pods of a gang hold their places for each other."""


def coscheduling(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the scheduler, if a feature needs it."""
    if "scheduler-plugins" not in settings.parts:
        return
    made, port = Credentials.of(layout), settings.ports["kube-scheduler"]
    text = json.dumps(_configuration(layout), indent=2)
    file = layout.write_config("kube-scheduler", "config.json", text)
    yield Component(
        name="kube-scheduler",
        command=(
            settings.program("scheduler-plugins", "kube-scheduler"),
            f"--config={file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={made.certificate}",
            f"--tls-private-key-file={made.key}",
            # A gang that was refused is tried again by time alone: the plugin does not hear of room that is made.
            "--pod-max-in-unschedulable-pods-duration=5s",
            "-v=2",
        ),
        ready=lambda: http_ok(f"https://127.0.0.1:{port}/healthz", made),
        needs=("custom-resources",),
    )


def _configuration(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig), "qps": 200, "burst": 400},
        "profiles": [
            _profile("default-scheduler", {}),
            _profile(COSCHEDULER, {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}),
        ],
    }


def _profile(name: str, plugins: dict[str, object]) -> dict[str, object]:
    # All profiles share one queue, so they must sort it alike, and with the same arguments.
    sort = {"queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}}
    arguments = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": PERMIT_WAIT_S}}]
    return {"schedulerName": name, "plugins": {**plugins, **sort}, "pluginConfig": arguments}
