"""Changing single values in the text of a checkpoint; every other character stays as the engine wrote it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def with_values(text: str, changes: Mapping[tuple[str | int, ...], Any]) -> str:
    """Return a JSON text with some of its values replaced.

    Args:
        text: The text.
        changes: Path of a value, keys and places from the outside in, to the new value. Each of them must be there.

    Raises:
        KeyError: A path leads nowhere.

    >>> with_values('{"a": [1.50, {"b": 2}], "c": 1e3}', {("a", 1, "b"): "x"})
    '{"a": [1.50, {"b": "x"}], "c": 1e3}'
    """
    found = sorted((*_span(text, path), value) for path, value in changes.items())
    parts, position = [], 0
    for start, end, value in found:
        parts += [text[position:start], json.dumps(value, ensure_ascii=False, separators=(",", ":"))]
        position = end
    return "".join([*parts, text[position:]])


def _span(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """Return where a value begins and ends."""
    start = _skip(text, 0)
    end = len(text)
    for step in path:
        for key, first, last in _members(text, start):
            if key == step:
                start, end = first, last
                break
        else:
            raise KeyError(".".join(map(str, path)))
    return start, end


def _members(text: str, start: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield key or place, begin and end of the values in the object or list that begins at a position."""
    if text[start] not in "{[":
        return
    keyed, place, position = text[start] == "{", 0, _skip(text, start + 1)
    while text[position] not in "}]":
        key: str | int = place
        if keyed:
            key, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        yield key, position, end
        place, position = place + 1, _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)


def _skip(text: str, position: int) -> int:
    match = _BLANKS.match(text, position)
    return position if match is None else match.end()
