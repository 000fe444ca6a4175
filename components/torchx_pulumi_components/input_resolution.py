"""Outputs among the arguments: wait for each, and note the places of secret and of unknown values.

The decision about a job needs the values of its fields, so a component waits for them (docs/decisions/0004). `places`
says what such a place makes secret or unknown, so macros, rounding and conversions need no tracking.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pulumi
from torchx_pulumi.model.redaction import HIDDEN, SHORTEST, hide
from torchx_pulumi.planning.checks.values import shown
from torchx_pulumi.planning.references import names_in
from torchx_pulumi.planning.typed_reader import as_text, snake_case

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


@dataclass(slots=True)
class Leaves:
    """What is known of the values in one set of arguments, besides the values. A leaf is no mapping and no list."""

    secret_places: list[ValuePath] = field(default_factory=list)
    """Places of the secret leaves that are set."""
    unknown_places: list[ValuePath] = field(default_factory=list)
    """Places of the leaves that only `up` knows."""
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
        return await self._resolve(arguments, (), secret=False)

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
            self.unknown_places.append(place)
            value = Unknown(len(self.unknown_places))
        if secret and value is not None:
            self.secret_places.append(place)
            self.secrets |= set(_spellings(value))
        return value

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
    if isinstance(value, str):
        # A warning quotes the variables that a value names; of two dollar signs macros of roles leave one.
        yield from (name for text in (value, value.replace("$$", "$")) for name in names_in(text) if name)
