"""Volcano: webhooks that really judge, scheduler, controllers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.local_cluster.api import Api
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok, listens
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit
from tools.local_cluster.webhooks import read_webhooks, refuses, register

_JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
_PROBE: Final = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "probe"},
    "spec": {
        "queue": "no-such-queue",
        "tasks": [
            {
                "name": "probe",
                "replicas": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}},
            }
        ],
    },
}
"""A job that only the webhook refuses."""


def volcano(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield Volcano's parts, if the cluster has it."""
    if "volcano" not in settings.features:
        return
    api = Api.of(layout, settings)
    share = settings.share("volcano")
    webhooks = read_webhooks(share / "volcano-development.yaml")
    yield Step(
        name="webhook-registration",
        run=lambda: register(layout, api, webhooks, _webhook_address(settings)),
        needs=("kube-apiserver",),
    )
    yield _webhook_server(layout, settings, share, webhook_paths(webhooks))
    yield _controllers(layout, settings)
    yield _scheduler(layout, settings, share)
    yield Step(
        name="volcano-judges-jobs",
        run=lambda: None,
        until=lambda: (
            _default_queue_open(api) and refuses(api, _JOBS, _PROBE, "validatejob.volcano.sh", "no-such-queue")
        ),
        needs=("volcano-scheduler", "volcano-controllers", "volcano-admission"),
    )


def webhook_paths(webhooks: list[dict[str, Any]]) -> list[str]:
    """Return the paths that the API server is going to call, such as `/jobs/mutate`."""
    return [hook["clientConfig"]["service"]["path"] for one in webhooks for hook in one["webhooks"]]


def _webhook_address(settings: Settings) -> str:
    return f"https://127.0.0.1:{settings.ports['volcano-admission']}"


def _webhook_server(layout: Layout, settings: Settings, share: Path, paths: list[str]) -> Component:
    made, port = Credentials.of(layout), settings.ports["volcano-admission"]
    health = settings.ports["volcano-admission-health"]
    file = layout.write_config("volcano-admission", "admission.conf", (share / "volcano-admission.conf").read_text())
    command = (
        settings.program("volcano", "vc-webhook-manager"),
        f"--kubeconfig={layout.kubeconfig}",
        f"--admission-conf={file}",
        f"--enabled-admission={','.join(paths)}",
        f"--webhook-url={_webhook_address(settings)}",
        "--listen-address=127.0.0.1",
        f"--port={port}",
        f"--ca-cert-file={made.ca}",
        f"--tls-cert-file={made.certificate}",
        f"--tls-private-key-file={made.key}",
        f"--healthz-address=127.0.0.1:{health}",
        "--graceful-shutdown-time=1s",
        "--logtostderr",
        "-v=2",
    )
    return Component(
        name="volcano-admission",
        command=command,
        ready=lambda: listens(port),
        needs=("custom-resources", "webhook-registration"),
    )


def _controllers(layout: Layout, settings: Settings) -> Component:
    return Component(
        name="volcano-controllers",
        command=(
            settings.program("volcano", "vc-controller-manager"),
            *_shared_flags(layout, settings, "volcano-controllers"),
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ),
        ready=lambda: _healthy(settings, "volcano-controllers"),
        needs=("custom-resources",),
    )


def _scheduler(layout: Layout, settings: Settings, share: Path) -> Component:
    text = (share / "volcano-scheduler.conf").read_text()
    file = layout.write_config("volcano-scheduler", "scheduler.conf", text)
    return Component(
        name="volcano-scheduler",
        command=(
            settings.program("volcano", "vc-scheduler"),
            *_shared_flags(layout, settings, "volcano-scheduler"),
            f"--scheduler-conf={file}",
            "--schedule-period=200ms",
            "--cache-dumper=false",
        ),
        ready=lambda: _healthy(settings, "volcano-scheduler"),
        # It creates the default queue, which the webhooks judge.
        needs=("volcano-admission",),
    )


def _shared_flags(layout: Layout, settings: Settings, name: str) -> Iterator[str]:
    yield f"--kubeconfig={layout.kubeconfig}"
    yield "--leader-elect=false"
    yield "--scheduler-name=volcano"
    yield f"--listen-address=127.0.0.1:{settings.ports[name]}"
    yield "--enable-healthz"
    yield f"--healthz-address=127.0.0.1:{settings.ports[f'{name}-health']}"
    yield "--logtostderr"
    yield "-v=2"


def _healthy(settings: Settings, name: str) -> bool:
    return http_ok(f"http://127.0.0.1:{settings.ports[f'{name}-health']}/healthz")


def _default_queue_open(api: Api) -> bool:
    queue = api.get("/apis/scheduling.volcano.sh/v1beta1/queues/default") or {}
    return bool(queue.get("status", {}).get("state") == "Open")
