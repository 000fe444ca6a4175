"""The ways to a real cluster: what a kubeconfig may hold, and what it must not get away with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from torchx_pulumi.kube import KubernetesCluster, kinds
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.contract.cluster.conftest import LINES, World
from tests.loopback import NAME, http_proxy

pytestmark = pytest.mark.e2e


def changed(kubeconfig: Path, **fields: Any) -> str:
    """The kubeconfig with other fields of its cluster; None takes one away."""
    access = find_access(str(kubeconfig))
    config = json.loads(access.config)
    for item in config["clusters"]:
        merged = item["cluster"] | fields
        item["cluster"] = {name: value for name, value in merged.items() if value is not None}
    return yaml.safe_dump(config) + "\n"


def answers(cluster: KubernetesCluster) -> bool:
    return cluster.get(kinds.NAMESPACE, None, "default") is not None


NO_AUTHORITY = {"certificate-authority": None, "certificate-authority-data": None}


def test_a_server_that_cannot_prove_who_it_is_gets_no_credentials(kubeconfig: Path) -> None:
    assert answers(KubernetesCluster.connect(changed(kubeconfig)))
    with pytest.raises(ClusterError, match="certificate that the kubeconfig does not trust"):
        answers(KubernetesCluster.connect(changed(kubeconfig, **NO_AUTHORITY)))
    with pytest.raises(ClusterError, match="certificate that the kubeconfig does not trust"):
        answers(KubernetesCluster.connect(changed(kubeconfig, **{"tls-server-name": "other.example.com"})))


def test_a_server_may_be_called_by_another_name_or_trusted_blindly(kubeconfig: Path) -> None:
    assert answers(KubernetesCluster.connect(changed(kubeconfig, **{"tls-server-name": "localhost"})))
    blind = NO_AUTHORITY | {"insecure-skip-tls-verify": True}
    assert answers(KubernetesCluster.connect(changed(kubeconfig, **blind)))


def test_a_callers_own_client_is_asked_and_is_the_same_cluster(kubeconfig: Path, real_world: World) -> None:
    from kubernetes import config

    own = KubernetesCluster.of_client(config.new_client_from_config(str(kubeconfig), persist_config=False))
    assert answers(own)
    assert own.get(kinds.POD, "default", "nobody") is None
    assert own.allowed("create", VOLCANO_JOB, "default")
    assert list(own.logs(real_world.namespace, "a", follow=True)) == LINES
    assert own.identity == KubernetesCluster.connect(str(kubeconfig)).identity


def test_a_plugin_and_a_proxy_lead_to_the_cluster(
    kubeconfig: Path, real_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address leads nowhere but through the proxy; the first token is refused, and the plugin asked again."""
    config = yaml.safe_load(changed(kubeconfig, server=f"https://{NAME}", **{"tls-server-name": "localhost"}))
    (user,) = config["users"]
    token = user["user"].pop("token")
    plugin = tmp_path / "login"
    plugin.write_text(
        f"#!/bin/sh\necho run >> {tmp_path}/runs\n[ $(wc -l < {tmp_path}/runs) = 1 ] && token=old || token={token}\n"
        'printf \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", \'\n'
        'printf \'"status": {"token": "%s", "expirationTimestamp": "2100-01-01T00:00:00Z"}}\' $token\n'
    )
    plugin.chmod(0o755)
    user["user"]["exec"] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    server = urlsplit(KubernetesCluster.connect(str(kubeconfig)).api_server)
    with http_proxy((str(server.hostname), server.port or 443), password="hush") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hush@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,.svc,cluster.test:80")
        cluster = KubernetesCluster.connect(json.dumps(config))
        assert answers(cluster)
        assert [pod["metadata"]["name"] for pod in cluster.list(kinds.POD, real_world.namespace)] == ["a", "b", "c"]
        assert list(cluster.logs(real_world.namespace, "a", follow=True)) == LINES
        assert {line.split()[1] for line in proxy.asked} == {f"{NAME}:443"}
    assert (tmp_path / "runs").read_text().splitlines() == ["run"] * 2
