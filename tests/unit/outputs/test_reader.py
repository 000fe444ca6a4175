"""What a stack says is read back typed, from whatever Pulumi hands out; and the JSON Schema says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import jsonschema
import pytest
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.status import (
    Condition,
    Diagnosis,
    JobState,
    JobStatus,
    ObjectRef,
    Reason,
    ReplicaStatus,
    RoleStatus,
)
from torchx_pulumi.outputs.building import MAX_OBSERVED_BYTES, build_observed, same
from torchx_pulumi.outputs.reader import read_outputs, read_schema
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions

from tests.doc_blocks import block
from tools.output_schema import output_schema

from .whole import build_outputs

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=timezone.utc)

FAILED = JobStatus(
    state=JobState.FAILED,
    reason=Reason.EXIT_CODE,
    message="exited with code 3",
    roles=(
        RoleStatus(
            name="trainer",
            replicas=(
                ReplicaStatus(
                    id=0, pod="p-0", state=JobState.FAILED, reason=Reason.EXIT_CODE, message="exited", exit_code=3
                ),
            ),
        ),
    ),
    conditions=(Condition(type="Finished", status="True", reason=Reason.EXIT_CODE, since=NOW),),
    diagnoses=(
        Diagnosis(
            reason=Reason.EXIT_CODE,
            summary="exited with code 3",
            detail="Traceback ...",
            resolution="read the log",
            objects=(ObjectRef(kind="Pod", namespace="team", name="p-0"), ObjectRef(kind="Queue", name="q")),
        ),
    ),
)


def built(status: JobStatus = FAILED, **more: Any) -> dict[str, Any]:
    spec = JobSpec(name="train", roles=(RoleSpec(name="trainer", image="img:1", entrypoint="python"),))
    plan = plan_job(spec, VolcanoOptions(queue="q", namespace="team"), "train-1")
    given = {"scheduler": "volcano", "spec_hash": "abc", "observed_at": NOW, **more}
    return dict(build_outputs(plan, status, **given))


def without_none(value: Any) -> Any:
    """Leave out what Pulumi's state does not keep."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


@dataclass
class Value:
    value: Any
    secret: bool = False


@dataclass
class Stack:
    given: Mapping[str, Any]

    def outputs(self) -> Mapping[str, Any]:
        return self.given


@pytest.mark.parametrize(
    "wrap",
    [
        lambda value: value,
        lambda value: {"torchx": value, "state": "FAILED"},
        lambda value: json.dumps(value),
        lambda value: json.dumps({"torchx": value}),
        lambda value: {"torchx": Value(value)},
        lambda value: Stack({"torchx": Value(value)}),
        lambda value: without_none(value),
        lambda value: json.loads(json.dumps(without_none(value)), parse_int=float),
    ],
    ids=["object", "outputs", "text", "text of outputs", "output map", "stack", "without null", "floats"],
)
def test_it_is_read_from_whatever_pulumi_hands_out(wrap: Any) -> None:
    value = built(ui_url="https://ui.example/train-1")
    found = read_outputs(wrap(value))
    assert found == value
    assert isinstance(found["observed"]["roles"][0]["replicas"][0]["exit_code"], int)


def test_new_fields_are_left_as_they_are_and_absent_lists_are_empty() -> None:
    value = without_none(built())
    del value["observed"]["diagnoses"]
    value["observed"]["novel"] = {"a": 1}
    found = read_outputs(value)
    assert found["observed"]["diagnoses"] == []
    assert dict(found["observed"])["novel"] == {"a": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no schema_version"),
        ({"schema_version": 2}, "reads up to 1; install"),
        ("{", "not valid JSON"),
        ("[]", "no output `torchx`: found list"),
        ({"torchx": None}, "no output `torchx`: found NoneType"),
        ({"schema_version": True}, "no schema_version"),
        ({"schema_version": 10**400}, "no schema_version"),
        ({"schema_version": float("nan")}, "no schema_version"),
    ],
)
def test_what_is_none_is_refused_with_the_next_step(given: Any, said: str) -> None:
    with pytest.raises(DeployError, match=said):
        read_outputs(given)


