"""Objects that no stack has, taken into one by their id: read, compared, updated or replaced."""

from __future__ import annotations

import pytest

from tests.contract.provider.conftest import WIDGET, Api
from tests.contract.provider.driver import Properties, Provider, Resource
from tests.contract.provider.objects import WIDGETS, config_map, pod, urn, widget
from tests.contract.provider.test_lifecycle import managers
from tests.contract.provider.test_volcano import JOB, JOBS, job

CREATED = "?fieldManager=pulumi-kubernetes"
"""As a deployment that was killed leaves its objects."""


def found(provider: Provider, kind: str, identity: str) -> Resource:
    resource = provider.find(urn(kind), identity)
    assert resource is not None
    return resource


def test_of_a_built_in_kind_the_inputs_are_what_is_live(provider: Provider, api: Api) -> None:
    made = config_map(api.namespace, {"a": "1"})
    made["metadata"]["labels"] = {"l": "x"}
    api.call("POST", api.path("configmaps"), made)
    resource = found(provider, "core/v1:ConfigMap", f"{api.namespace}/c")
    assert resource.inputs == made
    assert resource.outputs["metadata"]["uid"]
    assert resource.outputs["__inputs"] == made
    assert provider.diff(resource, made).is_empty
    changed = provider.diff(resource, config_map(api.namespace, {"a": "2"}))
    assert (changed.replaces, set(changed.detailed)) == (["data.a"], {"data.a", "metadata.labels"})


def test_of_a_custom_resource_the_inputs_are_its_identity(provider: Provider, api: Api) -> None:
    made = widget(api.namespace, size=1)
    api.call("POST", api.path("widgets", group=f"/apis/{WIDGET['apiVersion']}") + CREATED, made)
    resource = found(provider, WIDGETS, f"{api.namespace}/w")
    assert resource.inputs == {**WIDGET, "metadata": {"name": "w", "namespace": api.namespace}}
    assert resource.outputs["spec"] == {"size": 1}
    assert provider.diff(resource, made).detailed == {"spec": 0}
    updated = provider.update(resource, widget(api.namespace, size=2))
    assert updated.outputs["spec"] == {"size": 2}
    assert updated.outputs["metadata"]["uid"] == resource.outputs["metadata"]["uid"]
    assert managers(api.get(api.widget("w"))) == [(updated.outputs["__fieldManager"], "Apply")]


def test_a_volcano_job_is_updated_and_stays(provider: Provider, api: Api) -> None:
    if api.get(JOBS) is None:
        pytest.skip("the cluster has no Volcano")
    api.call("POST", api.path("jobs", group=JOBS) + CREATED, job(api.namespace))
    resource = found(provider, JOB, f"{api.namespace}/j")
    difference = provider.diff(resource, job(api.namespace))
    assert (difference.detailed, difference.replaces) == ({"spec": 0}, [])
    updated = provider.update(resource, job(api.namespace))
    assert updated.outputs["metadata"]["uid"] == resource.outputs["metadata"]["uid"]
    assert provider.diff(updated, job(api.namespace)).is_empty


@pytest.mark.parametrize("changed", [{}, {"terminationGracePeriodSeconds": 5}], ids=["same-program", "other-program"])
def test_a_pod_is_replaced_unless_its_changes_are_ignored(provider: Provider, api: Api, changed: Properties) -> None:
    api.call("POST", api.path("pods") + CREATED, pod(api.namespace))
    resource = found(provider, "core/v1:Pod", f"{api.namespace}/p")
    assert resource.inputs["spec"]["terminationGracePeriodSeconds"] == 0
    assert "status" not in resource.inputs
    program = pod(api.namespace, **changed)
    difference = provider.diff(resource, program)
    # What the server and its webhooks filled in is among the inputs, and the program does not say it.
    assert {"spec.serviceAccountName", *(f"spec.{name}" for name in changed)} <= set(difference.replaces)
    assert difference.delete_before_replace
    assert provider.diff(resource, program, ignore=("spec", "metadata")).is_empty
