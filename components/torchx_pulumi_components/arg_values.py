"""Component arguments of any language as typed values.

Other languages send 2.0 for 2, numbers and booleans for texts, camelCase in nested objects, and `{}` for a nested
object that was an Output. An unknown value of a preview gets a stand-in that depends on its field, so that the plan of
the preview passes the rules. Only this module makes stand-ins, and no stored state has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from types import MappingProxyType
from typing import Any, get_args, get_origin

from torchx_pulumi.inputs.overlay_file import read_overlay_file
from torchx_pulumi.model.job_spec import MountSpec, ResourceSpec, RoleSpec, SecretRef
from torchx_pulumi.model.options import is_table, rows_of, unknown_name
from torchx_pulumi.planning.checks.values import shown
from torchx_pulumi.planning.typed_reader import (
    FieldValues,
    TypedReader,
    as_text,
    camel_case,
    join,
    snake_case,
    whole_numbers,
)

from torchx_pulumi_components import args as shapes
from torchx_pulumi_components.input_resolution import Unknown, with_leaves

STAND_IN = "unknown-leaf-"
"""Prefix of the stand-ins for texts; valid in images, names and values."""

_BYTES = (bytes, bytearray, memoryview)
_NO_TEXT = (Mapping, list, tuple, Set, *_BYTES)
"""Types whose text is Python's own, and differs between processes."""

_NOT_KNOWN = "an output that is not known yet"

SHAPES: Mapping[type, type] = {
    RoleSpec: shapes.Role,
    ResourceSpec: shapes.Resource,
    MountSpec: shapes.Mount,
    SecretRef: shapes.SecretEnv,
}
"""Nested objects of a role by the class that they are read to."""

_TEXTS = ("name", "image", "entrypoint")
"""Fields of a role in whose place other languages have no number either."""

_CHOICES: Mapping[str, type[Enum]] = {"kind": shapes.MountKind, "retry_policy": shapes.RetryPolicy}
"""Fields of text with few values."""

_DEFAULT_IF_EMPTY = ("namespace", "scheduler_name", "mode", "permissions")
"""Fields whose empty text is the same as unset."""

_KNOWN_NUMBERS = ("num_replicas", "min_replicas", "timeout_s", "delete_timeout_s")
"""Numbers that must be known in a preview, like all texts that are not an `Input`."""

_NUMBER_STAND_INS: Mapping[str, int] = {
    "memory_mb": 10**6,
    "reserved_millicpu": 1,
    "reserved_memmb": 1,
    # Not every variant takes retries.
    "max_retries": 0,
}
"""Stand-ins for unknown numbers, such that differences of numbers stay positive."""

_TEXT_STAND_INS: Mapping[str, str] = {"effect": "NoSchedule", "operator": "Equal"}
"""Stand-ins for unknown texts with few values, by the key in a toleration."""

_ANY_NUMBER_STAND_IN = 1000
"""Stand-in for all other numbers: larger than the reserved amounts, and valid as a port."""


