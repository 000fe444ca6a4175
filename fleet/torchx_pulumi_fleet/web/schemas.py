"""JSON schemas of the answers of the API for the OpenAPI document, made from the types of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from torchx_pulumi_fleet.views.columns import COLUMNS, DETAILS, AppSummary, Column
from torchx_pulumi_fleet.web.answers import ANSWERS

Schema = dict[str, Any]

NAMES: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    NoneType: "null",
    dict: "object",
}
"""Names of JSON's types."""

NAMED: Final[Mapping[Any, str]] = {AppSummary: "AppSummary", **{answer: name for name, answer in ANSWERS.items()}}
"""Types that have a schema of their own, with its name."""


def reference(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def schema_of(kind: Any) -> Schema:
    """Return the schema of a type of an answer.

    Args:
        kind: A type of `NAMES`, a list, a union of plain types, a mapping with text as keys, or a reference to a named
            type. A text with which it is annotated is its description; a dict has further words of the schema.

    >>> schema_of(Annotated[list[int], "Numbers."])
    {'type': 'array', 'items': {'type': 'integer'}, 'description': 'Numbers.'}
    """
    arguments = get_args(kind)
    if get_origin(kind) is Annotated:
        made = schema_of(arguments[0])
        for note in arguments[1:]:
            made |= note if isinstance(note, dict) else {"description": note}
        return made
    if kind in NAMED:
        return reference(NAMED[kind])
    if isinstance(kind, UnionType):
        return {"type": [NAMES[each] for each in arguments]}
    if get_origin(kind) is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if get_origin(kind) in (dict, Mapping):
        return {"type": "object", **({} if arguments[1] is Any else {"additionalProperties": schema_of(arguments[1])})}
    return {"type": NAMES[kind]}


def object_schema(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object that has these properties, and no others."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def column_schemas(columns: Iterable[Column]) -> dict[str, Schema]:
    """Return the schemas of the values of columns by their names."""
    return {column.key: {**schema_of(column.kind), "description": column.help} for column in columns}


SCHEMAS: Final[Mapping[str, Schema]] = {
    "AppSummary": object_schema(column_schemas(COLUMNS)),
    "App": object_schema(
        {**column_schemas((*COLUMNS, *DETAILS)), "logs": schema_of(Annotated[bool, "This server serves its logs."])}
    ),
} | {
    name: object_schema({key: schema_of(kind) for key, kind in get_type_hints(answer, include_extras=True).items()})
    for name, answer in ANSWERS.items()
}
"""Schemas of the document by name."""
