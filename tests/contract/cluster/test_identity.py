"""What every cluster says of itself, fake or real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx_pulumi.kube import Cluster, KubernetesCluster, kinds
from torchx_pulumi.kube.kubeconfig import find_access
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, Match, compare

from tests.contract.cluster.conftest import World, caller
from tests.e2e.cutting_proxy import cutting_proxy
from tests.fakes import FakeCluster


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.e2e)])
def forbidden(request: pytest.FixtureRequest) -> Cluster:
    """The cluster of `world`, for an account without permissions."""
    if request.param == "fake":
        return FakeCluster(denied=[("get", kinds.NAMESPACE)])
    world: World = request.getfixturevalue("real_world")
    return KubernetesCluster.connect(powerless(request.getfixturevalue("kubeconfig"), world.namespace))


def powerless(kubeconfig: Path, namespace: str) -> str:
    """Return a kubeconfig for a service account of its own, which has no role."""
    from kubernetes import config

    call = caller(config.new_client_from_config(str(kubeconfig), persist_config=False))
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    call("POST", accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"generateName": "powerless-"}})
    name = next(i["metadata"]["name"] for i in call("GET", accounts, None)["items"] if "powerless" in str(i))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = call("POST", f"{accounts}/{name}/token", request)["status"]["token"]
    access = find_access(str(kubeconfig))
    whole = json.loads(access.config)
    whole["users"] = [{**item, "user": {"token": token}} for item in whole["users"]]
    return json.dumps(whole)


def test_a_cluster_is_known_by_the_uid_of_its_home_namespace(world: World) -> None:
    home = world.cluster.get(kinds.NAMESPACE, None, HOME_NAMESPACE)
    assert home is not None
    identity = world.cluster.identify()
    assert identity.uid == home["metadata"]["uid"]
    assert identity.address == world.cluster.identity
    assert identity.ca
    assert world.cluster.api_server in identity.name
    assert compare(identity, world.cluster.identify()) is Match.SAME


def test_without_the_permission_the_uid_is_not_known(forbidden: Cluster) -> None:
    identity = forbidden.identify()
    assert identity.uid is None
    assert identity.address == forbidden.identity
    assert compare(identity, forbidden.identify()) is Match.SAME


@pytest.fixture
def second_address(kubeconfig: Path) -> Iterator[str]:
    with cutting_proxy(str(kubeconfig), []) as (_, config):
        yield config


@pytest.mark.e2e
def test_one_cluster_under_two_addresses_is_one_cluster(
    kubeconfig: Path, real_world: World, second_address: str
) -> None:
    there = KubernetesCluster.connect(second_address)
    here = KubernetesCluster.connect(str(kubeconfig))
    assert here.identity != there.identity
    assert compare(here.identify(), there.identify()) is Match.SAME
    namespace = real_world.namespace
    hidden = KubernetesCluster.connect(powerless(kubeconfig, namespace)).identify()
    assert compare(hidden, here.identify()) is Match.SAME
    assert compare(hidden, there.identify()) is Match.UNDECIDED
