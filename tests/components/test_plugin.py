"""The schema that other languages see, and how errors look from there."""

from __future__ import annotations

import json
from email.message import Message
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import jsonschema
import pulumi
import pytest
from pulumi.provider.experimental.analyzer import PropertyDefinition
from pulumi.runtime.sync_await import _sync_await
from torchx_pulumi_components import package_schema
from torchx_pulumi_components.plugin import provider, schema

from tools.outputs_page import outputs_page

SCHEMA = Path(__file__).resolve().parents[2] / "components" / "schema.json"


def test_the_schema_that_is_checked_in_is_the_one_of_the_code() -> None:
    found = schema(package_schema.installed_facts())
    assert json.loads(SCHEMA.read_text()) == found, "run `make schema` and read the diff"


def test_the_page_of_outputs_is_made_of_the_schema() -> None:
    page = (SCHEMA.parents[1] / "docs/outputs.md").read_text()
    assert page == outputs_page(), "run `make schema`"
    assert "| `observed` | [Observed](#observed) |" in page
    assert "| `memoryMb` | integer |" in page


@pytest.mark.parametrize("installed", [None, "0.1.0"])
def test_a_checkout_serves_its_own_schema_whatever_is_installed(
    installed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(name: str) -> Any:
        if installed is None:
            raise PackageNotFoundError(name)
        metadata = Message()
        metadata["Version"] = installed
        return metadata

    monkeypatch.setattr(package_schema, "metadata", found)
    assert json.loads(SCHEMA.read_text()) == schema()
    assert provider().version == json.loads(SCHEMA.read_text())["version"]


def test_a_wheel_serves_the_facts_of_its_metadata(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(package_schema, "_CHECKED_IN", tmp_path / "absent")
    assert package_schema.package_facts() == package_schema.installed_facts()


def test_the_addresses_of_the_schema_are_made_of_the_repository() -> None:
    found, address = schema(), "github.com/torchx-pulumi/torchx-pulumi"
    assert found["repository"] == f"https://{address}"
    assert found["pluginDownloadURL"] == f"git://{address}/{SCHEMA.parent.name}"
    assert found["language"]["go"]["importBasePath"].startswith(f"{address}/")
    logo = found["logoUrl"].removeprefix(f"https://{address}/raw/HEAD/")
    image = (SCHEMA.parents[1] / logo).read_bytes()
    # The registry takes PNG files of 100 x 100.
    assert (image[1:4], image[16:24]) == (b"PNG", bytes([0, 0, 0, 100] * 2))


@pytest.mark.parametrize("component", ["VolcanoTrainingJob", "MCADTrainingJob", "PatchedImage"])
def test_every_field_is_documented(component: str) -> None:
    found = schema()
    resource = found["resources"][f"torchx:index:{component}"]
    fields = {**resource["inputProperties"], **{f"output {key}": item for key, item in resource["properties"].items()}}
    for name, kind in found["types"].items():
        fields |= {f"{name}.{key}": item for key, item in kind.get("properties", {}).items()}
    assert [name for name, item in fields.items() if not item.get("description")] == []
    assert [name for name, item in fields.items() if "\n " in item["description"]] == []
    assert "{{% examples %}}" in resource["description"]


@pytest.mark.parametrize("component", ["VolcanoTrainingJob", "MCADTrainingJob"])
def test_a_default_that_an_sdk_sends_is_the_same_run_as_an_unset_argument(
    engine: Any, plugin: Any, component: str
) -> None:
    found = schema()
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python"}
    given: dict[str, Any] = {"roles": [role], **({"queue": "default"} if component == "VolcanoTrainingJob" else {})}

    def objects(inputs: Any) -> Any:
        engine.run(lambda: plugin.construct("train", f"torchx:index:{component}", inputs))
        return [item.inputs for item in engine.mocks.resources if item.typ.startswith("kubernetes:")]

    def defaults(properties: Any) -> dict[str, Any]:
        return {name: item["default"] for name, item in properties.items() if "default" in item}

    sent = defaults(found["resources"][f"torchx:index:{component}"]["inputProperties"])
    sent_of_role = defaults(found["types"]["torchx:index:Role"]["properties"])
    assert {"namespace", "waitFor"} <= sent.keys()
    assert sent_of_role.keys() == {"numReplicas", "maxRetries", "retryPolicy"}
    assert objects({**sent, **given, "roles": [{**sent_of_role, **role}]}) == objects(given) != []


def test_an_option_that_is_read_from_the_cluster_has_no_default() -> None:
    inputs = schema()["resources"]["torchx:index:MCADTrainingJob"]["inputProperties"]
    assert ("default" in inputs["apiVersion"], "default" in inputs["podGroupApi"]) == (True, False)


def test_a_kubeconfig_that_an_sdk_encrypts_hides_nothing_else(engine: Any, plugin: Any) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python"}
    inputs = {"queue": "default", "roles": [role]}
    made = []
    for kubeconfig in ("/team/kubeconfig", pulumi.Output.secret("/team/kubeconfig")):
        given = {**inputs, "kubeconfig": kubeconfig}
        engine.run(lambda given=given: plugin.construct("train", "torchx:index:VolcanoTrainingJob", given))
        made.append([(item.typ, item.inputs) for item in engine.mocks.resources if item.typ.startswith("kubernetes:")])
    assert made[0] == made[1] != []


def test_nested_types_have_names_that_code_generation_takes() -> None:
    assert not [name for name in schema()["types"] if name.endswith("Args")]


def test_a_mistake_is_told_with_all_problems_and_no_traceback(engine: Any, plugin: Any) -> None:
    inputs = {"queue": "default", "roles": [{"name": "a", "image": "", "entrypoint": "e", "numReplicas": 0.0}]}

    def program() -> Any:
        result = plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs)
        with pytest.raises(pulumi.InputPropertiesError) as caught:
            _sync_await(result.urn)
        return caught

    told = []
    with pytest.raises(pulumi.RunError):
        engine.run(lambda: told.append(program()))
    (caught,) = told
    assert "roles[0].image" in str(caught.value)
    assert "roles[0].num_replicas" in str(caught.value)


def test_a_job_from_another_language_is_made(engine: Any, plugin: Any) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "numReplicas": 2.0, "env": {"A": 1.0}}
    inputs = {"queue": "default", "onRunningChange": "replace", "roles": [role]}
    result = engine.run(lambda: plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs))
    job = engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job").inputs
    assert len(job["spec"]["tasks"]) == 2
    assert {"name": "A", "value": "1"} in job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    assert result.state.keys() >= {"appId", "jobName", "rank0Host", "podNames", "declared", "observed"}


