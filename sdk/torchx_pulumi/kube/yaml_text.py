"""YAML text that YAML 1.1 and 1.2 readers parse to the same plain data.

PyYAML is not used: it leaves `1e-4` and `y` without quotes, which kubectl reads as a number and a boolean, and needs
ten times as long for a manifest of a thousand replicas (docs/decisions/0006).
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


def _write(value: Any, pad: str, lead: str, out: list[str]) -> None:
    """Append the lines of a value: the first one begins with `lead`, the others with `pad`."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _write_pair(f"{lead}{_scalar(key)}:", item, pad, out)
            lead = pad
    elif isinstance(value, (list, tuple)) and value:
        for item in value:
            _write(item, f"{pad}  ", f"{lead}- ", out)
            lead = pad
    else:
        out.append(f"{lead}{_scalar(value)}")


def _write_pair(start: str, item: Any, pad: str, out: list[str]) -> None:
    if isinstance(item, dict) and item:
        out.append(start)
        _write(item, f"{pad}  ", f"{pad}  ", out)
    elif isinstance(item, (list, tuple)) and item:
        out.append(start)
        _write(item, pad, pad, out)
    else:
        out.append(f"{start} {_scalar(item)}")


def _scalar(value: Any) -> str:
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
    return quoted if quoted.isprintable() else "".join(map(_printable, quoted))


def _printable(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
