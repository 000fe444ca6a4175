"""What a provider makes of the inputs before anything is done with them."""

from __future__ import annotations

import re
from collections.abc import Callable

import grpc
import pytest

from tests.contract.provider.conftest import Api
from tests.contract.provider.driver import SECRET, SIGNATURE, UNKNOWN, Provider, is_secret, secret
from tests.contract.provider.objects import WIDGETS, pod, urn, widget


def test_an_object_without_a_name_gets_one_of_its_own(provider: Provider, api: Api) -> None:
    checked = provider.checked(urn(WIDGETS, "train"), widget(api.namespace, None))
    assert re.fullmatch(r"train-[0-9a-f]{8}", checked["metadata"]["name"])
    assert checked["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}


def test_the_name_stays_from_check_to_check(provider: Provider, api: Api) -> None:
    first = provider.checked(urn(WIDGETS), widget(api.namespace, None))
    second = provider.checked(urn(WIDGETS), widget(api.namespace, None), first)
    assert second == first


def test_two_new_objects_get_two_names(provider: Provider, api: Api) -> None:
    names = {provider.checked(urn(WIDGETS), widget(api.namespace, None))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5


def test_a_given_name_is_kept_and_nothing_is_added(provider: Provider, api: Api) -> None:
    inputs = widget(api.namespace, "mine", size=3)
    assert provider.checked(urn(WIDGETS), inputs) == inputs


def test_the_namespace_of_the_context_is_the_default(provider: Provider) -> None:
    inputs = widget("", "mine")
    del inputs["metadata"]["namespace"]
    assert provider.checked(urn(WIDGETS), inputs)["metadata"]["namespace"] == "default"


def test_the_namespace_of_the_settings_comes_before_the_context(start: Callable[..., Provider]) -> None:
    inputs = widget("", "mine")
    del inputs["metadata"]["namespace"]
    checked = start(namespace="elsewhere").checked(urn(WIDGETS), inputs)
    assert checked["metadata"]["namespace"] == "elsewhere"


def test_a_kind_without_namespaces_gets_none(provider: Provider) -> None:
    inputs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    assert provider.checked(urn("core/v1:Namespace"), inputs) == inputs


def test_built_in_kinds_come_in_normal_form(provider: Provider, api: Api) -> None:
    checked = provider.checked(urn("core/v1:Pod"), pod(api.namespace))
    assert checked["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}


def test_custom_resources_stay_as_written(provider: Provider, api: Api) -> None:
    inputs = widget(api.namespace, cpu="1000m", memory="1500M")
    assert provider.checked(urn(WIDGETS), inputs)["spec"] == {"cpu": "1000m", "memory": "1500M"}


def test_secrets_and_unknowns_stay_marked(provider: Provider, api: Api) -> None:
    inputs = widget(api.namespace, token=secret("hush"), later=UNKNOWN, plain="x")
    checked = provider.checked(urn(WIDGETS), inputs)
    assert checked["spec"]["token"] == {SIGNATURE: SECRET, "value": "hush"}
    assert checked["spec"]["later"] == UNKNOWN
    assert checked["spec"]["plain"] == "x"


def test_a_secret_s_text_is_encoded_and_secret(provider: Provider, api: Api) -> None:
    metadata = {"name": "s", "namespace": api.namespace}
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "hush"}}
    checked = provider.checked(urn("core/v1:Secret"), inputs)
    assert is_secret(checked["data"])
    assert checked["data"]["value"] == {"a": "aHVzaA=="}


def test_only_client_side_apply_labels_the_manager(start: Callable[..., Provider], api: Api) -> None:
    inputs = widget(api.namespace)
    assert "labels" not in start().checked(urn(WIDGETS), inputs)["metadata"]
    labels = start(enableServerSideApply="false").checked(urn(WIDGETS), inputs)["metadata"]["labels"]
    assert labels == {"app.kubernetes.io/managed-by": "pulumi"}


def test_a_generated_name_needs_client_side_apply(start: Callable[..., Provider], api: Api) -> None:
    inputs = widget(api.namespace, None)
    inputs["metadata"]["generateName"] = "w-"
    with pytest.raises(grpc.RpcError, match="generateName` field is not supported in Server-Side Apply mode"):
        start().check(urn(WIDGETS), inputs)
    checked = start(enableServerSideApply="false").checked(urn(WIDGETS), inputs)
    assert "name" not in checked["metadata"]


def test_lists_are_refused(provider: Provider) -> None:
    with pytest.raises(grpc.RpcError, match=r"[Ll]ist resources"):
        provider.check(urn("core/v1:PodList"), {"apiVersion": "v1", "kind": "PodList", "items": []})
