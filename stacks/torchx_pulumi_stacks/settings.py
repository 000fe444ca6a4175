"""Typed reads of a Pulumi program's configuration that collect problems instead of stopping at the first."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env
from torchx_pulumi.model.errors import Problem


class Settings:
    """The configuration keys of one project, with the problems that reading them brought up."""

    def __init__(self, config: pulumi.Config) -> None:
        self._config = config
        self.problems: list[Problem] = []
        """What is wrong so far."""

    def path(self, key: str) -> str:
        """Return the key as the user writes it."""
        return f"{self._config.name}:{key}"

    def refuse(self, key: str, message: str) -> None:
        """Note a problem with a key."""
        self.problems.append(Problem(self.path(key), message))

    def check_keys(self, known: Iterable[str]) -> None:
        """Note every key that is set and that nobody reads."""
        names = sorted(known)
        prefix = f"{self._config.name}:"
        for key in sorted({*CONFIG.get(), *get_config_env()}):
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
                self.refuse(name, f"is unknown; {hint}")

    def text(self, key: str) -> str | None:
        """Read text. None: unset."""
        value = self._config.get(key)
        return value.strip() or None if value is not None else None

    def secret(self, key: str) -> pulumi.Output[str] | None:
        """Read text that stays secret. None: unset."""
        return self._config.get_secret(key)

    def flag(self, key: str, default: bool = False) -> bool:
        """Read true or false."""
        value = self.text(key)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            self.refuse(key, f"is {value!r}, must be true or false")
        return value.lower() == "true"

    def whole(self, key: str, *, at_least: int = 0) -> int | None:
        """Read a whole number. None: unset."""
        value = self.text(key)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            self.refuse(key, f"is {value!r}, must be a whole number")
            return None
        if number < at_least:
            self.refuse(key, f"is {number}, must be at least {at_least}")
        return number

    def choice(self, key: str, allowed: Iterable[str], default: str) -> str:
        """Read one of some words."""
        value, words = self.text(key) or default, list(allowed)
        if value not in words:
            self.refuse(key, f"is {value!r}, must be {' or '.join(map(repr, words))}")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """Read a mapping. Empty: unset."""
        value = self._structure(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.refuse(key, f"is {_kind(value)}, must be a mapping; {self._how(key, 'NAME')}")
            return {}
        return dict(value)

    def texts_by_name(self, key: str) -> dict[str, str]:
        """Read a mapping of texts; numbers and flags in it become text. Empty: unset."""
        given = self.mapping(key)
        for name, value in given.items():
            if value is None or isinstance(value, (dict, list)):
                self.refuse(f"{key}.{name}", f"is {_kind(value)}, must be text; write a value, or remove the line")
        return {name: _plain(value) for name, value in given.items()}

    def text_or_mapping(self, key: str) -> str | dict[str, Any]:
        """Read text, or a mapping of text. Empty mapping: unset."""
        value = self._structure(key)
        return self.mapping(key) if isinstance(value, Mapping) else self.text(key) or {}

    def texts(self, key: str) -> list[str]:
        """Read a list of texts; numbers and flags in it become text. Empty: unset."""
        value = self._structure(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(key, f"is {_kind(value)}, must be a list; {self._how(key, '0', '[')}")
            return []
        wrong = [item for item in value if isinstance(item, (dict, list)) or item is None]
        if wrong:
            self.refuse(key, f"has an item that is {_kind(wrong[0])}, must have text only; quote it")
        return [_plain(item) for item in value]

    def _structure(self, key: str) -> Any:
        value = self._config.get(key)
        if value is None:
            return None
        try:
            return json.loads(value)
        except ValueError:
            return value

    def _how(self, key: str, part: str, bracket: str = ".") -> str:
        close = "]" if bracket == "[" else ""
        return f"write it in the stack's YAML, or `pulumi config set --path '{key}{bracket}{part}{close}' VALUE`"


def _plain(value: object) -> str:
    """Return a value as it stands in the stack's YAML."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
