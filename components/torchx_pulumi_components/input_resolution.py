"""Outputs among the arguments: resolve them to a tree in which each leaf says whether it is secret or unknown.

The decision about a job needs the values of its fields, so a component waits for them (docs/decisions/0004). From the
tree come the arguments as they are, and the arguments with other values in the secret or in the unknown leaves. What is
rendered differently from those depends on such a leaf (`marked_plan`), so macros, rounding and conversions need no
tracking.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pulumi
from torchx_pulumi.model.redaction import HIDDEN, SHORTEST, hide
from torchx_pulumi.planning.checks.values import shown
from torchx_pulumi.planning.references import names_in
from torchx_pulumi.planning.typed_reader import as_text, snake_case

_WORDS = (
    ("true", "false"),
    ("APPLICATION", "REPLICA"),
    ("hard", "soft"),
    ("exponential", "linear"),
    ("Equal", "Exists"),
)
_OTHER_WORD = {word: other for pair in _WORDS for word, other in (pair, pair[::-1])}
"""A valid word of a field with few values to another one."""

_READ_BY_PROGRAMS = frozenset(
    {"state", "phase", "reason", "type", "status", "source", "kind", "action", "uid", "resource_version"}
    | {"at", "since", "observed_at", "queued_at", "started_at", "finished_at"}
)
"""Fields of an observation or a request whose values are made of no argument. A secret may be the same by chance."""

ValuePath = tuple[str | int, ...]
"""Where a value is in the arguments: keys and positions."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only `up` knows. `arg_values` chooses its stand-in for a preview."""

    number: int
    """Number of the value among the unknown ones."""
    second: bool = False
    """It stands for another value than the first one does."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in the arguments that is neither a mapping nor a list."""

    value: Any
    secret: bool = False


