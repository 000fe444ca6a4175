"""Configuration keys of a Pulumi program as typed values. All problems are collected."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from types import UnionType
from typing import Any, Union, get_origin

import pulumi
from torchx_pulumi.model.options import other_word, unknown_name
from torchx_pulumi.planning.typed_reader import TypedReader, camel_case, field_types, snake_case
from torchx_pulumi_components.pulumi_runtime import config_keys


class Settings(TypedReader):
    """Reads the configuration keys of one project. Keys are field names in camelCase, without the unit `_s`."""

    def __init__(self, config: pulumi.Config) -> None:
        super().__init__()
        self._config = config

    def path(self, key: str) -> str:
        """Return the key as the user writes it."""
        return f"{self._config.name}:{key}"

    def refuse(self, path: str, message: str, rule: str = "") -> None:
        super().refuse(self.path(path), message, rule)

    def check_keys(self, known: Iterable[str], options: Container[str]) -> None:
        """Refuse every key that is set and not known. Names of `options` belong into the key of that name."""
        names = sorted(known)
        prefix = f"{self._config.name}:"
        for key in sorted(config_keys()):
            name = key.removeprefix(prefix)
            if not key.startswith(prefix) or name in names:
                continue
            if snake_case(name) in options:
                self.refuse(name, f"is not a key, but an option; {_how(f'options.{name}')}")
            else:
                self.refuse(name, unknown_name(name, names))

    def values_of(self, kind: type, *, without: Container[str] = ()) -> dict[str, Any]:
        """Return the fields of a dataclass that are set, except some of them. A text of few values is one of them."""
        hints = {name: hint for name, hint, _ in field_types(kind) if name not in without}
        texts = {
            name: self.given(key_of(name)) if get_origin(hint) in (None, Union, UnionType) else self.data(key_of(name))
            for name, hint in hints.items()
        }
        words = {item.name: item.metadata.get("choices", ()) for item in fields(kind)}
        return {
            name: self._one_of(words[name], text, key_of(name))
            if words[name]
            else self.value(hints[name], text, key_of(name))
            for name, text in texts.items()
            if text is not None
        }

    def given(self, key: str) -> str | None:
        """Return the text of a key. None: it is unset or blank."""
        return (self._config.get(key) or "").strip() or None

    def data(self, key: str) -> str | None:
        """Return the text of a key that must hold a list or a mapping. None: it is unset or null; blank is wrong."""
        text = self._config.get(key)
        return None if _structure(text) is None else text

    def secret(self, key: str) -> pulumi.Output[str] | None:
        """Return a text that stays secret. None: unset."""
        return self._config.get_secret(key)

    def flag(self, value: Any, path: str) -> bool:
        if value.lower() not in ("true", "false"):
            self.refuse(path, f"is {value!r}, must be true or false")
        return str(value).lower() == "true"

    def whole(self, value: Any, path: str) -> int:
        """Return a whole number, at least 1: all numbers in a configuration are seconds to wait."""
        try:
            number = int(value)
        except ValueError:
            return int(self.other(int, path, f"is {value!r}, must be a whole number"))
        if number < 1:
            self.refuse(path, f"is {number}, must be at least 1")
        return number

    def choice(self, kind: type[Enum], value: Any, path: str) -> Any:
        return kind(self._one_of([str(member.value) for member in kind], value, path))

    def word(self, key: str, allowed: Sequence[str]) -> str:
        """Return one of some words; the first one if the key is unset or wrong."""
        return self._one_of(allowed, self.given(key) or allowed[0], key)

    def _one_of(self, words: Sequence[str], value: str, path: str) -> str:
        if value in words:
            return value
        self.refuse(path, other_word(value, words))
        return words[0]

    def mapping(self, hint: Any, value: Any, path: str) -> Mapping[str, Any]:
        """Return a mapping. If its values are texts, numbers and booleans become text."""
        found = _structure(value)
        if not isinstance(found, Mapping):
            self.refuse(path, f"is {_kind(found)}, must be a mapping; {_how(f'{path}.NAME')}")
            return {}
        if hint is Any:
            return dict(found)
        for name, item in found.items():
            if item is None or isinstance(item, (dict, list)):
                self.refuse(f"{path}.{name}", f"is {_kind(item)}, must be text; write a value, or remove the line")
        return {name: _plain(item) for name, item in found.items()}

    def text_or_mapping(self, key: str) -> str | Mapping[str, Any]:
        """Return a text, or a mapping. Empty mapping: unset."""
        text = self.given(key)
        return self.mapping(Any, text, key) if isinstance(_structure(text), Mapping) else text or {}

    def items(self, hint: Any, value: Any, path: str) -> Sequence[Any]:
        """Return a list of texts; numbers and booleans in it become text."""
        found = _structure(value)
        if not isinstance(found, list):
            self.refuse(path, f"is {_kind(found)}, must be a list; {_how(f'{path}[0]')}")
            return ()
        wrong = [item for item in found if isinstance(item, (dict, list)) or item is None]
        if wrong:
            self.refuse(path, f"has an item that is {_kind(wrong[0])}, must have text only; quote it")
        return tuple(super().items(hint, [_plain(item) for item in found], path))


def key_of(field: str) -> str:
    """Return the configuration key of a field.

    >>> key_of("create_namespace"), key_of("delete_timeout_s")
    ('createNamespace', 'deleteTimeout')
    """
    return camel_case(field.removesuffix("_s"))


def _structure(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _how(path: str) -> str:
    return f"write it in the stack's YAML, or `pulumi config set --path '{path}' VALUE`"


def _plain(value: object) -> str:
    """Return a value as written in the stack's YAML: 3.0 stays 3.0."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
