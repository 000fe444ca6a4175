"""The providers that the contract is about, and the real API server that they are driven against."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.provider.driver import Properties, Provider

EXECUTABLE = "pulumi-resource-kubernetes"
# A worker deletes its definition at its end, while others still use theirs.
WIDGET = {"apiVersion": f"{os.environ.get('PYTEST_XDIST_WORKER', 'one')}.torchx-pulumi.test/v1", "kind": "Widget"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Kubeconfig of the cluster to test against: the one that is named, else the session's local cluster."""
    named = os.environ.get("TORCHX_PULUMI_TEST_KUBECONFIG")
    return Path(named) if named else Path(request.getfixturevalue("cluster").kubeconfig)


@pytest.fixture(scope="session", params=["stand-in", "official"])
def executable(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue("stand_in") if request.param == "stand-in" else official()


@pytest.fixture(scope="session")
def stand_in() -> Path:
    named = os.environ.get("TORCHX_PULUMI_TEST_STAND_IN")
    if named:
        return Path(named)
    from tools.bootstrap import stand_in_provider

    return stand_in_provider()


def official() -> Path:
    from tools.bootstrap import ensure
    from tools.bootstrap.installed import is_own_build

    used = ensure(["kubernetes-provider"])["kubernetes-provider"] / EXECUTABLE
    if is_own_build(used):
        pytest.skip("the tools use the stand-in; TORCHX_PULUMI_KUBERNETES_PROVIDER can name another one")
    return used


@pytest.fixture
def start(executable: Path, kubeconfig: Path) -> Iterator[Callable[..., Provider]]:
    """Start providers, configured for the cluster unless told otherwise; all are stopped at the end."""
    started: list[Provider] = []

    def start_one(*, environment: dict[str, str] | None = None, **settings: str) -> Provider:
        provider = Provider.start(executable, {**os.environ, "KUBECONFIG": str(kubeconfig), **(environment or {})})
        started.append(provider)
        provider.configure(**settings)
        return provider

    yield start_one
    for provider in started:
        provider.stop()


@pytest.fixture
def provider(start: Callable[..., Provider]) -> Provider:
    return start()


@dataclass
class Api:
    """The API server as somebody else sees it: what the provider did, and what others do meanwhile."""

    call: Callable[..., Any]
    namespace: str

    def path(self, kind: str, name: str = "", group: str = "/api/v1") -> str:
        return f"{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def get(self, path: str) -> Properties | None:
        from kubernetes.client.exceptions import ApiException

        try:
            return self.call("GET", path)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def patch(self, path: str, body: Properties, manager: str = "somebody-else") -> None:
        self.call("PATCH", f"{path}?fieldManager={manager}", body, "application/merge-patch+json")

    def widget(self, name: str) -> str:
        return self.path("widgets", name, f"/apis/{WIDGET['apiVersion']}")

    def config_map(self, name: str) -> str:
        return self.path("configmaps", name)


@pytest.fixture(scope="session")
def api_call(kubeconfig: Path) -> Iterator[Callable[..., Any]]:
    from kubernetes import config
    from kubernetes.client.exceptions import ApiException

    client = config.new_client_from_config(str(kubeconfig), persist_config=False)

    def call(method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        headers = {"Content-Type": content, "Accept": "application/json"}
        if hasattr(client, "param_serialize"):  # `kubernetes` 37 and later
            request = client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            response = client.call_api(*request).response
        else:
            response = client.call_api(
                path, method, body=body, header_params=headers, auth_settings=["BearerToken"],
                _return_http_data_only=True, _preload_content=False,
            )  # fmt: skip
        data = response.data
        if response.status >= 400:
            raise ApiException(http_resp=response)
        return json.loads(data)

    yield call
    client.rest_client.pool_manager.clear()
    client.close()


@pytest.fixture(scope="session", autouse=True)
def widgets(api_call: Callable[..., Any]) -> Iterator[None]:
    """A kind of the tests' own: no controller touches it."""
    free_form = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group, _, version = WIDGET["apiVersion"].partition("/")
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [
                {
                    "name": version, "served": True, "storage": True, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "properties": {"spec": free_form, "status": free_form}}},
                }
            ],
        },
    }  # fmt: skip
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    own = f"{definitions}/widgets.{group}"
    # Applied, not posted: a session that was killed may have left it.
    api_call("PATCH", f"{own}?fieldManager=contract&force=true", definition, "application/apply-patch+yaml")
    try:
        wait_until(lambda: established(api_call("GET", own)))
        yield
    finally:
        delete_if_there(api_call, own)


def delete_if_there(api_call: Callable[..., Any], path: str) -> None:
    """Delete an object; another session on the same cluster may have done so."""
    from kubernetes.client.exceptions import ApiException

    try:
        api_call("DELETE", path)
    except ApiException as error:
        if error.status != 404:
            raise


def established(definition: Properties) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.fixture
def api(api_call: Callable[..., Any]) -> Iterator[Api]:
    """A fresh namespace and the way to it."""
    namespace = f"contract-{uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    api_call("POST", "/api/v1/namespaces", body)
    made = Api(api_call, namespace)
    # Without its account, which a controller makes, a pod is refused.
    wait_until(lambda: made.get(made.path("serviceaccounts", "default")))
    yield made
    api_call("DELETE", f"/api/v1/namespaces/{namespace}")


def wait_until(holds: Callable[[], object], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"it did not come to hold within {timeout_s} s: {found!r}"
        time.sleep(0.1)
