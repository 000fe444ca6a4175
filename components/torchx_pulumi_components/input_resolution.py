"""Outputs among the arguments: resolve them to values, and mark what is rendered from secret or unknown ones.

The decision about a job needs the values of its fields, so a component waits for them (docs/decisions/0004). A value
that is not known in a preview is planned with a placeholder text, and what is rendered from it becomes unknown again.
A dependency on a secret or unknown value is found by comparison: the manifest is rendered a second time with another
value in that place, and the parts that differ depend on it. So macros, rounding and conversions need no tracking.

Placeholders are texts and not a type of their own, because they pass through the typed values, rules and renderers of
all schedulers, whose fields are texts. Only this module and `arg_values` create them, and no stored state has them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pulumi
from torchx_pulumi.model.errors import InvalidJobError, invalid_job
from torchx_pulumi.model.redaction import HIDDEN, hide, texts_in

PLACEHOLDER = "unknown-leaf-"
"""Prefix of placeholders; valid in images, names and values."""

OTHER = "-other"
"""Suffix of the second placeholder of a value, for the comparison."""

_NUMBER = re.compile(r"\d+(\.\d+)?")

_WORDS = (
    ("true", "false"),
    ("APPLICATION", "REPLICA"),
    ("hard", "soft"),
    ("exponential", "linear"),
    ("Equal", "Exists"),
)
_OTHER_WORD = {word: other for pair in _WORDS for word, other in (pair, pair[::-1])}
"""A valid word of a field with few values to another one."""

_SHOWN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?<=\bis )-?\d[\w.]*|(?<=\bfound )\S+")
"""A value in a message: quoted, or after `is` or `found`."""


ValuePath = tuple[str | int, ...]
"""Where a value is in the arguments: keys and positions."""


@dataclass(slots=True)
class Leaves:
    """The secret and unknown Outputs of one set of arguments."""

    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    """Placeholder to its Output."""
    secret_places: list[ValuePath] = field(default_factory=list)
    """Places of the secret Outputs. What depends on them is found by place, never by text."""
    secrets: set[str] = field(default_factory=set)
    """Texts that are secret, for messages only."""
    resources: set[pulumi.Resource] = field(default_factory=set)
    """Resources that the Outputs come from."""

    async def resolve(self, value: Any, place: ValuePath = ()) -> Any:
        """Return the value with every Output in it replaced by its value, or by a placeholder."""
        if inspect.isawaitable(value):
            value = pulumi.Output.from_input(value)
        if isinstance(value, pulumi.Output):
            return await self._resolve_output(value, place)
        if isinstance(value, Mapping):
            return {key: await self.resolve(item, (*place, key)) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            items = [await self.resolve(item, (*place, index)) for index, item in enumerate(value)]
            # In a pod overlay a tuple replaces a list.
            return tuple(items) if isinstance(value, tuple) else items
        if _is_unknown(value):
            return self._placeholder(pulumi.Output.from_input(value))
        return value

    async def _resolve_output(self, output: pulumi.Output[Any], place: ValuePath) -> Any:
        value = await output.future(with_unknowns=True)
        self.resources |= await output.resources()
        if not await output.is_known() and (value is None or _is_unknown(value)):
            return self._placeholder(output)
        if await output.is_secret():
            self.secret_places.append(place)
            self.secrets |= set(texts_in(value))
        return await self.resolve(in_fixed_order(value), place)

    def _placeholder(self, output: pulumi.Output[Any]) -> str:
        text = f"{PLACEHOLDER}{len(self.unknown)}"
        self.unknown[text] = output
        return text

    def changed(self, resolved: Any) -> Any:
        """Return resolved arguments with another value of the same form in every secret place.

        What is rendered differently of these depends on a secret.
        """
        for place in self.secret_places:
            resolved = _changed_at(resolved, place)
        return resolved

    def mark(self, value: Any, changed: Any, other: Any) -> Any:
        """Return a value with marks: secret or unknown where it differs from the same made of other arguments.

        Where the structure differs, the whole part is marked.

        Args:
            value: Made of the arguments.
            changed: Made of the arguments with other values in the secret places.
            other: Made of the arguments with other values in the unknown places.
        """
        made = (value, changed, other)
        if all(isinstance(item, Mapping) and item.keys() == value.keys() for item in made):
            return {key: self.mark(item, changed[key], other[key]) for key, item in value.items()}
        if all(isinstance(item, (list, tuple)) and len(item) == len(value) for item in made):
            return [self.mark(*items) for items in zip(*made, strict=True)]
        shown = value if _is_same(value, other) else self._unknown(value)
        return shown if _is_same(value, changed) else pulumi.Output.secret(shown)

    def mark_object(self, value: Mapping[str, Any], changed: Any, other: Any, *, blind: bool) -> dict[str, Any]:
        """Return an object with marks, where the other arguments may be refused: more of it is marked then.

        Args:
            value: Made of the arguments.
            changed: As for `mark`. None: nothing tells which part of the object is not secret.
            other: As for `mark`.
            blind: `other` tells of the metadata only which part is known.
        """
        if changed is not None and not blind:
            return dict(self.mark(value, changed, other))
        marked: dict[str, Any] = {}
        for key, item in value.items():
            if key in ("apiVersion", "kind") or item is None:
                marked[key] = item
            elif key == "metadata":
                changed_item = _with_leaves(item, _changed) if changed is None else changed[key]
                marked[key] = self.mark(item, changed_item, other[key])
            else:
                shown = self._unknown(item) if blind else self.mark(item, item, other.get(key))
                is_secret = changed is None or not _is_same(item, changed.get(key))
                marked[key] = pulumi.Output.secret(shown) if is_secret else shown
        return marked

    def _unknown(self, value: Any) -> pulumi.Output[Any]:
        """Return an Output that is not known, and secret where what it depends on is."""
        found = [output for text, output in self.unknown.items() if isinstance(value, str) and text in value]
        # The Outputs are not known, so that this is never called.
        return pulumi.Output.all(*(found or self.unknown.values())).apply(lambda _: value)

    def mark_texts(self, value: Any) -> Any:
        """Return an object as a cluster has it, with every text in it that holds a secret marked so."""

        def mark(leaf: Any) -> Any:
            return pulumi.Output.secret(leaf) if isinstance(leaf, str) and self.hide(leaf) != leaf else leaf

        return _with_leaves(value, mark)

    def hide(self, text: str) -> str:
        """Return a message without the secrets of the arguments."""
        return hide(text, self.secrets) if self.secrets else text

    def hidden(self, value: Any) -> Any:
        """Return plain data, for example observed objects, without the secrets of the arguments."""
        if not self.secrets:
            return value
        return _with_leaves(value, lambda leaf: self.hide(leaf) if isinstance(leaf, str) else leaf)

    def without_values(self, error: InvalidJobError) -> InvalidJobError:
        """Return an error of the arguments that shows no secret, however short: by the place it speaks of."""
        if not self.secret_places:
            return error
        paths = [_bare(path_of(place)) for place in self.secret_places]
        problems = [
            replace(problem, message=_SHOWN.sub(HIDDEN, problem.message))
            if any(_is_under(_bare(problem.path), path) for path in paths)
            else problem
            for problem in error.problems
        ]
        return invalid_job(error.job, problems)


def path_of(place: ValuePath) -> str:
    """Return a place as messages name it.

    >>> path_of(("roles", 0, "env", "TOKEN"))
    'roles[0].env.TOKEN'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def in_fixed_order(value: Any) -> Any:
    """Return a value with the keys of all mappings sorted, because engines and programs do not keep their order.

    >>> in_fixed_order({"b": 1, "a": [{"d": 1, "c": 2}]})
    {'a': [{'c': 2, 'd': 1}], 'b': 1}
    """
    if isinstance(value, Mapping):
        return {key: in_fixed_order(value[key]) for key in sorted(value, key=str)}
    return [in_fixed_order(item) for item in value] if isinstance(value, list) else value


