"""From argument dictionaries, in whatever shape another language sent them, to specs. All problems at once.

Seen to arrive: 2.0 for 2, numbers and bools for texts, camelCase inside nested objects, `{}` for a nested object that
was an Output.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from types import MappingProxyType
from typing import Any

from torchx_pulumi.model.errors import Problem

from torchx_pulumi_components.input_resolution import PLACEHOLDER, is_other, is_placeholder

_ABSENT = object()

_BYTES = (bytes, bytearray, memoryview)
_NO_TEXT = (Mapping, list, tuple, Set, *_BYTES)
"""Types whose text says how Python shows them, and in another order in another process."""

UNKNOWN_NUMBERS = (1000, 3000)
"""What stands for a number that is not known, and another one: more than nodes keep of anything, and fit for a port."""


class Fields:
    """Reads the fields of one argument dictionary and notes what is wrong with them."""

    def __init__(
        self,
        source: Any,
        shape: type,
        path: str,
        problems: list[Problem],
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.problems = problems
        self._values: dict[str, Any] = {}
        names = list(shape.__annotations__)
        if is_placeholder(source):
            self._values = dict.fromkeys(names, source)
            return
        if not isinstance(source, Mapping):
            self.problem("", f"must be an object, found {_found(source)}")
            return
        if not source:
            self.problem("", "is empty: give its fields, or leave it out (from another language: a whole object cannot "
                             "be an output, only its fields can)")  # fmt: skip
            return
        spellings = {_camel(name): name for name in names} | {name: name for name in names}
        for key, value in source.items():
            if _snake(key) in elsewhere:
                self.problem(str(key), elsewhere[_snake(key)])
            elif key not in spellings:
                near = difflib.get_close_matches(str(key), names, 1)
                meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(names))}"
                self.problem(str(key), f"is not a field{meant}")
            elif value is not None:
                self._values[spellings[key]] = value

    def problem(self, name: str, message: str) -> None:
        """Note a problem with a field, or with the whole object where `name` is empty."""
        path = f"{self.path}.{name}" if self.path and name else self.path or name
        self.problems.append(Problem(path or "args", message))

    def has(self, name: str) -> bool:
        """Say whether the field was given."""
        return name in self._values

    def raw(self, name: str, *, required: bool = False) -> Any:
        """Return the field as it was given, None where it was not."""
        value = self._values.get(name, _ABSENT)
        if value is _ABSENT:
            if required and (self._values or not self.problems):
                self.problem(name, "is missing")
            return None
        return value

    def text(self, name: str, *, required: bool = False, plain: bool = False) -> str | None:
        """Return a text; numbers and bools become texts. Plain: it may not be an Output that is not known yet."""
        value = self.raw(name, required=required)
        if value is None:
            return None
        if isinstance(value, _NO_TEXT):
            self.problem(name, f"must be a text, found {_found(value)}")
            return None
        if plain and is_placeholder(value):
            self.problem(name, "must be known in preview, found an output that is not known yet")
            return None
        return as_text(value)

    def integer(self, name: str, *, plain: bool = False, unknown: tuple[int, int] = UNKNOWN_NUMBERS) -> int | None:
        """Return an integer; 2.0 and "2" are taken for 2.

        Args:
            name: Of the field.
            plain: It may not be an Output that is not known yet.
            unknown: What stands for a number that is not known, and another one.
        """
        value = self.raw(name)
        if is_placeholder(value) and not plain:
            return unknown[is_other(value)]
        if is_placeholder(value):
            self.problem(name, "must be known in preview, found an output that is not known yet")
            return None
        number = _number(value)
        if value is None or (isinstance(number, float) and number.is_integer()):
            return None if number is None else int(number)
        self.problem(name, f"must be a whole number, found {_found(value, show=True)}")
        return None

    def number(self, name: str) -> float | None:
        """Return a number."""
        value = self.raw(name)
        if is_placeholder(value):
            return UNKNOWN_NUMBERS[is_other(value)]
        number = _number(value)
        if value is not None and number is None:
            self.problem(name, f"must be a number, found {_found(value, show=True)}")
        return number

    def flag(self, name: str) -> bool:
        """Return a bool, False where the field was not given."""
        value = self.raw(name)
        if is_placeholder(value):
            return is_other(value)
        if value is None or isinstance(value, bool):
            return bool(value)
        if value in ("true", "false"):
            return bool(value == "true")
        self.problem(name, f"must be true or false, found {_found(value)}")
        return False

    def choice(self, name: str, kind: type[Enum], default: Any, *, required: bool = False) -> Any:
        """Return a member's value of an enum."""
        value = self.raw(name, required=required)
        if value is None:
            return default
        allowed = [str(member.value) for member in kind]
        word = value.value if isinstance(value, Enum) else value
        if word in allowed:
            return word
        self.problem(name, f"must be one of {', '.join(allowed)}, found {_found(value, show=True)}")
        return default

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty where the field was not given."""
        return [as_text(item) for item in self.items(name) if self._is_scalar(name, item)]

    def text_map(self, name: str) -> dict[str, str]:
        """Return a mapping of texts, empty where the field was not given."""
        return {
            key: as_text(item) for key, item in self.mapping(name).items() if self._is_scalar(f"{name}[{key}]", item)
        }

    def integer_map(self, name: str, *, unknown_key: str = PLACEHOLDER + "k") -> dict[str, int]:
        """Return a mapping of integers, empty where the field was not given; `unknown_key` as for `mapping`."""
        found: dict[str, int] = {}
        for key, item in self.mapping(name, unknown_key=unknown_key).items():
            number = float(UNKNOWN_NUMBERS[is_other(item)]) if is_placeholder(item) else _number(item)
            if number is None or not number.is_integer():
                self.problem(f"{name}[{key}]", f"must be a whole number, found {_found(item)}")
            else:
                found[key] = int(number)
        return found

    def text_lists(self, name: str) -> dict[str, list[str]]:
        """Return a mapping of lists of texts, empty where the field was not given. A null in it is a problem."""
        value = self.raw(name)
        found: dict[str, list[str]] = {}
        for key, item in (value if isinstance(value, Mapping) else self.mapping(name)).items():
            path = f"{name}[{key}]"
            if is_placeholder(item):
                found[str(key)] = [item]
            elif isinstance(item, (str, *_BYTES)) or not isinstance(item, Sequence):
                hint = "; put the text into a list" if isinstance(item, str) else ""
                self.problem(path, f"must be a list of texts, found {_found(item)}{hint}")
            else:
                found[str(key)] = [as_text(word) for word in item if self._is_scalar(path, word)]
        return found

    def items(self, name: str, *, required: bool = False) -> list[Any]:
        """Return a list as it was given, empty where the field was not."""
        value = self.raw(name, required=required)
        if value is None:
            return []
        if is_placeholder(value) and not required:
            return [value] if is_other(value) else []
        if isinstance(value, (str, *_BYTES)) or not isinstance(value, Sequence):
            meant = "; put the text into a list" if isinstance(value, str) and not is_placeholder(value) else ""
            self.problem(name, f"must be a list, found {_found(value)}{meant}")
            return []
        return list(value)

    def mapping(self, name: str, *, unknown_key: str = PLACEHOLDER + "k") -> dict[str, Any]:
        """Return a mapping as it was given, empty where the field was not.

        Args:
            name: Of the field.
            unknown_key: Key that the other value of a mapping has which is not known.
        """
        value = self.raw(name)
        if value is None:
            return {}
        if is_placeholder(value):
            return {unknown_key: value} if is_other(value) else {}
        if not isinstance(value, Mapping):
            self.problem(name, f"must be an object, found {_found(value)}")
            return {}
        return {str(key): item for key, item in value.items() if item is not None}

    def _is_scalar(self, name: str, value: Any) -> bool:
        if isinstance(value, _NO_TEXT) or value is None:
            self.problem(name, f"must be a text, found {_found(value)}")
            return False
        return True


def as_text(value: Any) -> str:
    """Return a scalar as YAML and JSON write it.

    >>> [as_text(value) for value in ("a", 2.0, 0.5, True, 10**20)]
    ['a', '2', '0.5', 'true', '100000000000000000000']
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value.value if isinstance(value, Enum) else value)


def whole_numbers(value: Any) -> Any:
    """Return free-form data with the integers that arrived as floats made integers again."""
    if isinstance(value, Mapping):
        return {str(key): whole_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [whole_numbers(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)) or is_placeholder(value):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(name)).lower()


def _found(value: Any, *, show: bool = False) -> str:
    """Return what was found: its type, and of a number or a short word its value where no secret is expected."""
    if is_placeholder(value):
        return "an output that is not known yet"
    kind = type(value).__name__
    return f"{kind} {_shown(value)!r}" if show and isinstance(value, (str, int, float)) else kind


def _shown(value: str | float) -> str:
    try:
        return str(value)[:60]
    except ValueError:
        # Python writes no integers of thousands of digits.
        return "of thousands of digits"
