"""The default scheduler: it binds the pods of AppWrappers, as Volcano's scheduler binds its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Unit

COSCHEDULER: Final = "coscheduler"
"""Name by which a pod asks for the profile that knows PodGroups."""

PERMIT_WAIT_S: Final = 10
"""Seconds that the pods of a gang hold their places for each other."""


def default_scheduler(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield the scheduler, if a feature needs it: that of Kubernetes, or one that has gangs beside it."""
    if gangs := "scheduler-plugins" in settings.parts:
        program = settings.program("scheduler-plugins", "coscheduler")
    elif "kube-scheduler" in settings.parts:
        program = settings.program("kube-scheduler")
    else:
        return
    made, port = Credentials.of(layout), settings.ports["kube-scheduler"]
    content = configuration(layout, gangs=gangs)
    file = layout.write_config("kube-scheduler", "config.json", json.dumps(content, indent=2))
    yield Component(
        name="kube-scheduler",
        command=(
            program,
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


def configuration(layout: Layout, *, gangs: bool) -> dict[str, Any]:
    """Return the scheduler's configuration, with a second profile for gangs or without."""
    plugin = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}
    plain = [{"schedulerName": "default-scheduler"}]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig), "qps": 200, "burst": 400},
        "profiles": [_gang_profile("default-scheduler", {}), _gang_profile(COSCHEDULER, plugin)] if gangs else plain,
    }


def _gang_profile(name: str, plugins: Mapping[str, object]) -> dict[str, object]:
    # All profiles share one queue, so they must sort it alike, and with the same arguments.
    sort = {"queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}}
    arguments = [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": PERMIT_WAIT_S}}]
    return {"schedulerName": name, "plugins": {**plugins, **sort}, "pluginConfig": arguments}