class ArgumentReader(TypedReader):
    """Reads the arguments of one component."""

    def arguments(
        self,
        args: Any,
        fields: Mapping[str, bool],
        elsewhere: Mapping[str, str] = MappingProxyType({}),
        path: str = "",
    ) -> dict[str, Any] | None:
        """Return the untyped arguments of an object by their names in Python. None: the object is refused.

        Args:
            args: The object.
            fields: All its arguments, and whether the value must be known in a preview.
            elsewhere: Arguments of other components, and what to do instead.
            path: Path of the object.
        """
        names = list(fields)
        if isinstance(args, Unknown):
            return self._known(dict.fromkeys(names, args), fields, path)
        if not isinstance(args, Mapping):
            self.refuse(path or "args", f"must be an object, found {_found(args)}")
            return None
        if not args:
            self.refuse(path or "args", "is empty: give its fields, or leave it out (from another language: a whole "
                                        "object cannot be an output, only its fields can)")  # fmt: skip
            return None
        given: dict[str, Any] = {}
        spellings = {camel_case(name): name for name in names} | {name: name for name in names}
        for key, value in args.items():
            if snake_case(str(key)) in elsewhere:
                self.refuse(join(path, str(key)), elsewhere[snake_case(str(key))])
            elif key not in spellings:
                self.refuse(join(path, str(key)), unknown_name(str(key), names))
            elif value is not None and not (value == "" and spellings[key] in _DEFAULT_IF_EMPTY):
                name = spellings[key]
                if name in given:
                    self.refuse(join(path, name), f"is given twice, as {name} and {camel_case(name)}; give one of them")
                given[name] = value
        return self._known(given, fields, path)

    def fields_of(self, kind: type, value: Any, path: str) -> Mapping[str, Any] | None:
        """Return the fields of a nested object."""
        if isinstance(value, FieldValues):
            return value
        given = self.arguments(value, argument_fields(SHAPES.get(kind, kind)), path=path)
        if given is not None and "pod_overlay" in given:
            given["pod_overlay"] = self._overlay(given["pod_overlay"], join(path, "pod_overlay"))
        return given

    def missing(self, hint: Any, path: str) -> Any:
        """Return the empty value of a required field that is absent."""
        return self.other(hint, path, "is missing")

    def text(self, value: Any, path: str) -> str:
        """Return a text.

        A number or a boolean is written as JSON and YAML write it (80 and 80.0 as 80, True as true), whatever language
        it comes from. Names and images of roles must be texts.
        """
        if isinstance(value, Unknown) and _field(path) not in _CHOICES:
            return _TEXT_STAND_INS.get(path.rpartition("[")[2].rstrip("]"), _stand_in(value))
        if _field(path) in _CHOICES:
            return str(self.choice(_CHOICES[_field(path)], value, path).value)
        if isinstance(value, _NO_TEXT) or value is None:
            return str(self.other(str, path, f"must be a text, found {_found(value)}"))
        if path.startswith("roles[") and _field(path) in _TEXTS and not isinstance(value, str):
            message = f"must be a text, found {_found(value)}; write it in quotes (of an Output: output.apply(str))"
            return str(self.other(str, path, message))
        try:
            return as_text(value)
        except ValueError:
            return str(self.other(str, path, f"must be a text, found {_found(value)} of thousands of digits"))

    def whole(self, value: Any, path: str) -> int:
        """Return a whole number; 2.0 and "2" are 2."""
        number = self._number(value, path)
        if number is None or not number.is_integer():
            return int(self.other(int, path, f"must be a whole number, found {_found(value, show=path[-1] != ']')}"))
        return int(number)

    def number(self, value: Any, path: str) -> float:
        """Return a number; GPUs and memory are whole."""
        if _field(path) in ("gpu", "memory_mb"):
            return self.whole(value, path)
        number = self._number(value, path)
        if number is None or not math.isfinite(number):
            return float(self.other(float, path, f"must be a number, found {_found(value, show=True)}"))
        return number

    def flag(self, value: Any, path: str) -> bool:
        """Return a truth value; true and false may be text."""
        if isinstance(value, Unknown):
            return False
        if isinstance(value, bool) or value in ("true", "false"):
            return value in (True, "true")
        return bool(self.other(bool, path, f"must be true or false, found {_found(value)}"))

    def choice(self, kind: type[Enum], value: Any, path: str) -> Any:
        """Return a member of an enum, given as one, as one of another enum, or by its value."""
        word = value.value if isinstance(value, Enum) else value
        for member in kind:
            if word == member.value:
                return member
        allowed = ", ".join(str(member.value) for member in kind)
        return self.other(kind, path, f"must be one of {allowed}, found {_found(value, show=True)}")

    def items(self, hint: Any, value: Any, path: str) -> Sequence[Any]:
        """Return the items of a list: a tuple, and a list inside a mapping."""
        in_mapping = path.endswith("]")
        if isinstance(value, Unknown) and hint is not RoleSpec:
            return [_stand_in(value)] if in_mapping else ()
        if isinstance(value, (str, *_BYTES)) or not isinstance(value, Sequence):
            advice = "; put the text into a list" if isinstance(value, str) else ""
            self.refuse(path, f"must be a list{' of texts' if in_mapping else ''}, found {_found(value)}{advice}")
            return ()
        items = [self.item(hint, item, path if hint is str else f"{path}[{i}]") for i, item in enumerate(value)]
        return items if in_mapping else tuple(items)

    def mapping(self, hint: Any, value: Any, path: str) -> Mapping[str, Any]:
        """Return a mapping without nulls. In lists of arguments of plugins a null is a problem."""
        if _field(path) == "pod_overlay":
            return super().mapping(hint, value, path)
        if isinstance(value, Unknown):
            return {}
        if not isinstance(value, Mapping):
            self.refuse(path, f"must be an object, found {_found(value)}")
            return {}
        kept = {str(key): item for key, item in value.items() if item is not None or get_origin(hint) is not None}
        return {key: self.item(hint, item, f"{path}[{key}]") for key, item in kept.items()}

    def item(self, hint: Any, value: Any, path: str) -> Any:
        """Return a value of a list or mapping."""
        if hint is Any:
            return self.text(value, path) if isinstance(value, Unknown) else _plain(value)
        is_toleration = get_origin(hint) is not None and issubclass(get_origin(hint), Mapping)
        return self.value(hint, {"key": value} if is_toleration and isinstance(value, Unknown) else value, path)

    def _known(self, given: dict[str, Any], fields: Mapping[str, bool], path: str) -> dict[str, Any]:
        """Return the arguments; those of the structure of a job must be known in a preview."""
        for name, value in list(given.items()):
            if isinstance(value, Unknown) and (fields[name] or name in _KNOWN_NUMBERS):
                self.refuse(join(path, name), f"must be known in preview, found {_NOT_KNOWN}")
                given[name] = "1"
        return given

    def _overlay(self, given: Any, path: str) -> Any:
        """Return a pod overlay; a text is the path or URI of its file."""
        if isinstance(given, Unknown):
            return None
        if not isinstance(given, str):
            return _plain(given)
        try:
            return read_overlay_file(given)
        except (OSError, ValueError) as error:
            self.refuse(path, str(error))
            return None

    def _number(self, value: Any, path: str) -> float | None:
        if isinstance(value, Unknown):
            return float(_NUMBER_STAND_INS.get(_field(path), _ANY_NUMBER_STAND_IN))
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return None
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None


def argument_fields(kind: type) -> dict[str, bool]:
    """Return the fields of a class of arguments or an option table, and whether each must be known in a preview."""
    if is_table(kind):
        return {row.name: row.known for row in rows_of(kind)}
    return {name: hint is str or get_args(hint) == (str,) for name, hint in kind.__annotations__.items()}


def _stand_in(value: Unknown) -> str:
    return f"{STAND_IN}{value.number}"


def _plain(value: Any) -> Any:
    """Return nested data with integers for whole floats and stand-ins for unknown values."""
    return whole_numbers(with_leaves(value, lambda leaf: _stand_in(leaf) if isinstance(leaf, Unknown) else leaf))


def _field(path: str) -> str:
    return path.rpartition(".")[2]


def _found(value: object, *, show: bool = False) -> str:
    """Return the type of a value, or with `show` a number or short text itself, for values that are never secret."""
    if isinstance(value, Unknown):
        return _NOT_KNOWN
    kind = type(value).__name__
    if not show or not isinstance(value, (str, int, float)):
        return kind
    try:
        return f"{kind} {shown(str(value))}"
    except ValueError:
        # Python does not write integers of thousands of digits.
        return f"{kind} of thousands of digits"
