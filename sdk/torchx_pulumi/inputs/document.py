"""YAML or JSON text as plain data with the line of every part. Values of fields of text stay as written."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.redaction import yaml_problem

_WANTS_TEXT = re.compile(r"name|roles\[\d+\]\.(name|image|entrypoint|args\[\d+\]|env\.[^.]*)")
"""Paths whose scalars are text as written: `no` stays `no`, 0.10 stays 0.10."""

_TUPLE_TAG = "tag:yaml.org,2002:python/tuple"


class DocumentError(ValueError):
    """The text is not valid YAML or JSON; the message has the line."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in a JSON text, as it is written."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Parsed text."""

    data: Any
    lines: Callable[[], Mapping[str, int]]
    """Returns path to line, from 1. Empty: the lines are not known."""

    def locate(self, problem: Problem) -> Problem:
        """Add the line of the closest part that the text has."""
        lines = self.lines()
        path = problem.path.replace("['", ".").replace("']", "")
        while path and path not in lines:
            path = re.sub(r"(\.[^.\[]*|\[[^\[]*|^[^.\[]*)$", "", path)
        where = f" (line {lines[path]})" if path in lines else ""
        return Problem(problem.path, f"{problem.message}{where}", rule=problem.rule)


def parse_document(text: str) -> Document:
    """Parse YAML, or JSON with any indentation.

    JSON is read as JSON: YAML refuses or changes characters and numbers that JSON has.

    Raises:
        DocumentError: It is neither, or a mapping has the same key twice.
    """
    if not text.lstrip().startswith("{"):
        return _parse_yaml(text)
    try:
        data = json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=_refuse, object_pairs_hook=_pairs
        )
        return Document(data=_of_json(data, ""), lines=functools.cache(lambda: _lines_of(text)))
    except DocumentError:
        raise
    except RecursionError as error:
        raise DocumentError("is nested too deep") from error
    except ValueError:
        return _parse_yaml(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise DocumentError(f"the key {key!r} stands twice in one mapping; remove one")
        made[key] = value
    return made


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _of_json(value: object, path: str) -> Any:
    """Return JSON data with its numbers, in fields of text as they are written."""
    if isinstance(value, dict):
        return {key: _of_json(item, f"{path}.{key}" if path else key) for key, item in value.items()}
    if isinstance(value, list):
        return [_of_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, _Number) or _WANTS_TEXT.fullmatch(path):
        return value.text if isinstance(value, _Number) else value
    try:
        return int(value.text) if value.text.lstrip("-").isdigit() else float(value.text)
    except ValueError as error:
        raise DocumentError(f"{path}: the value cannot be read; write it in quotes") from error


def _lines_of(text: str) -> Mapping[str, int]:
    """Return the line of each path of a JSON text; empty if YAML cannot read it."""
    lines: dict[str, int] = {}
    with contextlib.suppress(yaml.YAMLError, RecursionError, DocumentError):
        # YAML forbids the tabs of JSON's indentation; texts in JSON have none.
        node = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)
        if node is not None:
            _plain(node, "", lines)
    return lines


def _parse_yaml(text: str) -> Document:
    lines: dict[str, int] = {}
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return Document(data=None if node is None else _plain(node, "", lines), lines=lambda: lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise DocumentError(f"{line}not valid YAML or JSON: {yaml_problem(error)}") from None
    except yaml.YAMLError as error:
        raise DocumentError("not valid YAML or JSON: it has characters that YAML does not allow") from error
    except RecursionError as error:
        raise DocumentError("is nested too deep") from error


def _plain(node: yaml.Node, path: str, lines: dict[str, int]) -> Any:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines)
    if isinstance(node, yaml.SequenceNode):
        items = [_plain(item, f"{path}[{index}]", lines) for index, item in enumerate(node.value)]
        return tuple(items) if node.tag == _TUPLE_TAG else items
    if _WANTS_TEXT.fullmatch(path) and not node.tag.endswith(":null"):
        return node.value
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(f"line {node.start_mark.line + 1}: the value cannot be read; write it in quotes") from error
    finally:
        loader.dispose()
    # Dates and bytes have no place in an AppDef; as written they are text.
    return value if value is None or isinstance(value, (str, bool, int, float)) else node.value


def _mapping(node: yaml.MappingNode, path: str, lines: dict[str, int]) -> dict[str, Any]:
    keys = set()
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise DocumentError(f"line {line}: a key must be text")
        if key_node.value in keys:
            raise DocumentError(f"line {line}: the key {key_node.value!r} stands twice in one mapping; remove one")
        keys.add(key_node.value)
    yaml.SafeLoader("").flatten_mapping(node)  # merge keys (<<) become pairs in front of the mapping's own
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        inner = f"{path}.{key_node.value}" if path else key_node.value
        made[key_node.value] = _plain(value_node, inner, lines)
        lines[inner] = key_node.start_mark.line + 1
    return made
