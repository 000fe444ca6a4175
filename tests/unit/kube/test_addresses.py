"""Which cluster a kubeconfig means, known without asking it."""

from __future__ import annotations

import json

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kubeconfig import api_server, find_access, identity_of
from torchx_pulumi.model.errors import ClusterError


def kubeconfig(server: str | None) -> str:
    cluster = {} if server is None else {"server": server}
    return json.dumps(
        {
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "lab", "context": {"cluster": "c"}}],
            "current-context": "lab",
        }
    )


def test_the_address_is_the_kubeconfigs_own() -> None:
    cluster = KubernetesCluster.connect(kubeconfig("https://api.example.com:6443"))
    assert cluster.api_server == "https://api.example.com:6443"
    assert cluster.identity == identity_of("https://API.example.com:6443/")
    assert cluster.identity != identity_of("https://api.example.com:6444")


def test_a_cluster_without_an_address_is_named() -> None:
    with pytest.raises(ClusterError, match="'lab' cannot be used: its kubeconfig has no address for cluster 'c'"):
        KubernetesCluster.connect(kubeconfig(None))


@pytest.mark.parametrize(
    ("host", "address"), [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
def test_a_pods_own_cluster_is_told_by_its_environment(
    monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setenv("KUBECONFIG", "/dev/null")
    assert api_server(find_access()) == address


def test_what_is_written_oddly_has_an_identity_too() -> None:
    assert identity_of("localhost:8080") == identity_of("https://localhost:8080")
    assert identity_of("https://h/clusters/a") != identity_of("https://h/clusters/b")
