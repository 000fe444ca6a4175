"""Which cluster is meant, and what is said when there is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from tests.contract.provider.conftest import Api
from tests.contract.provider.driver import Provider, Resource
from tests.contract.provider.objects import WIDGETS, urn, widget


def config(server: str, name: str = "c", context: str = "x") -> str:
    document: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": context, "context": {"cluster": name, "user": "u", "namespace": "somewhere"}}],
    }  # fmt: skip
    return yaml.safe_dump(document)


NOBODY = config("https://127.0.0.1:1")


def test_the_kubeconfig_may_be_its_contents(start: Callable[..., Provider], kubeconfig: Path, api: Api) -> None:
    provider = start(environment={"KUBECONFIG": ""}, kubeconfig=kubeconfig.read_text())
    assert provider.create(urn(WIDGETS), widget(api.namespace)).id


def test_the_kubeconfig_may_be_a_path(start: Callable[..., Provider], kubeconfig: Path, api: Api) -> None:
    provider = start(environment={"KUBECONFIG": ""}, kubeconfig=str(kubeconfig))
    assert provider.create(urn(WIDGETS), widget(api.namespace)).id


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"kubeconfig": NOBODY}, r"unable to load schema information from the API server: .*connection refused"),
        (
            {"context": "no-such-context"},
            r'unable to load Kubernetes client configuration from kubeconfig file\. .*context "no-such-context"',
        ),
        ({"kubeconfig": "{not a kubeconfig"}, r"failed to parse kubeconfig data in `kubernetes:config:kubeconfig`"),
    ],
    ids=["silent", "no such context", "no kubeconfig"],
)
def test_an_unreachable_cluster_fails_what_needs_it(
    start: Callable[..., Provider], settings: dict[str, str], reason: str
) -> None:
    provider = start(**settings)
    expected = re.compile(r"configured Kubernetes cluster is unreachable: " + reason, re.DOTALL)
    with pytest.raises(grpc.RpcError, match=expected):
        provider.create(urn(WIDGETS), widget("default"))
    gone = Resource(urn(WIDGETS), "default/w", widget("default"), widget("default"))
    with pytest.raises(grpc.RpcError, match="failed to read resource state due to unreachable cluster"):
        provider.read(gone)
    with pytest.raises(
        grpc.RpcError, match=r"configured Kubernetes cluster is unreachable\. If the cluster was deleted"
    ):
        provider.delete(gone)


def test_an_unreachable_cluster_does_not_fail_a_preview(start: Callable[..., Provider]) -> None:
    made = start(kubeconfig=NOBODY).create(urn(WIDGETS), widget("default"), preview=True)
    assert made.outputs == made.inputs


def test_what_an_unreachable_cluster_had_may_be_forgotten(start: Callable[..., Provider]) -> None:
    provider = start(kubeconfig=NOBODY, deleteUnreachable="true")
    gone = Resource(urn(WIDGETS), "default/w", widget("default"), widget("default"))
    assert provider.read(gone) is None
    provider.delete(gone)


def test_another_cluster_means_another_provider(provider: Provider) -> None:
    here, there = config("https://here:1"), config("https://there:1")
    assert provider.diff_config({"kubeconfig": here}, {"kubeconfig": here}).is_empty
    assert provider.diff_config({"kubeconfig": here}, {"kubeconfig": there}).replaces == ["kubeconfig"]


def test_a_path_is_the_same_cluster_as_its_contents(provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(config("https://here:1"))
    found = provider.diff_config({"kubeconfig": str(path)}, {"kubeconfig": path.read_text()})
    assert not found.is_empty
    assert found.replaces == []


def test_another_token_or_namespace_is_an_update(provider: Provider) -> None:
    old, new = config("https://here:1"), config("https://here:1").replace("token: t", "token: u")
    found = provider.diff_config({"kubeconfig": old}, {"kubeconfig": new})
    assert not found.is_empty
    assert found.replaces == []
    assert provider.diff_config({"namespace": "a"}, {"namespace": "b"}).replaces == []


def test_a_cluster_identifier_decides_alone(provider: Provider) -> None:
    here, there = config("https://here:1"), config("https://there:1")
    same = provider.diff_config(
        {"kubeconfig": here, "clusterIdentifier": "1"}, {"kubeconfig": there, "clusterIdentifier": "1"}
    )
    other = provider.diff_config(
        {"kubeconfig": here, "clusterIdentifier": "1"}, {"kubeconfig": here, "clusterIdentifier": "2"}
    )
    assert same.replaces == []
    assert other.replaces == ["clusterIdentifier"]


def test_it_has_a_version(provider: Provider) -> None:
    version = provider.stub.GetPluginInfo(empty_pb2.Empty()).version
    assert tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= (4, 24)


def test_an_unknown_function_is_an_error(provider: Provider) -> None:
    with pytest.raises(grpc.RpcError, match="kubernetes:no:such"):
        provider.stub.Invoke(provider_pb2.InvokeRequest(tok="kubernetes:no:such"))
