"""YAML text that YAML 1.1 and 1.2 readers parse to the same plain data.

PyYAML is not used: its dumper in C needs eight times as long, 0.7 s for the largest manifest that etcd takes, and it
leaves `1e-4` and `y` without quotes, which kubectl reads as a number and a boolean (docs/decisions/0006).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][-A-Za-z0-9_./@=+]*(:[-A-Za-z0-9_./@=+]+)*")
"""Texts that need no quotes, except the words below. All others are written as JSON strings."""

_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def to_yaml(data: Any) -> str:
    """Return mappings, lists, texts, numbers, booleans and null as YAML, with keys in their order.

    >>> print(to_yaml({"b": "1e-4", "a": ["y", 1, {"c": [], "d": "x: y"}]}), end="")
    b: "1e-4"
    a:
    - "y"
    - 1
    - c: []
      d: "x: y"
    """
    out: list[str] = []
    _write(data, "", "", out)
    return "\n".join(out) + "\n"


def _write(value: object, pad: str, lead: str, out: list[str]) -> None:
    """Append the lines of a value: the first one begins with `lead`, the others with `pad`."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            start = f"{lead}{_scalar(key)}:"
            lead = pad
            if isinstance(item, (dict, list, tuple)) and item:
                out.append(start)
                inner = f"{pad}  " if isinstance(item, dict) else pad
                _write(item, inner, inner, out)
            else:
                out.append(f"{start} {_scalar(item)}")
    elif isinstance(value, (list, tuple)) and value:
        for item in value:
            _write(item, f"{pad}  ", f"{lead}- ", out)
            lead = pad
    else:
        out.append(f"{lead}{_scalar(value)}")


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[]"
    return json.dumps(value)


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    # YAML has no surrogate pairs, with which JSON escapes most letters.
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)
