"""One reader from untyped values to frozen dataclasses, driven by the types of their fields. It collects all problems.

`TypedReader` itself takes values of exactly these types. Its subclasses know one source each: AppDefs, mappings of
YAML and JSON, run options, component arguments. They say which fields a value has and which conversions the source
needs. A value that cannot be read is a problem, and its field gets the empty value of its type, so that the rules can
be checked on the rest (`uncovered`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_spec import MountSpec
from torchx_pulumi.planning.checks.values import amount, found, is_int, is_list, is_number, is_text, shown, typed

T = TypeVar("T")

_PLURALS: Mapping[Any, str] = {str: "texts", int: "whole numbers", Any: "values"}


class FieldValues(dict[str, Any]):
    """Field names and untyped values of a part that a reader found elsewhere in its source."""


class TypedReader:
    """Reads dataclasses from values that have the types of their fields already, for example a user's `JobSpec`."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        """Problems of all values read so far, in the order of the fields."""

    def refuse(self, path: str, message: str, rule: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(path, message, rule=rule))

    def read(self, kind: type[T], value: object, path: str) -> T:
        """Return a dataclass of the fields that a value has; those that cannot be read are problems."""
        given = self.fields_of(kind, value, path)
        if given is None:
            refused: T = empty(kind)
            return refused
        types = {name: (hint, required) for name, hint, required in field_types(kind)}
        made = {
            name: self.value(types[name][0], item, self.field_path(path, name))
            for name, item in given.items()
            if name in types
        }
        for name, (hint, required) in types.items():
            if required and name not in given:
                made[name] = self.missing(hint, self.field_path(path, name))
        return kind(**made)

    def field_path(self, path: str, name: str) -> str:
        """Return the path of a field, in the user's spelling."""
        return join(path, name)

    def fields_of(self, kind: type, value: object, path: str) -> Mapping[str, Any] | None:
        """Return field names and untyped values, or None if the value is refused; other names are ignored."""
        if isinstance(value, FieldValues):
            return value
        if isinstance(value, kind):
            return {name: getattr(value, name) for name, _, _ in field_types(kind)}
        names = ", ".join(name for name, _, _ in field_types(kind))
        self.refuse(path, f"{typed(value)}, must be a mapping: {names}", "mount" if kind is MountSpec else "")
        return None

    def missing(self, hint: Any, path: str) -> Any:
        """Return the value of a required field that is absent."""
        return self.value(hint, None, path)

    def value(self, hint: Any, value: object, path: str) -> Any:
        """Return a value of a type, or the empty value, and a problem, if it is of another type."""
        origin, parameters = get_origin(hint), get_args(hint)
        if hint is Any:
            return value
        if origin in (Union, UnionType):
            inner = next(parameter for parameter in parameters if parameter is not NoneType)
            known = len(self.problems)
            read = None if value is None else self.value(inner, value, path)
            return None if any(problem.path == path for problem in self.problems[known:]) else read
        if origin is not None and issubclass(origin, Mapping):
            return self.mapping(parameters[1], value, path)
        if origin is not None:
            return self.items(parameters[0], value, path)
        if is_dataclass(hint):
            return self.read(cast("type[Any]", hint), value, path)
        if issubclass(hint, Enum):
            return self.choice(hint, value, path)
        return {str: self.text, int: self.whole, float: self.number, bool: self.flag}[hint](value, path)

    def text(self, value: object, path: str) -> str:
        """Return a text."""
        return value if is_text(value) else self.other(str, path, f"{found(value)}, must be text")

    def whole(self, value: object, path: str) -> int:
        """Return a whole number."""
        return value if is_int(value) else self.other(int, path, f"{amount(value)}, must be a whole number")

    def number(self, value: object, path: str) -> float:
        """Return a finite number."""
        return value if is_number(value) else self.other(float, path, f"{amount(value)}, must be a number, or unset")

    def flag(self, value: object, path: str) -> bool:
        """Return a truth value."""
        return value if isinstance(value, bool) else self.other(bool, path, f"{amount(value)}, must be true or false")

    def choice(self, kind: type[Enum], value: object, path: str) -> Any:
        """Return a member of an enum, given as one or by its value."""
        try:
            return kind(value)
        except ValueError:
            words = " or ".join(str(member.value) for member in kind)
            return self.other(kind, path, f"{found(value)}, must be {words}")

    def items(self, hint: Any, value: object, path: str) -> Sequence[Any]:
        """Return a list or tuple with items of one type, in the type of sequence that was given."""
        if not is_list(value):
            hint_text = "; put the text into a list" if isinstance(value, str) else ""
            self.refuse(path, f"{typed(value)}, must be a list of {_PLURALS.get(hint, 'mappings')}{hint_text}")
            return ()
        items = [self.item(hint, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items

    def mapping(self, hint: Any, value: object, path: str) -> Mapping[str, Any]:
        """Return a mapping of texts to values of one type. Keys of free-form mappings are not checked."""
        if not isinstance(value, Mapping):
            self.refuse(path, f"{typed(value)}, must be a mapping of names to {_PLURALS.get(hint, 'mappings')}")
            return {}
        if hint is Any:
            return value
        made: dict[str, Any] = {}
        for key, item in value.items():
            place = f"{path}[{shown(key)}]"
            if is_text(key):
                made[key] = self.item(hint, item, place)
            else:
                self.refuse(place, "is the key of a mapping, must be text")
        return made

    def item(self, hint: Any, value: object, path: str) -> Any:
        """Return a value of a list or mapping. Its text may be a secret, so that no message repeats it."""
        if hint is not str:
            return self.value(hint, value, path)
        return value if is_text(value) else self.other(str, path, f"{typed(value)}, must be text; write it in quotes")

    def other(self, hint: Any, path: str, message: str) -> Any:
        """Return the empty value of a type, and add the problem of a value of another type."""
        self.refuse(path, message)
        return empty(hint)


def uncovered(problems: Iterable[Problem], known: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems of rules without those of values that could not be read and are known as problems already."""
    # One path is `env[A]`, `env['A']` or `env.A`, by who writes it.
    paths = {_dotted(path) for problem in known for path in (problem.path, snake_case(problem.path))}
    for problem in problems:
        found = _dotted(problem.path)
        if not any(found == path or found.startswith(f"{path}.") for path in paths):
            yield problem


def _dotted(path: str) -> str:
    return path.replace("']", "").replace("['", ".").replace("]", "").replace("[", ".")


def field_types(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return the fields of a dataclass in their order: name, type, and whether the field is required."""
    return _field_types(kind)


@functools.cache
def _field_types(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (item.name, hints[item.name], item.default is MISSING and item.default_factory is MISSING)
        for item in fields(kind)
    )


def empty(hint: Any) -> Any:
    """Return the empty value of a type; a dataclass has its defaults.

    >>> empty(str), empty(int | None), empty(Mapping[str, int])
    ('', None, {})
    """
    origin = get_origin(hint)
    if hint is Any or origin in (Union, UnionType):
        return None
    if origin is not None:
        return {} if issubclass(origin, Mapping) else ()
    if is_dataclass(hint):
        required = {name: empty(inner) for name, inner, is_required in field_types(hint) if is_required}
        return cast("type[Any]", hint)(**required)
    return next(iter(hint)) if issubclass(hint, Enum) else hint()


def join(path: str, name: str) -> str:
    """Return the path of a field.

    >>> join("roles[0]", "image"), join("", "name")
    ('roles[0].image', 'name')
    """
    return f"{path}.{name}" if path else name


def as_text(value: object) -> str:
    """Return a scalar as YAML and JSON write it.

    >>> [as_text(value) for value in ("a", 2.0, 0.5, True, 10**20)]
    ['a', '2', '0.5', 'true', '100000000000000000000']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(whole_numbers(value.value if isinstance(value, Enum) else value))


def whole_numbers(value: object) -> Any:
    """Return a value with integers in place of floats without a fraction, as other languages write them.

    >>> whole_numbers({"a": [2.0, (0.5,)]}), whole_numbers("2.0")
    ({'a': [2, (0.5,)]}, '2.0')
    """
    if isinstance(value, Mapping):
        return {str(key): whole_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [whole_numbers(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return int(value) if isinstance(value, float) and value.is_integer() else value


def snake_case(name: str) -> str:
    """Return the name of an option or argument as Python writes it.

    >>> snake_case("priorityClass"), snake_case("ttl_seconds_after_finished")
    ('priority_class', 'ttl_seconds_after_finished')
    """
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def camel_case(name: str) -> str:
    """Return the name of a field as other languages and configurations write it.

    >>> camel_case("create_namespace")
    'createNamespace'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
