"""The schema that other languages see, and how errors look from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from torchx_pulumi_components.plugin import provider, schema
from torchx_pulumi_components.pulumi_runtime import wait_for

SCHEMA = Path(__file__).resolve().parents[2] / "components" / "schema.json"


def test_the_schema_that_is_checked_in_is_the_one_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text()) == schema(), "run `make schema` and read the diff"


@pytest.mark.parametrize("component", ["VolcanoTrainingJob", "MCADTrainingJob", "PatchedImage"])
def test_every_field_is_documented(component: str) -> None:
    found = schema()
    resource = found["resources"][f"torchx:index:{component}"]
    fields = {**resource["inputProperties"], **{f"output {key}": item for key, item in resource["properties"].items()}}
    for name, kind in found["types"].items():
        fields |= {f"{name}.{key}": item for key, item in kind.get("properties", {}).items()}
    assert [name for name, item in fields.items() if not item.get("description")] == []


def test_nested_types_have_names_that_code_generation_takes() -> None:
    assert not [name for name in schema()["types"] if name.endswith("Args")]


def test_a_mistake_is_told_with_all_problems_and_no_traceback(engine: Any) -> None:
    inputs = {"queue": "default", "roles": [{"name": "a", "image": "", "entrypoint": "e", "numReplicas": 0.0}]}

    def program() -> Any:
        result = provider().construct("train", "torchx:index:VolcanoTrainingJob", inputs)
        with pytest.raises(pulumi.InputPropertiesError) as caught:
            wait_for(result.urn)
        return caught

    told = []
    with pytest.raises(pulumi.RunError):
        engine.run(lambda: told.append(program()))
    (caught,) = told
    assert "roles[0].image" in str(caught.value)
    assert "roles[0].num_replicas" in str(caught.value)


def test_a_job_from_another_language_is_made(engine: Any) -> None:
    role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "numReplicas": 2.0, "env": {"A": 1.0}}
    inputs = {"queue": "default", "onRunningChange": "replace", "roles": [role]}
    result = engine.run(lambda: provider().construct("train", "torchx:index:VolcanoTrainingJob", inputs))
    job = engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job").inputs
    assert len(job["spec"]["tasks"]) == 2
    assert {"name": "A", "value": "1"} in job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["env"]
    assert result.state.keys() >= {"appId", "jobName", "rank0Host", "podNames", "declared", "observed"}


def test_the_order_in_which_another_language_sends_names_does_not_count(engine: Any) -> None:
    def env(order: str) -> Any:
        role = {"name": "trainer", "image": "app:1", "entrypoint": "python", "env": dict.fromkeys(order, "1")}
        inputs = {"queue": "default", "roles": [role]}
        engine.run(lambda: provider().construct("train", "torchx:index:VolcanoTrainingJob", inputs))
        return engine.mocks.one("kubernetes:batch.volcano.sh/v1alpha1:Job").inputs

    assert env("CAB") == env("BCA")
