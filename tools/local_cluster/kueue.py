"""Kueue, which admits AppWrappers, JobSets, Jobs and pods by quota."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tools.local_cluster import private_mounts
from tools.local_cluster.api import Api
from tools.local_cluster.certificates import Credentials
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit
from tools.local_cluster.webhooks import client, read_webhooks, refuses, register

NAMESPACE: Final = "kueue-system"
FRAMEWORKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "batch/job": "job",
        "jobset.x-k8s.io/jobset": "jobset",
        "workload.codeflare.dev/appwrapper": "appwrapper",
        "pod": "pod",
    }
)
"""What it admits, and the name of the webhooks for that."""
CONVERTED: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Its resources that differ between their versions."""
_CERTIFICATES: Final = "kueue/metrics/certs"
"""Where it wants a certificate for its metrics, below `/etc`, whether it has any or not."""
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_FLAVORS: Final = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
_SYSTEM: Final = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}


def kueue(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield Kueue and its webhooks, if the cluster has it."""
    if "kueue" not in settings.features:
        return
    api, health = Api.of(layout, settings), settings.ports["kueue-health"]
    address = f"https://127.0.0.1:{settings.ports['kueue-webhook']}"
    etc = layout.config / "kueue" / "etc"
    webhooks = [*of_frameworks(read_webhooks(settings.share("kueue") / "manifests.yaml", "kueue-"))]
    file = layout.write_config("kueue", "config.json", json.dumps(configuration(settings), indent=2))

    def prepare() -> None:
        (etc / _CERTIFICATES).mkdir(parents=True, exist_ok=True)
        made = Credentials.of(layout)
        shutil.copyfile(made.certificate, etc / _CERTIFICATES / "tls.crt")
        shutil.copyfile(made.key, etc / _CERTIFICATES / "tls.key")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        api.create("/api/v1/namespaces", namespace)
        webhook = {
            "clientConfig": client(f"{address}/convert", made.ca.read_bytes()),
            "conversionReviewVersions": ["v1"],
        }
        patch = json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}).encode()
        for plural in CONVERTED:
            api.request("PATCH", f"{_DEFINITIONS}/{plural}.kueue.x-k8s.io", patch, kind="merge-patch+json")

    yield Step(name="kueue-preparation", run=prepare, needs=("custom-resources",))
    yield Component(
        name="kueue",
        command=private_mounts.replacing_etc(etc, settings.program("kueue"), f"--config={file}", "--zap-log-level=2"),
        ready=lambda: http_ok(f"http://127.0.0.1:{health}/readyz"),
        needs=("kueue-preparation",),
        environment={"KUBECONFIG": str(layout.kubeconfig)},
    )
    yield Step(
        name="kueue-webhooks",
        run=lambda: register(layout, api, webhooks, address),
        until=lambda: _changes(api) and refuses(api, _FLAVORS, _flavor("no label"), "vresourceflavor.kb.io"),
        needs=("kueue",),
    )


def configuration(settings: Settings) -> dict[str, Any]:
    """Return its configuration: without leader election and certificates of its own, and without an API of its own."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{settings.ports['kueue-health']}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": settings.ports["kueue-webhook"], "certDir": f"/etc/{_CERTIFICATES}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "featureGates": {"VisibilityOnDemand": False},
        "clientConnection": {"qps": 300, "burst": 500},
        # Jobs whose pods do not start are evicted, and given up after another time.
        "waitForPodsReady": {
            "timeout": f"{settings.pods_ready_s}s",
            "recoveryTimeout": "0s",
            "requeuingStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 30},
        },
        "integrations": {"frameworks": [*FRAMEWORKS]},
    }


def of_frameworks(webhooks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the webhooks of its own resources, and those of its frameworks, as its kustomization limits them."""
    for one in webhooks:
        own = [hook for hook in one["webhooks"] if hook["rules"][0]["apiGroups"] == ["kueue.x-k8s.io"]]
        others = [
            {**hook, "namespaceSelector": {"matchExpressions": [_SYSTEM]}}
            for hook in one["webhooks"]
            if hook["name"][1:].removesuffix(".kb.io") in FRAMEWORKS.values()
        ]
        yield {**one, "webhooks": [*own, *others]}


def _flavor(label: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "probe"},
        "spec": {"nodeLabels": {label: "probe"}},
    }


def _changes(api: Api) -> bool:
    """Whether an object comes back as a webhook completes it."""
    answer = api.request("POST", f"{_FLAVORS}?dryRun=All", _flavor("label"))
    return "finalizers" in answer["metadata"]
