"""Read run options by name: snake_case or camelCase names, typed values or texts."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchx_pulumi.model.errors import invalid_job
from torchx_pulumi.model.options import Options, rows_of, unknown_name
from torchx_pulumi.planning.checks.values import found, is_int
from torchx_pulumi.planning.typed_reader import TypedReader, empty, field_types, snake_case
from torchx_pulumi.schedulers import find_backend

LAUNCH_ONLY = ("image_repo", "quiet", "validate_spec")
"""Options of TorchX's own schedulers that change how a job is launched, never its manifest. Ignored here."""


def read_options(options: Mapping[str, Any], scheduler: str = "volcano") -> Options:
    """Read run options; None and an absent option are the same: the default.

    Raises:
        InvalidJobError: An option is unknown, of the wrong type, given twice or missing; all problems at once.
    """
    reader = OptionsReader(scheduler)
    read: Options = reader.options(options)
    if reader.problems:
        raise invalid_job("unnamed", reader.problems)
    return read


class OptionsReader(TypedReader):
    """Reads the run options of one scheduler."""

    def __init__(self, scheduler: str) -> None:
        super().__init__()
        backend = find_backend(scheduler)
        self._kind: type[Any] = backend.options
        self._foreign = backend.foreign_options
        self._spelling: dict[str, str] = {}

    def options(self, options: Any) -> Any:
        """Return the options. An unreadable one is a problem, and has the empty value of its type."""
        return self.read(self._kind, options, "options")

    def fields_of(self, kind: type, value: object, path: str) -> Mapping[str, Any] | None:
        """Return the options, or the fields of an option that has some; a text may be JSON, or its `TEXT_FIELD`."""
        if isinstance(value, str) and (field := getattr(kind, "TEXT_FIELD", None)):
            value = self._parse(value, path, dict) if _is_json(value) else {field: value}
            if value is None:
                return None
        if not isinstance(value, Mapping):
            return super().fields_of(kind, value, path)
        names = {name: name for name, _, _ in field_types(kind)}
        if issubclass(kind, Options):
            # TorchX has names of its own for some options.
            names |= {row.torchx_name: row.name for row in rows_of(kind)}
        ignored = LAUNCH_ONLY if kind is self._kind else ()
        given: dict[str, Any] = {}
        for spelling, item in value.items():
            written = snake_case(spelling) if isinstance(spelling, str) else ""
            name = names.get(written, written)
            if name in given:
                self.refuse(f"{path}.{spelling}", f"is given twice: {name} is the same option")
            elif written in names:
                given[name] = item
                self._spelling[f"{path}.{name}"] = f"{path}.{spelling}"
            elif name not in ignored:
                advice = self._foreign.get(name) or unknown_name(written, (*names, *ignored))
                self.refuse(f"{path}.{spelling}", advice)
        unset = {name for name in _UNSET_IF_EMPTY if given.get(name) == ""}
        return {name: item for name, item in given.items() if item is not None and name not in unset}

    def field_path(self, path: str, name: str) -> str:
        """Return the path of an option as the user wrote it."""
        return self._spelling.get(f"{path}.{name}", f"{path}.{name}")

    def missing(self, hint: Any, path: str) -> Any:
        """Return the empty value of a required option that is absent."""
        self.refuse(path, "is not set; give a value")
        return empty(hint)

    def refuse(self, path: str, message: str, rule: str = "") -> None:
        """Add a problem. The error of a required option is a `TypeError` as well, as in TorchX."""
        required = [f"options.{name}" for name, _, is_required in field_types(self._kind) if is_required]
        super().refuse(path, message, "required" if path in required else rule)

    def whole(self, value: object, path: str) -> int:
        """Return a whole number; 2.0 and "2" are 2."""
        value = _typed(value, int)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if is_int(value) else self.other(int, path, f"{found(value)}, must be a whole number")

    def flag(self, value: object, path: str) -> bool:
        """Return a truth value; it may be text."""
        return super().flag(_typed(value, bool), path)

    def items(self, hint: Any, value: object, path: str) -> Sequence[Any]:
        """Return a list; an option may also be a text: JSON, or words as `read_text` takes them."""
        if "[" in path:
            return super().items(hint, value, path)
        if not isinstance(value, str):
            return super().items(hint, tuple(value) if isinstance(value, list) else value, path)
        words = self._parse(value, path, list)
        return () if words is None else super().items(hint, words, path)

    def mapping(self, hint: Any, value: object, path: str) -> Mapping[str, Any]:
        """Return a mapping; an option may also be a text: JSON, or pairs as `read_text` takes them."""
        if isinstance(value, str) and (hint is str or _is_json(value)):
            value = self._parse(value, path, dict)
            if value is None:
                return {}
        return super().mapping(hint, value, path)

    def _parse(self, text: str, path: str, kind: type) -> Any:
        """Return the value of JSON, or of a text as its type; None, and a problem, if the text is neither."""
        try:
            return json.loads(text) if _is_json(text) else read_text(text, kind)
        except ValueError as error:
            what = f"valid JSON: {error}" if _is_json(text) else "name:value,name:value or name=value,name=value"
            self.refuse(path, f"is of type str, must be {what}")
            return None


def _typed(value: object, kind: type) -> Any:
    """Return a text as its type; any other value, and a text of another type, stays as it is."""
    with contextlib.suppress(ValueError):
        return read_text(value, kind) if isinstance(value, str) else value
    return value


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def read_text(text: str, kind: type) -> Any:
    """Read the text of an option as its type.

    Items of lists and mappings are separated by commas or semicolons. In `name=value` or, as TorchX writes it,
    `name:value`, the first of the two signs ends the name.

    Args:
        text: The text.
        kind: `bool`, `int`, `list` (of texts), `dict` (of texts to texts), or `str`.

    Raises:
        ValueError: It is not of this type.

    >>> read_text("yes", bool), read_text("a;b", list), read_text("team=a,page:https://a.example", dict)
    (True, ['a', 'b'], {'team': 'a', 'page': 'https://a.example'})
    """
    if kind is bool:
        if text.strip().lower() not in (*_TRUE, *_FALSE):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.strip().lower() in _TRUE
    if kind is int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
            raise ValueError(f"{text!r} is not a whole number")
        return int(text)
    words = [word.strip() for word in re.split("[,;]", text) if word.strip()]
    if kind is dict:
        pairs = [re.fullmatch(r"([^:=]*)[:=](.*)", word, re.DOTALL) for word in words]
        if not all(pairs):
            raise ValueError("must be name:value,name:value or name=value,name=value")
        return {pair[1].strip(): pair[2].strip() for pair in pairs if pair}
    return words if kind is list else text


_UNSET_IF_EMPTY = ("namespace", "service_account", "priority_class")
"""Options for which an empty text is the same as unset, as it is for Kubernetes."""
