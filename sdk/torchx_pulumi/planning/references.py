"""References to variables, `$(NAME)`, which the kubelet expands in the arguments and the environment of a container.

In the environment it expands a variable only in those after it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx_pulumi.planning import names

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")

_OF_SERVICE = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)")
"""Variables that the kubelet makes for each Service of the namespace, before all others."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand references to variables as the kubelet does in arguments and environment.

    `$(NAME)` is the value of a variable, and stays as it is if that is unknown; `$$` is one dollar sign (Kubernetes:
    `third_party/forked/golang/expansion/expand.go`).

    >>> expand("$(A) $(B) $$(A) ${A} $(", {"A": "1"})
    '1 $(B) $(A) ${A} $('
    """

    def read(found: re.Match[str]) -> str:
        return "$" if found[1] is None else variables.get(found[1], found[0])

    return _REFERENCE.sub(read, text)


def names_in(text: str) -> list[str]:
    """Return the names that a text refers to.

    >>> names_in("$(A) $$(B) ${C}")
    ['A']
    """
    return [found[1] for found in _REFERENCE.finditer(text) if found[1] is not None] if "$(" in text else []


def in_expansion_order(env: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the variables of a container, each after those that its value names; else they stay in their order.

    >>> [one["name"] for one in in_expansion_order([{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}])]
    ['B', 'A']
    """
    positions: dict[Any, list[int]] = {}
    for position, variable in enumerate(env):
        positions.setdefault(variable.get("name"), []).append(position)
    opened: set[int] = set()
    placed: dict[int, Any] = {}
    known: set[Any] = set()
    waiting = [*reversed(range(len(env)))]
    while waiting:
        position = waiting[-1]
        ahead: list[int] = []
        if position not in opened:
            opened.add(position)
            unknown = [name for name in _referred(env[position]) if name not in known]
            ahead = [before for name in unknown for before in positions.get(name, ()) if before not in opened]
            waiting += reversed(ahead)
        if not ahead:
            waiting.pop()
            placed.setdefault(position, env[position])
            known.add(env[position].get("name"))
    return [*placed.values()]


def unexpanded(env: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, bool]]:
    """Yield the references in ordered variables that stay as text.

    Each is the name of a variable, the name in its value, and whether both refer to each other. Variables of Services
    are left out, as the namespace may have them.
    """
    all_names = {variable.get("name") for variable in env}
    known: set[Any] = set()
    for variable in env:
        own = variable.get("name")
        for name in dict.fromkeys(_referred(variable)):
            if name not in known and names.is_env_name(name) and not _OF_SERVICE.fullmatch(name):
                yield str(own), name, name in all_names and name != own
        known.add(own)


def _referred(variable: Mapping[str, Any]) -> list[str]:
    value = variable.get("value")
    return names_in(value) if isinstance(value, str) else []
