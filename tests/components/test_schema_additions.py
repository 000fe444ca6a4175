"""The schema only grows: programs and generated SDKs of a released version keep working.

`released_schema` has the schema of each release, a copy of components/schema.json as of its tag. A file is frozen once
its version is released; a release that breaks programs on purpose removes the files before it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("released_schema")
CHECKED_IN = Path(__file__).resolve().parents[2] / "components" / "schema.json"


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a program or an SDK of the old schema does not find in the new one."""
    for language, settings in old["language"].items():
        for key, value in settings.items():
            if new["language"][language].get(key) != value:
                yield f"language.{language}.{key}: changed from {value!r}"
    for part in ("resources", "types"):
        for token, spec in old[part].items():
            if token in new[part]:
                yield from spec_breaks(token, spec, new[part][token])
            else:
                yield f"{token}: removed or renamed"


def spec_breaks(token: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for group, required in (("inputProperties", "requiredInputs"), ("properties", "required")):
        now = new.get(group, {})
        for name, item in old.get(group, {}).items():
            path = f"{token}.{group}.{name}"
            if name not in now:
                yield f"{path}: removed or renamed"
                continue
            if type_of(item) != type_of(now[name]):
                yield f"{path}: type changed from {type_of(item)}"
            if "default" in item and item["default"] != now[name].get("default"):
                yield f"{path}: default changed from {item['default']!r}"
            if item.get("secret") and not now[name].get("secret"):
                yield f"{path}: is no longer secret"
        before, after = set(old.get(required, [])), set(new.get(required, []))
        if group == "properties" and "inputProperties" in old:
            for name in sorted((before - after) & now.keys()):
                yield f"{token}.properties.{name}: can now be unset"
        else:
            for name in sorted(after - before):
                yield f"{token}.{required}: {name} is now required"
    values = {(item["name"], item["value"]) for item in new.get("enum", [])}
    for item in old.get("enum", []):
        if (item["name"], item["value"]) not in values:
            yield f"{token}.enum.{item['name']}: removed or changed from {item['value']!r}"


def type_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the type of a property without what only describes it."""
    kept = {key: item[key] for key in ("type", "$ref", "plain") if key in item}
    return kept | {key: type_of(item[key]) for key in ("items", "additionalProperties") if key in item}


@pytest.mark.parametrize("released", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_everything_of_a_released_schema_is_there(released: Path) -> None:
    old = json.loads(released.read_text())
    assert old["version"] == released.stem
    assert list(breaks(old, json.loads(CHECKED_IN.read_text()))) == []


JOB = "torchx:index:VolcanoTrainingJob"
INPUTS = f"resources/{JOB}/inputProperties"
ROLE = "types/torchx:index:Role"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (f"resources/{JOB}", None, f"{JOB}: removed or renamed"),
        (ROLE, None, "torchx:index:Role: removed or renamed"),
        (f"{INPUTS}/queue", None, f"{JOB}.inputProperties.queue: removed or renamed"),
        (f"resources/{JOB}/properties/uid", None, f"{JOB}.properties.uid: removed or renamed"),
        (f"{ROLE}/properties/env", None, "torchx:index:Role.properties.env: removed or renamed"),
        (f"{INPUTS}/queue/type", "integer", f"{JOB}.inputProperties.queue: type changed from {{'type': 'string'}}"),
        (f"{INPUTS}/queue/plain", True, f"{JOB}.inputProperties.queue: type changed from {{'type': 'string'}}"),
        (f"{ROLE}/properties/env/additionalProperties/type", "number", "torchx:index:Role.properties.env: type"),
        (f"{INPUTS}/waitFor/default", "running", f"{JOB}.inputProperties.waitFor: default changed from 'created'"),
        (f"{INPUTS}/waitFor/default", None, f"{JOB}.inputProperties.waitFor: default changed from 'created'"),
        (f"{INPUTS}/kubeconfig/secret", None, f"{JOB}.inputProperties.kubeconfig: is no longer secret"),
        (f"resources/{JOB}/requiredInputs", ["queue", "roles", "x"], f"{JOB}.requiredInputs: x is now required"),
        (f"{ROLE}/required", ["entrypoint", "env", "image", "name"], "torchx:index:Role.required: env is now required"),
        (f"resources/{JOB}/required", ["appHandle"], f"{JOB}.properties.appId: can now be unset"),
        ("types/torchx:index:WaitFor/enum/0/value", "new", "torchx:index:WaitFor.enum.CREATED: removed or changed"),
        ("language/nodejs/packageName", "@pulumi/torchx", "language.nodejs.packageName: changed from"),
    ],
)  # fmt: skip
def test_each_kind_of_break_is_named(place: str, value: Any, message: str) -> None:
    old = json.loads(CHECKED_IN.read_text())
    new = copy.deepcopy(old)
    *parents, last = place.split("/")
    item: Any = new
    for key in parents:
        item = item[int(key) if isinstance(item, list) else key]
    if value is None:
        del item[last]
    else:
        item[last] = value
    found = list(breaks(old, new))
    assert found[0].startswith(message)
    assert list(breaks(old, old)) == []
