"""The two clusters that the contract is about: one in memory, and the real one of an e2e session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from torchx_pulumi.kube import Cluster, KubernetesCluster, kinds
from torchx_pulumi.kube.official_client import OfficialTransport
from torchx_pulumi.kube.transport import ApiRequest

from tests.fakes import FakeCluster

Manifest = dict[str, Any]
LINES = ["one", "zwei: ä", "three"]


class World:
    """A cluster under test with three pods in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace


def pod(namespace: str, name: str, labels: dict[str, str], image: str) -> Manifest:
    script = "; ".join(f"echo '{line}'" for line in LINES[:-1]) + f"; sleep 1; printf '{LINES[-1]}'"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "volcano",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": image, "command": ["sh", "-c", script]}],
        },
    }


def pods(namespace: str, image: str) -> list[Manifest]:
    return [
        pod(namespace, "b", {"app": "x", "n": "1"}, image),
        pod(namespace, "a", {"app": "x", "n": "0"}, image),
        pod(namespace, "c", {"app": "y"}, image),
    ]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "real":
        yield request.getfixturevalue("real_world")
        return
    yield World(FakeCluster(objects_of_fakes(), logs={("here", "a"): LINES}), "here")


def objects_of_fakes() -> list[Manifest]:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here"}}
    return [space, *pods("here", "img"), pod("elsewhere", "a", {"app": "x"}, "img")]


@pytest.fixture(scope="session")
def real_world(cluster: Any, kubeconfig: Path) -> Iterator[World]:
    """The session's cluster, filled through the official client."""
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    from kubernetes import config

    namespace = f"contract-{uuid4().hex[:6]}"
    api = config.new_client_from_config(str(kubeconfig), persist_config=False)
    call = caller(api)
    call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    try:
        # Without its account, which a controller makes, a pod is refused.
        wait_for_account(call, namespace)
        for manifest in pods(namespace, image_of(cluster)):
            call("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
        real = KubernetesCluster.connect(str(kubeconfig))
        deadline = time.monotonic() + 240
        # All of them: what is read twice must not change in between.
        while {phase_of(pod) for pod in real.list(kinds.POD, namespace)} != {"Succeeded"}:
            assert time.monotonic() < deadline, real.list(kinds.POD, namespace)
            time.sleep(0.2)
        yield World(real, namespace)
    finally:
        call("DELETE", f"/api/v1/namespaces/{namespace}", None)


def wait_for_account(call: Callable[[str, str, Manifest | None], Any], namespace: str) -> None:
    """Wait until a new namespace has the account of its pods."""
    deadline = time.monotonic() + 120
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    while "default" not in [item["metadata"]["name"] for item in call("GET", path, None)["items"]]:
        assert time.monotonic() < deadline, f"namespace {namespace} got no default account"
        time.sleep(0.1)


def image_of(cluster: Any) -> str:
    return str(cluster.images.get("busybox") or next(iter(cluster.images.values())))


def phase_of(observed: Manifest | None) -> str:
    return str(((observed or {}).get("status") or {}).get("phase"))


def caller(api: Any) -> Callable[[str, str, Manifest | None], Any]:
    transport = OfficialTransport(api)

    def call(method: str, path: str, body: Manifest | None) -> Any:
        answer = transport.request(ApiRequest(method, path, body=body))
        assert 200 <= answer.status < 300, answer.data
        return json.loads(answer.data)

    return call
