"""Create, update, read and delete on a real API server."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable

import grpc
import pytest

from tests.contract.provider.conftest import Api, wait_until
from tests.contract.provider.driver import (
    UNKNOWN,
    InitFailedError,
    Properties,
    Provider,
    Resource,
    is_secret,
    secret,
)
from tests.contract.provider.objects import WIDGETS, config_map, urn, widget

GADGETS = WIDGETS.replace("Widget", "Gadget")
"""A kind that does not exist."""


def test_the_state_holds_the_live_object_and_how_it_came_about(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    live = api.get(api.widget("w"))
    assert live is not None
    assert made.id == f"{api.namespace}/w"
    assert made.outputs["metadata"]["uid"] == live["metadata"]["uid"]
    assert made.outputs["spec"] == {"size": 1}
    assert made.outputs["__initialApiVersion"] == live["apiVersion"]
    assert made.outputs["__inputs"] == made.inputs
    assert re.fullmatch(r"pulumi-kubernetes-[0-9a-f]{8}", made.outputs["__fieldManager"])
    assert managers(live) == [("pulumi-kubernetes", "Update")]


def managers(live: Properties | None) -> list[tuple[str, str]]:
    """Return who wrote the fields of an object, and how."""
    assert live is not None
    return [(entry["manager"], entry["operation"]) for entry in live["metadata"]["managedFields"]]


def test_a_preview_stores_nothing(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace), preview=True)
    assert made.id == ""
    assert "status" not in made.outputs
    assert api.get(api.widget("w")) is None


def test_a_preview_asks_the_server(provider: Provider, api: Api) -> None:
    wrong = config_map(api.namespace, {"a": "1"}, name="Not-A-Name")
    with pytest.raises(grpc.RpcError, match="was not successfully created by the Kubernetes API server"):
        provider.create(urn("core/v1:ConfigMap"), wrong, preview=True)


def test_a_preview_of_unknowns_says_what_it_was_told(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=UNKNOWN), preview=True)
    assert made.outputs == made.inputs


def test_a_preview_in_a_namespace_to_come_passes(provider: Provider) -> None:
    made = provider.create(urn(WIDGETS), widget("contract-not-yet-there"), preview=True)
    assert made.outputs == made.inputs


def test_a_preview_of_a_kind_to_come_passes(provider: Provider, api: Api) -> None:
    inputs = {**widget(api.namespace), "kind": "Gadget"}
    made = provider.create(urn(GADGETS), inputs, preview=True)
    assert made.outputs == made.inputs


def test_creating_waits_for_the_namespace(provider: Provider, api: Api, api_call: Callable[..., object]) -> None:
    name = f"{api.namespace}-late"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}

    def told() -> bool:
        return any(text.startswith("Retry #0; creation failed: ") for text in provider.engine.texts())

    def make() -> None:
        wait_until(told)
        api_call("POST", "/api/v1/namespaces", namespace)

    later = threading.Thread(target=make)
    later.start()
    try:
        assert provider.create(urn(WIDGETS), widget(name)).id == f"{name}/w"
    finally:
        later.join()
        api_call("DELETE", f"/api/v1/namespaces/{name}")
    assert told()


def test_an_object_that_is_there_is_refused_and_stays(provider: Provider, api: Api) -> None:
    provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    for forcing in (None, {"pulumi.com/patchForce": "true"}):
        with pytest.raises(grpc.RpcError, match=r'was not successfully created .*: widgets.* "w" already exists'):
            provider.create(urn(WIDGETS, "again"), widget(api.namespace, annotations=forcing, size=2))
    live = api.get(api.widget("w"))
    assert live is not None
    assert live["spec"] == {"size": 1}


def test_a_preview_under_a_name_that_is_taken_says_what_it_was_told(provider: Provider, api: Api) -> None:
    provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    preview = provider.create(urn(WIDGETS, "again"), widget(api.namespace, size=2), preview=True)
    assert preview.id == ""
    assert preview.outputs == preview.inputs


def test_an_update_keeps_the_object_and_its_manager(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1, gone=True))
    updated = provider.update(made, widget(api.namespace, size=2))
    assert updated.outputs["metadata"]["uid"] == made.outputs["metadata"]["uid"]
    assert updated.outputs["spec"] == {"size": 2}
    assert updated.outputs["__fieldManager"] == made.outputs["__fieldManager"]
    assert managers(api.get(api.widget("w"))) == [(made.outputs["__fieldManager"], "Apply")]


def test_a_preview_of_an_update_changes_nothing(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    preview = provider.update(made, widget(api.namespace, size=2), preview=True)
    assert preview.outputs["spec"] == {"size": 2}
    live = api.get(api.widget("w"))
    assert live is not None
    assert live["spec"] == {"size": 1}


def test_an_update_that_is_refused_keeps_the_live_state(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    api.patch(api.widget("w"), {"spec": {"size": 5}}, manager="a-controller")
    expected = rf"reported that \"{made.id}\" failed to fully initialize or become live: .*field conflict detected"
    with pytest.raises(InitFailedError, match=expected) as failed:
        provider.update(made, widget(api.namespace, size=2))
    assert failed.value.id == made.id
    assert failed.value.properties["spec"] == {"size": 5}
    assert 'conflict with "a-controller"' in failed.value.reasons[0]


def test_an_update_of_what_is_gone_fails(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1))
    api.call("DELETE", api.widget("w"))
    with pytest.raises(grpc.RpcError, match=r'update of resource ".*" failed: widgets.* "w" not found'):
        provider.update(made, widget(api.namespace, size=2))


def test_a_patch_by_kubectl_is_drift_not_a_conflict(provider: Provider, api: Api) -> None:
    inputs = widget(api.namespace, size=2)
    made = provider.create(urn(WIDGETS), inputs)
    api.patch(api.widget("w"), {"spec": {"size": 1}}, manager="kubectl-patch")
    assert provider.diff(made, inputs).is_empty
    seen = provider.read(made)
    assert seen is not None
    assert seen.inputs["spec"] == {"size": 1}
    assert list(provider.diff(seen, inputs).detailed) == ["spec.size"]
    assert provider.update(seen, inputs).outputs["spec"] == {"size": 2}


def test_a_refresh_brings_the_status_and_no_difference(provider: Provider, api: Api) -> None:
    inputs = widget(api.namespace, size=1)
    made = provider.create(urn(WIDGETS), inputs)
    api.patch(api.widget("w") + "/status", {"status": {"phase": "Done"}})
    api.patch(api.widget("w"), {"spec": {"filledIn": True}})
    seen = provider.read(made)
    assert seen is not None
    assert seen.outputs["status"] == {"phase": "Done"}
    assert seen.inputs["spec"] == {"size": 1}
    assert seen.outputs["__fieldManager"] == made.outputs["__fieldManager"]
    assert provider.diff(seen, inputs).is_empty


def test_what_is_gone_is_read_as_gone(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace))
    api.call("DELETE", api.widget("w"))
    assert provider.read(made) is None
    assert provider.find(urn(GADGETS), f"{api.namespace}/g") is None


def test_delete_waits_until_the_object_is_gone(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace))
    api.patch(api.widget("w"), {"metadata": {"finalizers": ["contract.torchx-pulumi.test/hold"]}})
    release = threading.Timer(1.5, api.patch, (api.widget("w"), {"metadata": {"finalizers": []}}))
    started = time.monotonic()
    release.start()
    provider.delete(made)
    release.join()
    assert time.monotonic() - started > 1
    assert api.get(api.widget("w")) is None


def test_delete_gives_up_in_time_and_says_what_holds(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace))
    api.patch(api.widget("w"), {"metadata": {"finalizers": ["contract.torchx-pulumi.test/hold"]}})
    try:
        with pytest.raises((grpc.RpcError, InitFailedError), match="timed out"):
            provider.delete(made, timeout_s=2)
    finally:
        api.patch(api.widget("w"), {"metadata": {"finalizers": []}})


def test_delete_waits_for_dependents(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, "owner"))
    owner = {
        "apiVersion": made.outputs["apiVersion"], "kind": "Widget", "name": "owner",
        "uid": made.outputs["metadata"]["uid"], "blockOwnerDeletion": True,
    }  # fmt: skip
    child = config_map(api.namespace, {})
    child["metadata"]["ownerReferences"] = [owner]
    api.call("POST", api.path("configmaps"), child)
    provider.delete(made)
    assert api.get(api.config_map("c")) is None


def test_deleting_what_is_gone_is_done(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace))
    provider.delete(made)
    provider.delete(made)
    no_kind = Resource(urn(GADGETS), made.id, {}, {**made.outputs, "kind": "Gadget"})
    provider.delete(no_kind)


def test_an_object_may_be_orphaned_of_its_dependents(provider: Provider, api: Api) -> None:
    orphaning = {"pulumi.com/deletionPropagationPolicy": "orphan"}
    made = provider.create(urn(WIDGETS), widget(api.namespace, "owner", annotations=orphaning))
    owner = {"apiVersion": made.outputs["apiVersion"], "kind": "Widget", "name": "owner"}
    for name, uid in (("c", made.outputs["metadata"]["uid"]), ("stray", str(uuid.uuid4()))):
        child = config_map(api.namespace, {}, name)
        child["metadata"]["ownerReferences"] = [{**owner, "uid": uid}]
        api.call("POST", api.path("configmaps"), child)
    # The garbage collector orphans the dependents that it has seen: the first one, once it has collected the second.
    wait_until(lambda: api.get(api.config_map("stray")) is None)
    provider.delete(made)
    time.sleep(1)
    assert api.get(api.config_map("c")) is not None


def test_secrets_stay_secret_in_the_state(provider: Provider, api: Api) -> None:
    made = provider.create(urn(WIDGETS), widget(api.namespace, token=secret("hush"), size=1))
    assert is_secret(made.outputs["spec"]["token"])
    assert made.outputs["spec"]["size"] == 1
    assert is_secret(made.outputs["__inputs"]["spec"]["token"])
    metadata = {"name": "s", "namespace": api.namespace}
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "aHVzaA=="}}
    kept = provider.create(urn("core/v1:Secret"), inputs)
    assert is_secret(kept.outputs["data"])
    assert kept.outputs["metadata"]["name"] == "s"


def test_client_side_apply_does_the_same_without_a_field_manager_of_its_own(
    start: Callable[..., Provider], api: Api
) -> None:
    provider = start(enableServerSideApply="false")
    made = provider.create(urn(WIDGETS), widget(api.namespace, size=1, gone=True))
    assert made.outputs["__fieldManager"] == "pulumi-kubernetes"
    updated = provider.update(made, widget(api.namespace, size=2))
    assert updated.outputs["spec"] == {"size": 2}
    assert provider.create(urn(WIDGETS, "x"), widget(api.namespace, "x"), preview=True).outputs["spec"] == {"size": 1}
    with pytest.raises(grpc.RpcError, match="already exists"):
        provider.create(urn(WIDGETS, "again"), widget(api.namespace, size=1))
    provider.delete(updated)


def test_a_stack_may_move_from_client_side_to_server_side_apply(start: Callable[..., Provider], api: Api) -> None:
    made = start(enableServerSideApply="false").create(urn(WIDGETS), widget(api.namespace, size=1))
    labelled = widget(api.namespace, size=2)
    updated = start().update(made, labelled)
    assert updated.outputs["spec"] == {"size": 2}


def test_many_at_once(provider: Provider, api: Api) -> None:
    made: list[Resource] = []
    workers = [
        threading.Thread(
            target=lambda n=number: made.append(provider.create(urn(WIDGETS, f"w{n}"), widget(api.namespace, f"w{n}")))
        )
        for number in range(20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {resource.id for resource in made} == {f"{api.namespace}/w{n}" for n in range(20)}