def copied(value: Any) -> Any:
    """Return arguments as they are now, for a later reading: a program may change a list that it has passed on."""
    return _with_leaves(value, lambda leaf: leaf)


def is_placeholder(value: Any) -> bool:
    """Return whether a value is a placeholder of an Output that is not known yet."""
    return isinstance(value, str) and value.startswith(PLACEHOLDER)


def is_other(value: Any) -> bool:
    """Return whether a value is the second placeholder of an Output that is not known yet."""
    return is_placeholder(value) and value.endswith(OTHER)


def with_other_unknowns(resolved: Any) -> Any:
    """Return resolved arguments with the second placeholder for every value that is not known.

    What is rendered differently from these is not known.
    """
    return _with_leaves(resolved, lambda leaf: f"{leaf}{OTHER}" if is_placeholder(leaf) else leaf)


def _with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return plain data of the same form, with what a function makes of each leaf."""
    if isinstance(value, Mapping):
        return {key: _with_leaves(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_with_leaves(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return change(value)


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other


def _is_unknown(value: Any) -> bool:
    return isinstance(value, pulumi.output.Unknown)


def _changed_at(value: Any, place: ValuePath) -> Any:
    """Return plain data with another value in one place."""
    if not place:
        return _with_leaves(value, _changed)
    first, *rest = place
    if isinstance(value, Mapping):
        return {key: _changed_at(item, tuple(rest)) if key == first else item for key, item in value.items()}
    items = [_changed_at(item, tuple(rest)) if index == first else item for index, item in enumerate(value)]
    return tuple(items) if isinstance(value, tuple) else items


def _changed(value: Any) -> Any:
    """Return another value of the same form: what takes the one takes the other, wherever that can be said."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if value + 1 != value else value / 2
    if not isinstance(value, str) or isinstance(value, Enum) or not value or PLACEHOLDER in value:
        return value
    if value in _OTHER_WORD:
        return _OTHER_WORD[value]
    if _NUMBER.fullmatch(value):
        # The first digit: the last one of a long fraction may not count.
        return f"{9 - int(value[0]) or 7}{value[1:]}"
    other = "changed-leaf" if value != "changed-leaf" else "changed-leaf-2"
    return f"/{other}" if value.startswith("/") else other


def _is_under(path: str, place: str) -> bool:
    """Return whether a problem's path is a place, or in it, or around it."""
    return f"{path}.".startswith(f"{place}.") or f"{place}.".startswith(f"{path}.")


def _bare(path: str) -> str:
    """Return a path in one spelling: `roles[0].env['A']` and `roles.0.env.A` are one, camelCase is snake_case."""
    dotted = re.sub(r"[\['\"\]]+", ".", path.removeprefix("options.")).strip(".")
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", re.sub(r"\.+", ".", dotted)).lower()
