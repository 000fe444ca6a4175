"""The apps in a stack as a fleet keeps them: many, so that short texts are shared, and what no view shows goes."""

from __future__ import annotations

from dataclasses import replace
from sys import intern
from typing import Any

from torchx_pulumi.apps.app import App, read_apps
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.stack_state.checkpoint import SECRET, UnreadableStateError, output_in, parse_components

SHARED_LENGTH = 64
"""Length of the longest text that is stored once for several apps, in characters."""


def read_stack(text: str, place: StackRef) -> tuple[list[App], str]:
    """Return the apps in a checkpoint, and why its output `torchx` cannot be read. Empty: it can, or there is none.

    Args:
        text: The checkpoint.
        place: The stack.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    checkpoint, why = parse_components(text), ""
    try:
        output_in(checkpoint)
    except UnreadableStateError as error:
        why = str(error)
    return [compacted(app) for app in read_apps(checkpoint, place)], why


def compacted(app: App) -> App:
    """Return an app as it is kept: its entry without AppDef, pods and what is declared, its secret values null."""
    output, own = _compact(app.output), app.answer.observed
    # The output mostly has the same observation.
    observed = output["observed"] if own is app.output["observed"] else _compact(own)
    return replace(
        app,
        entry=app.entry and replace(app.entry, app={}, pods={}, declared={}),
        output=output,
        answer=replace(app.answer, observed=observed or {}),
    )


def _compact(value: Any) -> Any:
    """Return a JSON value in which short texts are shared with other apps, and secret ones are null."""
    if isinstance(value, str):
        return intern(str(value)) if len(value) <= SHARED_LENGTH else value
    # Of JSON, so that the quick test for this type is enough.
    if isinstance(value, dict):
        return None if SECRET in value else {intern(str(key)): _compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_compact(item) for item in value]
    return value
