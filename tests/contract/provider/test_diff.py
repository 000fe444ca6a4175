"""What a provider calls a difference, and which differences mean a new object."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pulumi.runtime.proto import provider_pb2

from tests.contract.provider.conftest import Api
from tests.contract.provider.driver import UNKNOWN, Properties, Provider, Resource
from tests.contract.provider.objects import WIDGETS, config_map, pod, urn, widget

ADD = provider_pb2.PropertyDiff.ADD
DELETE = provider_pb2.PropertyDiff.DELETE
UPDATE = provider_pb2.PropertyDiff.UPDATE
UPDATE_REPLACE = provider_pb2.PropertyDiff.UPDATE_REPLACE

SPEC: Properties = {"size": 2, "parts": [{"name": "a", "n": 1}, {"name": "b", "n": 2}], "marks": {"x/y.z": "1"}}


@pytest.fixture
def made(provider: Provider, api: Api) -> Iterator[Resource]:
    resource = provider.create(urn(WIDGETS), widget(api.namespace, **SPEC))
    yield resource
    provider.delete(resource)


def test_the_same_inputs_are_no_difference(provider: Provider, api: Api, made: Resource) -> None:
    assert provider.diff(made, widget(api.namespace, **SPEC)).is_empty


def test_numbers_are_compared_by_value(provider: Provider, api: Api, made: Resource) -> None:
    assert provider.diff(made, widget(api.namespace, **{**SPEC, "size": 2.0})).is_empty


def test_a_changed_leaf_is_named_by_its_path(provider: Provider, api: Api, made: Resource) -> None:
    parts = [{"name": "a", "n": 1}, {"name": "b", "n": 3}]
    found = provider.diff(made, widget(api.namespace, **{**SPEC, "parts": parts}))
    assert found.detailed == {"spec.parts[1].n": UPDATE}
    assert found.replaces == []


def test_added_and_removed_elements_are_named(provider: Provider, api: Api, made: Resource) -> None:
    more = provider.diff(made, widget(api.namespace, **{**SPEC, "parts": [*SPEC["parts"], {"name": "c"}]}))
    fewer = provider.diff(made, widget(api.namespace, **{**SPEC, "parts": SPEC["parts"][:1]}))
    assert more.detailed == {"spec.parts[2]": ADD}
    assert fewer.detailed == {"spec.parts[1]": DELETE}


def test_a_removed_key_is_a_difference(provider: Provider, api: Api, made: Resource) -> None:
    found = provider.diff(made, widget(api.namespace, size=2, parts=SPEC["parts"]))
    assert found.detailed == {"spec.marks": DELETE}


def test_an_odd_key_is_quoted_in_its_path(provider: Provider, api: Api, made: Resource) -> None:
    found = provider.diff(made, widget(api.namespace, **{**SPEC, "marks": {"x/y.z": "2"}}))
    assert found.detailed == {'spec.marks["x/y.z"]': UPDATE}


def test_what_is_not_yet_known_is_a_difference(provider: Provider, api: Api, made: Resource) -> None:
    found = provider.diff(made, widget(api.namespace, **{**SPEC, "size": UNKNOWN}))
    assert found.detailed == {"spec.size": UPDATE}


def test_ignored_changes_are_none(provider: Provider, api: Api, made: Resource) -> None:
    changed = widget(api.namespace, **{**SPEC, "size": 9, "parts": []})
    assert provider.diff(made, changed, ignore=("spec",)).is_empty
    assert provider.diff(made, changed, ignore=("spec.size", "spec.parts[*]")).is_empty


def test_another_name_is_another_object_beside_the_old(provider: Provider, api: Api, made: Resource) -> None:
    found = provider.diff(made, widget(api.namespace, "other", **SPEC))
    assert found.detailed == {"metadata.name": UPDATE_REPLACE}
    assert found.replaces == ["metadata.name"]
    assert not found.delete_before_replace


def test_another_namespace_is_another_object(provider: Provider, made: Resource) -> None:
    found = provider.diff(made, widget("default", **SPEC))
    assert found.replaces == ["metadata.namespace"]


def test_defaults_of_the_server_are_no_difference(provider: Provider, api: Api) -> None:
    inputs = pod(api.namespace, annotations={"pulumi.com/skipAwait": "true"})
    made = provider.create(urn("core/v1:Pod"), inputs)
    assert made.outputs["spec"]["dnsPolicy"] == "ClusterFirst"
    assert provider.diff(made, inputs).is_empty


def test_a_pod_s_image_means_a_new_pod_in_the_old_one_s_place(provider: Provider, api: Api) -> None:
    inputs = pod(api.namespace, annotations={"pulumi.com/skipAwait": "true"})
    made = provider.create(urn("core/v1:Pod"), inputs)
    inputs["spec"]["containers"][0]["image"] = "example.test/image:2"
    found = provider.diff(made, inputs)
    assert found.replaces == ["spec.containers[0].image"]
    assert found.delete_before_replace


def test_a_pod_s_labels_change_in_place(provider: Provider, api: Api) -> None:
    inputs = pod(api.namespace, annotations={"pulumi.com/skipAwait": "true"})
    made = provider.create(urn("core/v1:Pod"), inputs)
    inputs["metadata"]["labels"] = {"a": "b"}
    assert provider.diff(made, inputs).replaces == []


def test_data_of_a_config_map_means_a_new_one(provider: Provider, api: Api) -> None:
    made = provider.create(urn("core/v1:ConfigMap"), config_map(api.namespace, {"a": "1"}))
    found = provider.diff(made, config_map(api.namespace, {"a": "2"}))
    assert found.detailed == {"data.a": UPDATE_REPLACE}
    assert found.delete_before_replace


def test_an_autonamed_object_is_created_before_the_old_one_goes(provider: Provider, api: Api) -> None:
    inputs = config_map(api.namespace, {"a": "1"})
    del inputs["metadata"]["name"]
    made = provider.create(urn("core/v1:ConfigMap"), inputs)
    found = provider.diff(made, {**inputs, "data": {"a": "2"}})
    assert found.replaces == ["data.a"]
    assert not found.delete_before_replace


def test_the_text_of_a_secret_is_compared_as_stored(provider: Provider, api: Api) -> None:
    metadata = {"name": "s", "namespace": api.namespace}
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "hush"}}
    made = provider.create(urn("core/v1:Secret"), inputs)
    assert provider.diff(made, inputs).is_empty
    assert provider.diff(made, {**inputs, "stringData": {"a": "other"}}).replaces
