"""Codec for Python values without a JSON form: tuples, mappings with keys other than text, nulls.

In an overlay a tuple replaces a list and a list extends it. Pulumi's state drops nulls from mappings and sorts keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

MARK = "$torchx"
"""Key of a mapping that encodes a value; its value is the kind: `tuple`, `pairs`, `null` or `text`."""

KEY_ORDER = "key_order"
"""Key of a role for the order of keys in its mappings, if they are not sorted."""

_OPERATOR = "__"
"""Prefix of the keys of a pod overlay whose order has a meaning."""


def write_value(value: object) -> Any:
    """Return a value as JSON values.

    A set becomes a list in a fixed order. Any other value becomes its text.

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
        if all(isinstance(key, str) for key in value) and MARK not in value and not _loses_order(value):
            # Pulumi's state drops nulls from mappings.
            return {
                str(write_value(key)): {MARK: "null"} if item is None else write_value(item)
                for key, item in value.items()
            }
        return {MARK: "pairs", "value": [[write_value(key), write_value(item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [write_value(item) for item in value]
    if isinstance(value, tuple):
        return {MARK: "tuple", "value": [write_value(item) for item in value]}
    if isinstance(value, Set):
        return sorted(map(write_value, value), key=repr)
    return {MARK: "text", "value": str(value)}


def _loses_order(value: Mapping[str, Any]) -> bool:
    """Return whether sorting the keys of a mapping changes its meaning."""
    keys = list(value)
    return any(key.startswith(_OPERATOR) for key in keys) and keys != sorted(keys)


def in_key_order(value: object, keys: object) -> Any:
    """Return a mapping with some of its keys first, in their order.

    >>> in_key_order({"a": 1, "b": 2}, ["b", "gone", "a"]), in_key_order({"a": 1}, None)
    ({'b': 2, 'a': 1}, {'a': 1})
    """
    if not isinstance(value, Mapping) or not isinstance(keys, list):
        return value
    return {**{key: value[key] for key in keys if key in value}, **value}


def is_text_only(value: object) -> bool:
    """Return whether a written value keeps only the text of the original."""
    return isinstance(value, Mapping) and value.get(MARK) == "text"


def read_value(value: object) -> Any:
    """Read what `write_value` wrote.

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
