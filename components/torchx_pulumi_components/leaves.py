"""Outputs among the arguments: their values where they are known, and the way back into what is made of them.

A job can only be decided about when its fields have values, so a component waits for them (docs/decisions/0004).
What is not known yet (in a preview) is planned with a stand-in text, and each text made of it becomes unknown again;
what is secret stays secret.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pulumi
from pulumi.runtime.sync_await import _sync_await

T = TypeVar("T")

STAND_IN = "unknown-leaf-"
"""Stand-in texts start with this; valid as image, name and value alike."""


def wait_for(awaitable: Any) -> Any:
    """Wait for something asynchronous in a constructor, as Pulumi's own invokes do."""
    return _sync_await(awaitable)


@dataclass(slots=True)
class Leaves:
    """What was found in one set of arguments."""

    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    """Stand-in text to the Output it stands for."""
    unknown_paths: list[str] = field(default_factory=list)
    """Where the unknown Outputs are."""
    secrets: set[str] = field(default_factory=set)
    """Texts that are secret."""
    resources: set[pulumi.Resource] = field(default_factory=set)
    """Resources that the Outputs come from."""

    def resolve(self, value: Any, path: str = "") -> Any:
        """Return the value with every Output in it replaced by what it holds, or by a stand-in."""
        if inspect.isawaitable(value):
            value = pulumi.Output.from_input(value)
        if isinstance(value, pulumi.Output):
            return self._resolve_output(value, path)
        if isinstance(value, Mapping):
            return {key: self.resolve(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [self.resolve(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if _is_unknown(value):
            return self._stand_in(pulumi.Output.from_input(value), path)
        return value

    def _resolve_output(self, output: pulumi.Output[Any], path: str) -> Any:
        value = wait_for(output.future(with_unknowns=True))
        self.resources |= set(wait_for(output.resources()))
        if not wait_for(output.is_known()) and (value is None or _is_unknown(value)):
            return self._stand_in(output, path)
        if wait_for(output.is_secret()):
            self.secrets |= set(_texts(value))
        return self.resolve(value, path)

    def _stand_in(self, output: pulumi.Output[Any], path: str) -> str:
        text = f"{STAND_IN}{len(self.unknown)}"
        self.unknown[text] = output
        self.unknown_paths.append(path)
        return text

    def restore(self, value: Any) -> Any:
        """Return a value made of resolved leaves, with unknown and secret texts marked as what they are."""
        if not self.unknown and not self.secrets:
            return value
        if isinstance(value, Mapping):
            return {key: self.restore(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.restore(item) for item in value]
        if not isinstance(value, str):
            return value
        for text, output in self.unknown.items():
            if text in value:
                return _like(output, value)
        return pulumi.Output.secret(value) if self._holds_secret(value) else value

    def _holds_secret(self, value: str) -> bool:
        # A short secret is only looked for as a whole: "1" is part of nearly everything.
        return any(value == text or (len(text) > 3 and text in value) for text in self.secrets)


def known(value: pulumi.Output[T] | None) -> T | None:
    """Return what an Output holds now, None where that is not known."""
    if value is None or not wait_for(value.is_known()):
        return None
    result: T = wait_for(value.future())
    return result


def is_stand_in(value: Any) -> bool:
    """Say whether a value stands for an Output that is not known yet."""
    return isinstance(value, str) and value.startswith(STAND_IN)


def _like(output: pulumi.Output[Any], text: str) -> pulumi.Output[Any]:
    # The Output is not known, so that this is never called; its being unknown and secret is what is wanted.
    return output.apply(lambda _: text)


def _is_unknown(value: Any) -> bool:
    return isinstance(value, pulumi.output.Unknown)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif value not in (None, "", True, False) and not isinstance(value, pulumi.Output):
        yield str(value)
