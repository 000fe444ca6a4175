"""A TorchX component whose replica runs on a fake node until it is deleted: `torchx run PATH:train`."""

from __future__ import annotations

from torchx import specs

POD = {
    "spec": {
        "nodeSelector": {"torchx-pulumi/node": "fake"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}],
    }
}


def train() -> specs.AppDef:
    """Run one replica that costs nothing."""
    role = specs.Role(
        name="trainer",
        image="app:1",
        entrypoint="sleep",
        args=["600"],
        resource=specs.Resource(cpu=1, gpu=0, memMB=64),
        metadata={"kubernetes": {"V1Pod": POD}},
    )
    return specs.AppDef(name="train", roles=[role])
