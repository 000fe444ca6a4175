"""Codec between plain JSON values and typed ones (frozen dataclasses, TypedDicts), driven by their type hints. Pure.

Values of other releases are read: unknown fields are ignored, fields that are absent or null take their
default, and whole numbers may be floats, as Pulumi's state has one kind of number.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import is_finite, time_at
from torchx_pulumi.model.timestamps import format_time

Value = TypeVar("Value")

Fallbacks = Mapping[type[Enum], Enum]
"""Enum to the member that replaces a value of a later release. In any other enum, such a value is a problem."""

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def to_json(value: object) -> Any:
    """Return a value as plain JSON values: dataclasses as mappings of all fields, times as RFC 3339 in UTC."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    return value


def without_none(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a written value that are not None."""
    return {name: item for name, item in value.items() if item is not None}


def from_json(kind: type[Value], value: object, path: str = "", fallbacks: Fallbacks | None = None) -> Value:
    """Return a plain JSON value as a type.

    Args:
        kind: A dataclass, a TypedDict, or any type that their fields may have.
        value: The JSON value.
        path: Name in messages. Empty: paths of problems begin with the field.
        fallbacks: Members for values of a later release. None: such values are problems.

    Raises:
        ValueError: The value is not of the type; the message names every problem, one to a line.
    """
    problems: list[str] = []
    found = _Reader(problems, fallbacks or {}).read(kind, value, path)
    if problems:
        raise ValueError("\n".join(problems))
    return cast("Value", found)


def check_version(value: object, where: str, what: str, newest: int) -> None:
    """Refuse a written value without a version, or of a version after the newest one that can be read.

    `where` is its place and `what` the name of the wanted value, for messages.

    Raises:
        DeployError: The value has no `version`, or a later one.
    """
    version = value.get("version") if isinstance(value, Mapping) else None
    if not is_finite(version):
        raise DeployError(f"{where} is not {what}: found {type(value).__name__} without a version")
    if int(version) > newest:
        raise DeployError(
            f"{where} has version {int(version)}, this release of torchx-pulumi reads up to {newest}; install the "
            "release that wrote it, or a newer one"
        )


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)


class _Reader:
    """Reads one value and collects its problems."""

    def __init__(self, problems: list[str], fallbacks: Fallbacks) -> None:
        self._problems = problems
        self._fallbacks = fallbacks

    def read(self, kind: Any, value: object, path: str) -> Any:
        """Return the value as the type, and note a problem for each part of another type."""
        if is_typeddict(kind):
            return self._typed_dict(kind, value, path)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind, value, path)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return None if value is None else self.read(arguments[0], value, path)
        if origin in (list, tuple, Sequence):
            if not isinstance(value, (list, tuple)):
                return self._wrong(value, "a list", path)
            items = [self.read(arguments[0], item, f"{path}[{place}]") for place, item in enumerate(value)]
            return tuple(items) if origin is tuple else items
        if origin in (dict, Mapping):
            if not isinstance(value, Mapping):
                return self._wrong(value, "an object", path)
            return {key: self.read(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
        return value if kind is Any else self._scalar(kind, value, path)

    def _scalar(self, kind: Any, value: object, path: str) -> Any:
        if kind is datetime:
            return time_at({"at": value}, "at")
        if issubclass(kind, Enum):
            known = {member.value: member for member in kind}
            if isinstance(value, str) and value in known:
                return known[value]
            fallback = self._fallbacks.get(kind)
            return fallback if fallback is not None else self._not_allowed(value, tuple(known), path)
        allowed = (int, float) if kind in (int, float) else kind
        if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
            return self._wrong(value, _NAMES[kind], path)
        if kind in (int, float) and not is_finite(value):
            return self._wrong(value, f"{_NAMES[kind]} that a float can hold", path)
        return int(value) if kind is int and float(value).is_integer() else value

    def _dataclass(self, kind: Any, value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            return self._wrong(value, "an object", path)
        found: dict[str, Any] = {}
        before = len(self._problems)
        for item in dataclasses.fields(kind):
            hint, inner = _hints(kind)[item.name], f"{path}.{item.name}".removeprefix(".")
            if value.get(item.name) is not None:
                found[item.name] = self.read(hint, value[item.name], inner)
            elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
                found[item.name] = None
                self._check_optional(hint, inner)
        return kind(**found) if len(self._problems) == before else None

    def _typed_dict(self, kind: Any, value: object, path: str) -> Any:
        """Return all fields of a TypedDict: absent lists and mappings are empty, unknown fields are kept."""
        if not isinstance(value, Mapping):
            return self._wrong(value, "an object", path)
        found = dict(value)
        for name, hint in _hints(kind).items():
            if found.get(name) is not None:
                found[name] = self.read(hint, found[name], f"{path}.{name}")
            elif name not in kind.__optional_keys__:
                origin = get_origin(hint)
                found[name] = origin() if origin in (list, dict) else None
                if found[name] is None:
                    self._check_optional(hint, f"{path}.{name}")
        return found

    def _check_optional(self, hint: Any, path: str) -> None:
        if get_origin(hint) not in (Union, types.UnionType):
            self._problems.append(f"{path}: is absent")

    def _not_allowed(self, value: object, allowed: tuple[Any, ...], path: str) -> Any:
        self._problems.append(f"{path}: found {value!r}, allowed are {', '.join(map(repr, allowed))}")
        return value

    def _wrong(self, value: object, wanted: str, path: str) -> Any:
        self._problems.append(f"{path}: found {type(value).__name__}, {wanted} is needed")
        return value
