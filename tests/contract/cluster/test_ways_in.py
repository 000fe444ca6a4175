"""The ways to a real cluster: what a kubeconfig may hold, and what it must not get away with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi import kinds
from torchx_pulumi.cluster import KubernetesCluster
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.kubeconfig import find_access

from tests.contract.cluster.conftest import LINES, World

pytestmark = pytest.mark.e2e


def changed(kubeconfig: Path, **fields: Any) -> str:
    """The kubeconfig with other fields of its cluster; None takes one away."""
    access = find_access(str(kubeconfig))
    assert access.config is not None
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
    assert own.allowed("create", kinds.VOLCANO_JOB, "default")
    assert list(own.logs(real_world.namespace, "a", follow=True)) == LINES
    assert own.identity == KubernetesCluster.connect(str(kubeconfig)).identity
