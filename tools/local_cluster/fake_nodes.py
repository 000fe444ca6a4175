"""Nodes that only exist in the API server, played by KWOK: for gangs of hundreds of replicas on any machine.

Beside a real node they are tainted, so that a pod lands there only if it asks to; alone they take every pod.
A pod on a fake node runs until it is deleted, unless its annotations say how it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tools.local_cluster.api import Api
from tools.local_cluster.layout import Layout
from tools.local_cluster.probes import http_ok
from tools.local_cluster.settings import Settings
from tools.local_cluster.startup import Component, Step, Unit

NODE_LABEL: Final = "torchx-pulumi/node"
"""`real` or `fake`."""
TAINT: Final = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""On fake nodes that stand beside a real one."""
ENDING_ANNOTATIONS: Final = ("torchx-pulumi/fake-exit-code", "torchx-pulumi/fake-run-for")
"""On a pod: exit code with which it is to end, and after what time (such as `2s`; at once when absent)."""
CAPACITY: Final = {
    "cpu": "64",
    "memory": "256Gi",
    "pods": "1100",
    "ephemeral-storage": "1Ti",
    "nvidia.com/gpu": "8",
    "vpc.amazonaws.com/efa": "4",
}
"""What one fake node offers."""
_ENDINGS: Final = Path(__file__).parent / "data" / "fake-pod-endings.yaml"


def fake_nodes(layout: Layout, settings: Settings) -> Iterator[Unit]:
    """Yield KWOK and its nodes."""
    if settings.kwok_nodes == 0:
        return
    api = Api.of(layout, settings)
    names = [f"fake-{index}" for index in range(settings.kwok_nodes)]
    port = settings.ports["kwok"]
    stages = layout.write_config("kwok", "stages.yaml", _stages(settings))
    yield Component(
        name="kwok",
        command=(
            settings.program("kwok"),
            f"--kubeconfig={layout.kubeconfig}",
            f"--config={stages}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--disregard-status-with-annotation-selector=kwok.x-k8s.io/status=custom",
            "--node-ip=127.0.0.1",
            "--cidr=10.0.0.1/16",
            f"--server-address=127.0.0.1:{port}",
            "--node-lease-duration-seconds=40",
        ),
        ready=lambda: http_ok(f"http://127.0.0.1:{port}/healthz"),
        needs=("kube-apiserver",),
    )
    yield Step(
        name="fake-nodes",
        run=lambda: api.create_all("/api/v1/nodes", (node(name, tainted=settings.real_node) for name in names)),
        until=lambda: all(node_ready(api.get(f"/api/v1/nodes/{name}")) for name in names),
        needs=("kwok",),
    )


def node(name: str, *, tainted: bool) -> dict[str, Any]:
    """Return one fake node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                NODE_LABEL: "fake",
                "type": "kwok",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "fake.64xlarge",
            },
        },
        "spec": {"taints": [TAINT]} if tainted else {},
        "status": {"allocatable": CAPACITY, "capacity": CAPACITY},
    }


def node_ready(found: dict[str, Any] | None) -> bool:
    """Whether a node takes pods."""
    if found is None:
        return False
    if any(taint["key"].startswith("node.kubernetes.io/") for taint in found["spec"].get("taints", ())):
        return False
    conditions = found.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _stages(settings: Settings) -> str:
    """Return KWOK's own stages, with our endings of pods in place of its own, which ends those of any Job at once."""
    files = sorted((settings.share("kwok") / "stage").rglob("*.yaml"))
    texts = [file.read_text("utf-8") for file in (*files, _ENDINGS)]
    stages = [stage for text in texts for stage in yaml.safe_load_all(text) if stage is not None]
    return yaml.safe_dump_all([stage for stage in stages if stage["metadata"]["name"] != "pod-complete"])
