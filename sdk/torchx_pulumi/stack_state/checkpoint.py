"""Reading what a stack's checkpoint says of an app. Text in, data out; no file here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry, read_entry
from torchx_pulumi.model.run_record import RunRecord, read_record
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.types import SCHEMA_VERSION

STACK = "pulumi:pulumi:Stack"
STASH = "pulumi:index:Stash"
_RESOURCES = '"resources":'
_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the mark by which Pulumi knows a secret, no secret itself
_DECODER = json.JSONDecoder()

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a value of another shape than ours raises."""


class UnreadableStateError(Exception):
    """A checkpoint cannot be understood. The message says why; the caller knows which stack it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackApp:
    """What a stack says of its app."""

    output: Mapping[str, Any]
    """The stack output `torchx`."""
    launched_at: datetime | None = None
    """When the launch was decided, where the output does not say when the job object was made. None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackMemory:
    """What a stack knows besides its outputs."""

    entry: RunEntry | None
    """Written by the adapter. None: a program of the user's own made the stack."""
    record: RunRecord | None
    """The last run. None: there was none."""


def read_app(text: str) -> StackApp | None:
    """Read the app's output from a checkpoint or an exported stack. None: the stack holds no app.

    Only as much is read as is needed: the stack's own resource comes first in what Pulumi writes.

    Raises:
        UnreadableStateError: The text is no checkpoint, or the app was written by a newer release.
    """
    outputs = _outputs(text)
    if outputs is None or "torchx" not in outputs:
        return None
    output = outputs["torchx"]
    if isinstance(output, Mapping) and _SECRET in output:
        raise UnreadableStateError(
            "the output `torchx` is secret as a whole; a value that is marked secret was put into an image name, "
            "a queue or another plain part of the app: name it in clear there"
        )
    if not isinstance(output, Mapping) or not isinstance(output.get("schema_version"), (int, float)):
        raise UnreadableStateError(f"the output `torchx` is {type(output).__name__} without a schema_version")
    if int(output["schema_version"]) > SCHEMA_VERSION:
        raise UnreadableStateError(
            f"the output `torchx` has schema version {int(output['schema_version'])}, this release reads up to "
            f"{SCHEMA_VERSION}; install the release that wrote it, or a newer one"
        )
    observed = output.get("observed")
    known = isinstance(observed, Mapping) and parse_time(observed.get("queued_at")) is not None
    return StackApp(output=output, launched_at=None if known else _launched_at(text))


def _launched_at(text: str) -> datetime | None:
    """Return the time of the launch that the notes of a stack have: of the run, else of the launch that was begun."""
    found: dict[str, datetime] = {}
    try:
        resources = [item for item in _resources(_parsed(text)) if item.get("type") == STASH]
    except UnreadableStateError:
        return None
    for resource in resources:
        value = (resource.get("inputs") or {}).get("input")
        at = parse_time(value.get("launched_at")) if isinstance(value, Mapping) else None
        if at is not None:
            found[str(resource.get("urn", "")).rpartition("-")[2]] = at
    return found.get("record") or found.get("app") or found.get("intent")


def read_memory(text: str) -> StackMemory:
    """Read what a stack knows besides its outputs.

    Raises:
        UnreadableStateError: The text is no checkpoint.
        DeployError: An entry or record was written by a newer release, or changed by hand.
    """
    entry = record = None
    for resource in _resources(_parsed(text)):
        if resource.get("type") != STASH:
            continue
        name = str(resource.get("urn", "")).rpartition("::")[2]
        value = (resource.get("inputs") or {}).get("input")
        if name.endswith("-app"):
            entry = read_entry(value, f"resource {name}")
        elif name.endswith("-record"):
            record = read_record(value)
    return StackMemory(entry=entry, record=record)


def _outputs(text: str) -> Mapping[str, Any] | None:
    """Return the outputs of the stack's own resource. None: it has none yet."""
    start = text.find(_RESOURCES)
    opening = text.find("[", start) + 1 if start >= 0 else 0
    # A file that was cut off is broken, even where its beginning can be read.
    if opening > 0 and text.rstrip().endswith("}"):
        try:
            first, _ = _DECODER.raw_decode(text, _skip_blanks(text, opening))
        except ValueError:
            first = None
        if isinstance(first, dict) and first.get("type") == STACK:
            outputs = first.get("outputs")
            return outputs if isinstance(outputs, dict) else None
    for resource in _resources(_parsed(text)):
        if resource.get("type") == STACK:
            outputs = resource.get("outputs")
            return outputs if isinstance(outputs, dict) else None
    return None


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _parsed(text: str) -> Mapping[str, Any]:
    if not text.strip():
        raise UnreadableStateError("its checkpoint is empty; `pulumi stack import` puts a backup of it back")
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise UnreadableStateError(
            f"its checkpoint is no JSON ({error}); `pulumi stack import` puts a backup of it back"
        ) from error
    if not isinstance(whole, dict):
        raise UnreadableStateError(f"its checkpoint is {type(whole).__name__}, must be an object")
    return whole


def _resources(whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the resources of a checkpoint, or of what `pulumi stack export` prints."""
    holder = whole.get("checkpoint")
    latest = holder.get("latest") if isinstance(holder, Mapping) else whole.get("deployment")
    found = latest.get("resources") if isinstance(latest, Mapping) else None
    for resource in found if isinstance(found, list) else ():
        if isinstance(resource, Mapping):
            yield resource
