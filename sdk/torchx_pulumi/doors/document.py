"""YAML or JSON text -> plain data that remembers its lines. Knows nothing of jobs but where text is wanted."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from torchx_pulumi.errors import Problem
from torchx_pulumi.redaction import yaml_problem

_WANTS_TEXT = re.compile(r"name|roles\[\d+\]\.(name|image|entrypoint|args\[\d+\]|env\.[^.]*)")
"""Paths whose scalars are text as written: `no` stays `no`, 0.10 stays 0.10."""

_TUPLE_TAG = "tag:yaml.org,2002:python/tuple"


class DocumentError(ValueError):
    """The text is no YAML or JSON; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Parsed text."""

    data: Any
    lines: dict[str, int] = field(default_factory=dict)
    """Path to line, from 1."""

    def locate(self, problem: Problem) -> Problem:
        """Add the line of the closest part that the text has."""
        path = problem.path.replace("['", ".").replace("']", "")
        while path and path not in self.lines:
            path = re.sub(r"(\.[^.\[]*|\[[^\[]*|^[^.\[]*)$", "", path)
        where = f" (line {self.lines[path]})" if path in self.lines else ""
        return Problem(problem.path, f"{problem.message}{where}", rule=problem.rule)


def parse_document(text: str) -> Document:
    """Parse YAML, or JSON with any indentation.

    Raises:
        DocumentError: It is neither, or a key stands twice in one mapping.
    """
    lines: dict[str, int] = {}
    try:
        node = yaml.compose(_without_json_tabs(text), Loader=yaml.SafeLoader)
        return Document(data=None if node is None else _plain(node, "", lines), lines=lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise DocumentError(f"{line}no valid YAML or JSON: {yaml_problem(error)}") from None
    except yaml.YAMLError as error:
        raise DocumentError("no valid YAML or JSON: it has characters that YAML does not allow") from error
    except RecursionError as error:
        raise DocumentError("is nested too deep") from error


def _without_json_tabs(text: str) -> str:
    """JSON may be indented by tabs, which YAML forbids; nothing else of JSON is foreign to YAML."""
    if text.lstrip().startswith("{") and "\t" in text:
        try:
            json.loads(text)
        except ValueError:
            return text
        return text.replace("\t", " ")
    return text


def _plain(node: yaml.Node, path: str, lines: dict[str, int]) -> Any:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, lines)
    if isinstance(node, yaml.SequenceNode):
        items = [_plain(item, f"{path}[{index}]", lines) for index, item in enumerate(node.value)]
        return tuple(items) if node.tag == _TUPLE_TAG else items
    if _WANTS_TEXT.fullmatch(path) and not node.tag.endswith(":null"):
        return node.value
    return _scalar(node)


def _mapping(node: yaml.MappingNode, path: str, lines: dict[str, int]) -> dict[str, Any]:
    _check_keys(node)
    yaml.SafeLoader("").flatten_mapping(node)  # merge keys (<<) become pairs in front of the mapping's own
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        inner = f"{path}.{key_node.value}" if path else key_node.value
        made[key_node.value] = _plain(value_node, inner, lines)
        lines[inner] = key_node.start_mark.line + 1
    return made


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise DocumentError(f"line {line}: a key must be text")
        if key_node.value in seen:
            raise DocumentError(f"line {line}: the key {key_node.value!r} stands twice in one mapping; remove one")
        seen.add(key_node.value)


def _scalar(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise DocumentError(f"line {node.start_mark.line + 1}: the value cannot be read; write it in quotes") from error
    finally:
        loader.dispose()
    # Dates and bytes have no place in an AppDef; as written they are text.
    return value if value is None or isinstance(value, (str, bool, int, float)) else node.value