@dataclass(slots=True)
class Leaves:
    """One set of arguments, resolved."""

    tree: Any = None
    """The arguments as they are nested, with a `Leaf` in place of each value."""
    unknown: int = 0
    """Number of unknown values."""
    secret_places: list[ValuePath] = field(default_factory=list)
    """Places of the secret leaves."""
    secrets: set[str] = field(default_factory=set)
    """How messages write the secret values. Only messages are searched for them."""
    resources: set[pulumi.Resource] = field(default_factory=set)
    """Resources that the Outputs come from."""

    @property
    def secret_arguments(self) -> set[str]:
        """Return the names of the arguments that are secret and have no other values in them."""
        return {snake_case(str(place[0])) for place in self.secret_places if len(place) == 1}

    async def resolve(self, arguments: Any) -> Any:
        """Return arguments with every Output in them replaced by its value, or by an `Unknown`."""
        self.tree = await self._resolve(arguments, (), secret=False)
        return self._made(lambda leaf: leaf.value)

    async def _resolve(self, value: Any, place: ValuePath, *, secret: bool) -> Any:
        if inspect.isawaitable(value):
            value = pulumi.Output.from_input(value)
        if isinstance(value, pulumi.Output):
            # Secret before it is known, too.
            secret = await value.is_secret() or secret
            self.resources |= await value.resources()
            found = await value.future(with_unknowns=True)
            is_unknown = found is None and not await value.is_known()
            return await self._resolve(
                pulumi.output.UNKNOWN if is_unknown else in_fixed_order(found), place, secret=secret
            )
        if isinstance(value, Mapping):
            return {key: await self._resolve(item, (*place, key), secret=secret) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            items = [await self._resolve(item, (*place, index), secret=secret) for index, item in enumerate(value)]
            # In a pod overlay a tuple replaces a list.
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, pulumi.output.Unknown):
            value, self.unknown = Unknown(self.unknown), self.unknown + 1
        if secret:
            self.secret_places.append(place)
            self.secrets |= set(_spellings(value))
        return Leaf(value, secret)

    def changed(self) -> Any:
        """Return the arguments with another value of the same form in every secret leaf.

        Equal secrets stay equal, others stay different, and so do the differences of numbers.
        """
        numbers: dict[Any, int] = {}

        def change(leaf: Leaf) -> Any:
            value = leaf.value
            is_scalar = isinstance(value, (str, int, float))
            number = numbers.setdefault(value, len(numbers)) if leaf.secret and is_scalar else 0
            return another(value, number) if leaf.secret else value

        return self._made(change)

    def other(self) -> Any:
        """Return the arguments with the second stand-in for every unknown value."""
        return self._made(lambda leaf: another(leaf.value) if isinstance(leaf.value, Unknown) else leaf.value)

    def _made(self, make: Callable[[Leaf], Any]) -> Any:
        return with_leaves(self.tree, make)

    def mark_texts(self, value: Any) -> Any:
        """Return an object as a cluster has it, with every text in it that holds a secret marked so."""

        def mark(leaf: Any) -> Any:
            return pulumi.Output.secret(leaf) if isinstance(leaf, str) and self.hide(leaf) != leaf else leaf

        return with_leaves(value, mark)

    def hide(self, text: str) -> str:
        """Return a message without the secrets of the arguments.

        A secret of less than four characters is hidden only as a value of a message: in quotes, or as `is VALUE`.
        """
        if not self.secrets:
            return text
        short = {secret for secret in self.secrets if len(secret) < SHORTEST}
        return "\n".join(_without_short(line, short) for line in hide(text, self.secrets).split("\n"))

    def hidden(self, value: Any) -> Any:
        """Return an observation or a request without the secrets of the arguments, which its explanations may quote."""
        if not self.secrets:
            return value
        if isinstance(value, Mapping):
            return {key: item if key in _READ_BY_PROGRAMS else self.hidden(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hidden(item) for item in value]
        return self.hide(value) if isinstance(value, str) else value


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
    return with_leaves(value, lambda leaf: leaf)


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested data of the same form, with what a function makes of each leaf."""
    if isinstance(value, Mapping):
        return {key: with_leaves(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [with_leaves(item, change) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return change(value)


def another(value: Any, number: int = 0) -> Any:
    """Return another value of the same form: what takes the one takes the other, wherever that can be said.

    Args:
        value: A value.
        number: Texts and numbers with different ones differ by more than their values do.

    >>> another("hard"), another("/data"), another(7), another("250m"), another("a", 2), another(7, 2)
    ('soft', '/changed-leaf', 8, 'changed-leaf', 'changed-leaf-2', 10)
    >>> another("pw-of-$(USER)")
    'changed-leaf$(USER)'
    """
    if isinstance(value, Unknown):
        return replace(value, second=True)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        other = value + 1 + number
        return other if other != value else value / 2
    if not isinstance(value, str) or isinstance(value, Enum) or not value:
        return value
    if value in _OTHER_WORD:
        return _OTHER_WORD[value]
    whole, dot, fraction = value.partition(".")
    if whole.isdecimal() and (fraction.isdecimal() or not dot):
        # The first digit: the last one of a long fraction may not count.
        return f"{9 - int(value[0]) or 7}{value[1:]}"
    text = f"changed-leaf-{number}" if number else "changed-leaf"
    text = f"/{text}" if value.startswith("/") else text
    # Variables are rendered in the order of their references.
    text += "".join(f"$({name})" for name in names_in(value))
    return text if text != value else f"{text}-other"


def _without_short(line: str, secrets: Set[str]) -> str:
    words = line.split(" ")
    for index, (before, word) in enumerate(itertools.pairwise(words), 1):
        value = word.rstrip(",;.)")
        if before in ("is", "found") and value in secrets:
            words[index] = HIDDEN + word[len(value) :]
    return " ".join(words)


def _spellings(value: object) -> Iterator[str]:
    """Yield the texts by which messages show a value."""
    if not isinstance(value, (str, int, float)) or isinstance(value, bool) or value == "":
        return
    # Python does not write integers of thousands of digits.
    with contextlib.suppress(ValueError, OverflowError):
        yield str(value)
        if shown(value).endswith("..."):
            yield shown(value)[1:-3]
        # "2.0" is read as 2.
        yield as_text(float(value))