def test_outputs_have_the_types_of_the_schema_and_the_state_has_the_names_of_python(engine: Any, plugin: Any) -> None:
    resource = {"cpu": 0.5, "memoryMb": 1500.0, "devices": {"example.com/a_b": 1.0}}
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "numReplicas": 2.0, "resource": resource}
    inputs = {"queue": "default", "roles": [role]}
    result = engine.run(lambda: plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs))
    found = {name: engine.value(result.state[name]) for name in ("declared", "observed")}
    described = schema()
    outputs = described["resources"]["torchx:index:VolcanoTrainingJob"]["properties"]
    for name, value in found.items():
        jsonschema.validate(value, {**outputs[name], "types": described["types"]})
    (declared,) = found["declared"]["roles"]
    assert declared["resource"] == {"cpu": 0.5, "gpu": 0, "memoryMb": 1500, "devices": {"example.com/a_b": 1}}
    (state,) = engine.mocks.outputs.values()
    assert state["declared"]["roles"][0]["resource"]["memory_mb"] == 1500
    assert state["observed"]["observed_at"] == found["observed"]["observedAt"]


def test_names_of_an_observation_are_those_of_the_schema_in_every_list(plugin: Any) -> None:
    kind = plugin.get_type_definition(PropertyDefinition(ref="torchx:index:Observed"))
    assert kind is not None
    replica = {"id": 0, "exit_code": 1, "started_at": None}
    seen = {"state": "FAILED", "roles": [{"name": "a_b", "counts": {"FAILED": 1}, "replicas": [replica]}]}
    named = plugin.map_complex_output(seen, kind)
    replica = {"id": 0, "exitCode": 1}
    assert named == {"state": "FAILED", "roles": [{"name": "a_b", "counts": {"FAILED": 1}, "replicas": [replica]}]}


@pytest.mark.parametrize("field", ["numReplicas", "minReplicas", "maxRetries"])
def test_a_number_of_a_role_may_come_from_another_resource(engine: Any, plugin: Any, field: str) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "numReplicas": 2.0}
    assert "plain" not in schema()["types"]["torchx:index:Role"]["properties"][field]

    def objects(value: Any) -> Any:
        inputs = {"queue": "default", "roles": [{**role, field: value}]}
        engine.run(lambda: plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs))
        return [item.inputs for item in engine.mocks.resources if item.typ.startswith("kubernetes:")]

    assert objects(pulumi.Output.from_input(1.0)) == objects(1.0) != []


def test_the_order_in_which_another_language_sends_names_does_not_count(engine: Any, plugin: Any) -> None:
    def env(order: str) -> Any:
        role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "env": dict.fromkeys(order, "1")}
        inputs = {"queue": "default", "roles": [role]}
        engine.run(lambda: plugin.construct("train", "torchx:index:VolcanoTrainingJob", inputs))
        return engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job").inputs

    assert env("CAB") == env("BCA")