def test_all_problems_are_named_at_once() -> None:
    value = built()
    value["observed"]["attempt"] = "once"
    value["observed"]["source"] = 1
    value["declared"]["roles"] = {}
    del value["app"]["id"]
    with pytest.raises(DeployError) as caught:
        read_outputs(value)
    for path in ("observed.attempt", "observed.source", "declared.roles", "app.id"):
        assert f"torchx.{path}" in str(caught.value)


def test_the_schema_takes_what_is_built_also_without_nulls() -> None:
    schema = read_schema()
    for value in (
        built(),
        without_none(built()),
        built(JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message="")),
    ):
        assert list(violations(value, schema, schema)) == []


def test_the_schema_refuses_what_is_wrong_and_knows_every_field() -> None:
    schema, value = read_schema(), built()
    value["observed"]["state"] = "DANCING"
    value["app"].pop("id")
    assert len(list(violations(value, schema, schema))) == 2
    assert list(unknown_fields(built(), schema, schema)) == []


def test_the_schema_is_made_of_the_types() -> None:
    assert read_schema() == output_schema(), "run `make schema`"


def test_every_field_of_the_output_has_a_description() -> None:
    schemas = {"TorchxOutput": output_schema(), **output_schema()["$defs"]}
    values = [(kind, name, field) for kind, made in schemas.items() for name, field in made["properties"].items()]
    assert [(kind, name) for kind, name, field in values if not {"description", "$ref"} & field.keys()] == []


def test_a_real_validator_agrees_where_there_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(read_schema())
    jsonschema.validate(built(), read_schema())


def test_observed_of_a_thousand_failed_replicas_stays_small_and_counts_all() -> None:
    roles = tuple(
        RoleStatus(
            name=f"role{number}",
            replicas=tuple(
                ReplicaStatus(
                    id=index, pod=f"a-long-name-of-a-pod-{number}-{index}", state=JobState.FAILED,
                    reason=Reason.EXIT_CODE, message="é" * 3000, exit_code=1, node=f"node-{index}",
                )
                for index in range(100)
            ),
        )
        for number in range(10)
    )  # fmt: skip
    observed = build_observed(JobStatus(**{**vars_of(FAILED), "roles": roles}), observed_at=NOW)
    assert len(json.dumps(observed)) <= MAX_OBSERVED_BYTES < 64 * 1024
    assert all(role["counts"] == {"FAILED": 100} for role in observed["roles"])
    assert all(role["omitted"] + len(role["replicas"]) == 100 for role in observed["roles"])


def test_a_new_diagnosis_is_a_change_and_the_same_one_is_none() -> None:
    first = build_observed(FAILED, observed_at=NOW)
    again = build_observed(FAILED, observed_at=datetime(2027, 1, 1, tzinfo=timezone.utc), previous=without_none(first))
    assert again["observed_at"] == first["observed_at"]
    other = build_observed(JobStatus(**{**vars_of(FAILED), "diagnoses": ()}), observed_at=NOW)
    assert not same(first, other)


def vars_of(status: JobStatus) -> dict[str, Any]:
    return {name: getattr(status, name) for name in status.__dataclass_fields__}


TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "null": lambda value: value is None,
}


def violations(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "$") -> Any:
    """Yield what breaks the part of JSON Schema that ours uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(TYPES[kind](value) for kind in kinds):
        yield f"{path}: {value!r} is none of {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r}"
    if isinstance(value, dict):
        yield from (f"{path}.{name} is absent" for name in schema.get("required", []) if name not in value)
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            yield from violations(item, inner, root, f"{path}.{name}")
    if isinstance(value, list):
        for item in value:
            yield from violations(item, schema.get("items", {}), root, f"{path}[]")


def unknown_fields(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "$") -> Any:
    """Yield what is built and not in the schema."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict) and "additionalProperties" not in schema:
        for name, item in value.items():
            if name not in schema.get("properties", {}):
                yield f"{path}.{name}"
            else:
                yield from unknown_fields(item, schema["properties"][name], root, f"{path}.{name}")
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(item, schema.get("items", {}), root, f"{path}[]")


def test_the_program_of_the_page_reads_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("docs/status.md", "read-outputs"), {"text": json.dumps({"torchx": built()})})
    assert capsys.readouterr().out == "FAILED exited with code 3\n"
