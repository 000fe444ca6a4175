"""Write the JSON Schema (2020-12) of the stack output `torchx` from its types: `python -m tools.output_schema`."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin

from torchx_pulumi.model.status import JobState
from torchx_pulumi.outputs import types as output_types
from typing_extensions import get_type_hints, is_typeddict

_OPTIONAL = ("diagnoses",)
"""Fields that are not required although they are never null."""

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}

_VALUES: Mapping[tuple[str, str], Any] = {
    ("TorchxOutput", "schema_version"): {"const": output_types.SCHEMA_VERSION},
    ("AppOutput", "scheduler"): {"enum": ["volcano", "mcad"]},
    ("ObservedCondition", "status"): {"enum": ["True", "False", "Unknown"]},
    ("ObservedReplica", "state"): {"enum": [state.value for state in JobState]},
    ("Observed", "state"): {"enum": [state.value for state in JobState]},
    ("Observed", "source"): {"enum": [*get_args(output_types.Source)]},
    ("DeclaredResource", "cpu"): {"minimum": 0},
}
"""Limits of a value that its type does not have. Readers accept other values, which a later release may write."""


def output_schema() -> dict[str, Any]:
    """Return the schema."""
    used: dict[str, Any] = {}
    root = _object(output_types.TorchxOutput, used)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The stack output torchx",
        **root,
        "$defs": used,
    }


def _object(kind: Any, used: dict[str, Any]) -> dict[str, Any]:
    properties, required = {}, []
    for name, hint in get_type_hints(kind).items():
        properties[name] = _value(hint, used) | _VALUES.get((kind.__name__, name), {})
        if name.endswith("_at") or name == "since":
            properties[name]["format"] = "date-time"
        if text := _texts()[kind.__name__].get(name):
            properties[name]["description"] = text
        if type(None) not in get_args(hint) and name not in _OPTIONAL:
            required.append(name)
    description = " ".join(str(kind.__doc__).split())
    return {"type": "object", "description": description, "properties": properties, "required": required}


def _value(hint: Any, used: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        if hint.__name__ not in used:
            used[hint.__name__] = {}
            used[hint.__name__] = _object(hint, used)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (Union, types.UnionType):
        value = _value(arguments[0], used)
        return {"type": [value["type"], "null"]} if "type" in value else {"anyOf": [value, {"type": "null"}]}
    if origin is list:
        return {"type": "array", "items": _value(arguments[0], used)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(arguments[1], used)}
    return {"type": _PLAIN[hint]}


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """Return class to field to the text under it."""
    found: dict[str, dict[str, str]] = {}
    for each in ast.parse(inspect.getsource(output_types)).body:
        if not isinstance(each, ast.ClassDef):
            continue
        texts = found.setdefault(each.name, {})
        for field, below in zip(each.body, each.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                texts[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(output_schema(), indent=2) + "\n")
