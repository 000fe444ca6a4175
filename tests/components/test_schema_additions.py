"""The schema only grows: programs and generated SDKs of a released version keep working.

`released_schema` has the schema of each release, a copy of components/schema.json as of its tag. `SHA256SUMS` freezes
those of released versions; a release that breaks programs on purpose leaves them out here.
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


TEXTS = frozenset(
    ("version", "description", "displayName", "keywords", "homepage", "license", "logoUrl", "repository"),
)
"""Keys whose values people read. Every other one may change generated SDKs, or what they send."""
GROUPS = frozenset(("language", "resources", "types", "inputProperties", "properties", "enum"))
"""Keys whose values have an entry for each name. A later schema may have more of them."""


def breaks(old: Any, new: Any, place: str = "", *, names: bool = False) -> Iterator[str]:
    """Yield what existed and is not equal, but for texts; with `names`, the keys are those of a group."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield f"{place}: changed from {old!r} to {new!r}"
        return
    for key in sorted(old.keys() | new.keys()):
        path = f"{place}/{key}".removeprefix("/")
        if names and key not in new:
            yield f"{path}: removed or renamed"
        elif names and key not in old:
            if new[key].get("required"):
                yield f"{path}: is new, and required"
        elif names or key not in TEXTS:
            yield from breaks(old.get(key), new.get(key), path, names=key in GROUPS and not names)


def schema_breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the changes that break a program or an SDK of the old schema."""
    return list(breaks(comparable(old), comparable(new)))


def comparable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose lists are groups: values of an enum by name, and `required` as a part of the property."""
    resources = {
        token: spec | marked(spec, "inputProperties", "requiredInputs") | marked(spec, "properties", "required", "set")
        for token, spec in schema.get("resources", {}).items()
    }
    types = {
        token: spec
        | marked(spec, "properties", "required")
        | {"enum": {value["name"]: value for value in spec.get("enum", [])}}
        for token, spec in schema.get("types", {}).items()
    }
    return {**schema, "resources": resources, "types": types}


def marked(spec: Mapping[str, Any], group: str, required: str, mark: str = "required") -> dict[str, Any]:
    """Return a group that marks its required properties, and no list of them."""
    listed = spec.get(required, [])
    marks = {name: {**item, mark: name in listed} for name, item in spec.get(group, {}).items()}
    return {group: marks, required: None}


@pytest.mark.parametrize("released", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_everything_of_a_released_schema_is_there(released: Path) -> None:
    old = json.loads(released.read_text())
    assert old["version"] == released.stem
    assert schema_breaks(old, json.loads(CHECKED_IN.read_text())) == []


JOB = "resources/torchx:index:VolcanoTrainingJob"
INPUTS = f"{JOB}/inputProperties"
ROLE = "types/torchx:index:Role"
GONE = "removed or renamed"


def changed(schema: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema with other values at some places; None removes what is there."""
    new = copy.deepcopy(schema)
    for place, value in changes.items():
        *parents, last = place.split("/")
        item: Any = new
        for key in parents:
            item = item[int(key) if isinstance(item, list) else key]
        if value is None:
            del item[last]
        else:
            item[last] = value
    return new


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "torch"}, "name: changed from 'torchx' to 'torch'"),
        ({"pluginDownloadURL": None}, "pluginDownloadURL: changed from 'git://"),
        ({"language/java": None}, f"language/java: {GONE}"),
        ({"language/nodejs/packageName": "@pulumi/torchx"}, "language/nodejs/packageName: changed from '@torchx-"),
        ({"types": None}, f"types/torchx:index:AppWrapperVersion: {GONE}"),
        ({JOB: None}, f"{JOB}: {GONE}"),
        ({ROLE: None}, f"{ROLE}: {GONE}"),
        ({f"{JOB}/isComponent": None}, f"{JOB}/isComponent: changed from True to None"),
        ({f"{INPUTS}/queue": None}, f"{INPUTS}/queue: {GONE}"),
        ({f"{JOB}/properties/uid": None}, f"{JOB}/properties/uid: {GONE}"),
        ({f"{ROLE}/properties/env": None}, f"{ROLE}/properties/env: {GONE}"),
        ({f"{INPUTS}/queue/type": "integer"}, f"{INPUTS}/queue/type: changed from 'string' to 'integer'"),
        ({f"{INPUTS}/queue/plain": True}, f"{INPUTS}/queue/plain: changed from None to True"),
        ({f"{INPUTS}/queue/const": "x"}, f"{INPUTS}/queue/const: changed from None to 'x'"),
        ({f"{INPUTS}/queue/oneOf": []}, f"{INPUTS}/queue/oneOf: changed from None to []"),
        ({f"{INPUTS}/queue/default": "x"}, f"{INPUTS}/queue/default: changed from None to 'x'"),
        ({f"{INPUTS}/waitFor/default": None}, f"{INPUTS}/waitFor/default: changed from 'created' to None"),
        ({f"{INPUTS}/kubeconfig/secret": None}, f"{INPUTS}/kubeconfig/secret: changed from True to None"),
        ({f"{ROLE}/properties/env/additionalProperties/type": "number"}, f"{ROLE}/properties/env/additionalProp"),
        ({f"{JOB}/requiredInputs": ["queue", "roles", "waitFor"]}, f"{INPUTS}/waitFor/required: changed from False"),
        ({f"{INPUTS}/x": {}, f"{JOB}/requiredInputs": ["queue", "roles", "x"]}, f"{INPUTS}/x: is new, and required"),
        ({f"{ROLE}/required": []}, f"{ROLE}/properties/entrypoint/required: changed from True to False"),
        ({f"{JOB}/required": []}, f"{JOB}/properties/appHandle/set: changed from True to False"),
        ({"types/torchx:index:WaitFor/type": "integer"}, "types/torchx:index:WaitFor/type: changed from 'string'"),
        ({"types/torchx:index:WaitFor/enum/0/value": "x"}, "types/torchx:index:WaitFor/enum/CREATED/value: changed"),
        ({"types/torchx:index:WaitFor/enum/0/name": "X"}, f"types/torchx:index:WaitFor/enum/CREATED: {GONE}"),
    ],
)  # fmt: skip
def test_each_kind_of_break_is_named(changes: Mapping[str, Any], said: str) -> None:
    old = json.loads(CHECKED_IN.read_text())
    assert schema_breaks(old, changed(old, changes))[0].startswith(said)


def test_additions_and_texts_are_no_breaks() -> None:
    old = json.loads(CHECKED_IN.read_text())
    outputs = old["resources"]["torchx:index:VolcanoTrainingJob"]["required"]
    changes = {
        "version": "0.3.0",
        "language/dart": {},
        "resources/x": {},
        "types/x": {},
        "types/torchx:index:WaitFor/enum/0/description": "Text.",
        f"{INPUTS}/queue/description": "Text.",
        f"{INPUTS}/description": {"default": 1},
        f"{JOB}/properties/x": {},
        f"{JOB}/required": [*outputs, "x"],
        f"{ROLE}/properties/x": {},
    }
    assert schema_breaks(old, changed(old, changes)) == []
    assert schema_breaks(changed(old, {f"{INPUTS}/description": {}}), old) == [f"{INPUTS}/description: {GONE}"]
