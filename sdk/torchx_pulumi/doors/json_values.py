"""Values of Python that JSON has no form for, as JSON values and back: tuples, mappings with other keys, nulls.

An overlay means another thing with a tuple than with a list, and Pulumi's state drops nulls from mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

MARK = "$torchx"
"""Key of a mapping that stands for a value: its kind is `tuple`, `pairs`, `null` or `text`."""


def write_value(value: Any) -> Any:
    """Return a value as JSON values. Of what is neither JSON nor one of the kinds above, the text is kept.

    >>> write_value({"a": (1, None)}), write_value({"a": None})
    ({'a': {'$torchx': 'tuple', 'value': [1, None]}}, {'a': {'$torchx': 'null'}})
    """
    if isinstance(value, Enum):
        return write_value(value.value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and MARK not in value:
            return {str(key): {MARK: "null"} if item is None else write_value(item) for key, item in value.items()}
        return {MARK: "pairs", "value": [[write_value(key), write_value(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [write_value(item) for item in value]
    if isinstance(value, tuple):
        return {MARK: "tuple", "value": [write_value(item) for item in value]}
    return {MARK: "text", "value": str(value)}


def read_value(value: Any) -> Any:
    """Return what `write_value` wrote.

    >>> read_value(write_value({"a": (1, {2: None})}))
    {'a': (1, {2: None})}
    """
    if isinstance(value, list):
        return [read_value(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get(MARK)
    if kind == "pairs":
        return {read_value(key): read_value(item) for key, item in value["value"]}
    if kind == "tuple":
        return tuple(read_value(item) for item in value["value"])
    if kind == "null":
        return None
    if kind == "text":
        return value["value"]
    return {key: read_value(item) for key, item in value.items()}
