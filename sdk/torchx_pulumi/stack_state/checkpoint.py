"""Checkpoints of Pulumi stacks: the only module that parses them. Bytes and text in, data out; no file is read here.

A checkpoint is the JSON file of a stack in a backend (`checkpoint.latest`), or the output of `pulumi stack export`
(`deployment`).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry, read_entry
from torchx_pulumi.model.object_fields import at, is_finite, text_at
from torchx_pulumi.model.registration_plan import APP_SUFFIX, RECORD
from torchx_pulumi.model.run_record import RunRecord, read_record
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.types import SCHEMA_VERSION

STACK = "pulumi:pulumi:Stack"
STASH = "pulumi:index:Stash"
COMPONENTS = "torchx:index:"
"""Prefix of the types of our components."""

_OWN_PROVIDERS = ("pulumi:providers:pulumi", "pulumi:providers:kubernetes")
_OWN_STASHES = ("-intent", APP_SUFFIX)
"""Suffixes of the names of the stashes that our components register."""

SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the key that marks a secret, not a secret
"""Key by which Pulumi marks a secret value."""

WRITABLE_VERSIONS = (3, 4)
"""Versions of checkpoint files that `encode_checkpoint` writes back after a change."""

_FIRST_RESOURCE = re.compile(r'"resources":\s*\[\s*')

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors that values of an unexpected shape raise."""


Resource = Mapping[str, Any]
"""A resource or a pending operation in a state, as the engine wrote it."""


class UnreadableStateError(ValueError):
    """A checkpoint cannot be parsed. The message gives the reason; the caller adds the stack."""


def decode_checkpoint(data: bytes, name: str) -> str:
    """Return the text of a checkpoint file.

    Args:
        data: Its content.
        name: Its name, which ends in `.gz` if it is compressed; `.bak` may follow.

    Raises:
        UnreadableStateError: The content is cut off, or is not text.
    """
    try:
        return (gzip.decompress(data) if name.removesuffix(".bak").endswith(".gz") else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UnreadableStateError(f"its checkpoint cannot be read: {error}") from error


def encode_checkpoint(checkpoint: Checkpoint, name: str) -> bytes:
    """Return the content of a checkpoint file, as compact as the engine writes it.

    A lone surrogate, which UTF-8 cannot encode, becomes a question mark.

    Args:
        checkpoint: The state of a file, whose resources may have changed since.
        name: Name of the file.
    """
    text = json.dumps(checkpoint.whole, ensure_ascii=False, separators=(",", ":"))
    data = text.encode(errors="replace")
    return gzip.compress(data) if name.endswith(".gz") else data


def checkpoint_text(stack: str, resources: Sequence[Resource] | None = None) -> str:
    """Return the checkpoint of a stack.

    Args:
        stack: Full name of the stack: `organization/project/stack`.
        resources: Its resources. None: it was never updated.
    """
    latest = None if resources is None else {"resources": resources}
    return json.dumps({"version": 3, "checkpoint": {"stack": stack, "latest": latest}})


class Checkpoint:
    """The state of a stack as the engine last wrote it."""

    def __init__(
        self, latest: Mapping[str, Any] | None, *, whole: Mapping[str, Any] | None = None, outdated: bool = False
    ) -> None:
        """Take a deployment.

        Args:
            latest: The deployment. None: the stack has no resources yet.
            whole: The JSON value that contains it, if known.
            outdated: The last state was cut off, for example by a full disk, and this is the state before it.
        """
        latest = latest or {}
        self.resources: Sequence[Resource] = latest.get("resources") or []
        present = [_place_of(item) for item in self.resources if not item.get("delete")]
        self.pending: Sequence[Resource] = [
            operation
            for operation in latest.get("pending_operations") or []
            if operation.get("type") != "creating"
            or not is_object(made := operation.get("resource") or {})
            or _place_of(made) not in present
        ]
        """Operations that started and did not end. A later deployment imports an object whose creation was interrupted;
        the engine keeps that creation until `pulumi refresh --clear-pending-creates`, and it is left out here."""
        self.whole = whole or {}
        self.version: object = self.whole.get("version")
        self.outdated = outdated

    def objects(self) -> Iterator[Resource]:
        """Yield the Kubernetes objects in the state, also those of pending operations."""
        yield from (item for item in self._resources_and_pending() if is_object(item))

    def others(self) -> Iterator[Resource]:
        """Yield the resources of the user's own program, also those of pending operations.

        That is everything except Kubernetes objects, their provider, and what our components register.
        """
        yield from (item for item in self._resources_and_pending() if not is_object(item) and not _is_own(item))

    def provider_inputs(self) -> Iterator[Resource]:
        """Yield the inputs of the providers of the Kubernetes objects."""
        used = {str(item.get("provider")).rpartition("::")[0] for item in self.objects()}
        yield from (item.get("inputs") or {} for item in self.resources if item.get("urn") in used)

    def notes(self) -> Iterator[tuple[str, Any]]:
        """Yield name and value of the intents and entries of launches, and the records of components as `RECORD`."""
        for item in self.resources:
            name = str(item.get("urn")).rpartition("::")[2]
            if item.get("type") == STASH and name.endswith(_OWN_STASHES):
                value = (item.get("outputs") or {}).get("input")
                yield name, (item.get("inputs") or {}).get("input") if value is None else value
            elif (record := record_in(item)) is not None:
                yield RECORD, record

    def stash(self, suffix: str) -> Any:
        """Return the value of the first stash whose name ends in a suffix, or None if there is none."""
        return next((value for name, value in self.notes() if name.endswith(suffix)), None)

    def _resources_and_pending(self) -> Iterator[Resource]:
        yield from self.resources
        yield from (operation.get("resource") or {} for operation in self.pending)


def parse_checkpoint(text: str, *, outdated: bool = False) -> Checkpoint:
    """Parse a checkpoint file or the output of `pulumi stack export`.

    Args:
        text: The JSON text.
        outdated: The text is the state before the last one.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    if not text.strip():
        raise UnreadableStateError("its checkpoint is empty; `pulumi stack import` restores a backup")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:  # brackets can be nested too deeply
        raise UnreadableStateError(
            f"its checkpoint is not valid JSON ({error}); `pulumi stack import` restores a backup"
        ) from error
    if not isinstance(whole, dict):
        raise UnreadableStateError(f"its checkpoint is {type(whole).__name__}, must be an object")
    holder = whole.get("checkpoint")
    # The CLI leaves `deployment` out of the export of a stack that was never updated.
    if not isinstance(holder, Mapping) and "deployment" not in whole and not isinstance(whole.get("version"), int):
        raise UnreadableStateError("its checkpoint has neither `checkpoint` nor `deployment`")
    latest = holder.get("latest") if isinstance(holder, Mapping) else whole.get("deployment")
    if latest is not None and not isinstance(latest, Mapping):
        raise UnreadableStateError(f"the deployment in its checkpoint is {type(latest).__name__}, must be an object")
    return Checkpoint(latest, whole=whole, outdated=outdated)


def _place_of(resource: Resource) -> tuple[object, object, object, object]:
    """Return what tells an object from another one of the same resource: one that is replaced has another name."""
    names = (at(resource, "inputs", "metadata", key) for key in ("namespace", "name"))
    return (resource.get("urn"), bool(resource.get("pendingReplacement")), *names)


def is_object(resource: Resource) -> bool:
    """Return whether a resource is a Kubernetes object."""
    return str(resource.get("type") or "").startswith("kubernetes:")


def _is_own(resource: Resource) -> bool:
    """Return whether a launch registers this resource and it represents nothing outside of the state."""
    kind, urn = str(resource.get("type") or ""), str(resource.get("urn"))
    if kind == STASH:
        return f"::{COMPONENTS}" in urn and urn.endswith(_OWN_STASHES)
    return kind in (STACK, *_OWN_PROVIDERS) or kind.startswith(COMPONENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackApp:
    """The app in the outputs of a stack."""

    output: Mapping[str, Any]
    """The stack output `torchx`."""
    launched_at: datetime | None = None
    """Time of the launch, if known and if the output has no creation time of the job object."""


def read_app(text: str) -> StackApp | None:
    """Return the app's output in a checkpoint, or None if the stack holds no app.

    Pulumi writes the stack's own resource first; usually only that part of the text is parsed.

    Raises:
        UnreadableStateError: The text is not a checkpoint, or a newer release wrote the app.
    """
    outputs = _stack_outputs(text)
    if outputs is None or "torchx" not in outputs:
        return None
    output = outputs["torchx"]
    if isinstance(output, Mapping) and SECRET in output:
        raise UnreadableStateError(
            "the output `torchx` is secret as a whole; a value that is marked secret was put into an image name, "
            "a queue or another plain part of the app: use plain text there"
        )
    if not isinstance(output, Mapping) or not is_finite(output.get("schema_version")):
        raise UnreadableStateError(f"the output `torchx` is {type(output).__name__} without a schema_version")
    if int(output["schema_version"]) > SCHEMA_VERSION:
        raise UnreadableStateError(
            f"the output `torchx` has schema version {int(output['schema_version'])}, this release reads up to "
            f"{SCHEMA_VERSION}; install the release that wrote it, or a newer one"
        )
    observed = output.get("observed")
    has_time = isinstance(observed, Mapping) and parse_time(observed.get("queued_at")) is not None
    return StackApp(output=output, launched_at=None if has_time else _launched_at(text))


def _stack_outputs(text: str) -> Mapping[str, Any] | None:
    """Return the outputs of the stack's own resource, or None if it has none yet."""
    start = _FIRST_RESOURCE.search(text)
    first: Any = None
    # A text that was cut off is unreadable, even where its beginning can be parsed.
    if start is not None and text.rstrip().endswith("}"):
        with contextlib.suppress(ValueError):
            first, _ = json.JSONDecoder().raw_decode(text, start.end())
    if not isinstance(first, dict) or first.get("type") != STACK:
        first = next((item for item in parse_checkpoint(text).resources if item.get("type") == STACK), {})
    outputs = first.get("outputs")
    return outputs if isinstance(outputs, dict) else None


def _launched_at(text: str) -> datetime | None:
    """Return the launch time in the notes of a stack: of the run, else of the app, else of a pending launch."""
    notes = dict(parse_checkpoint(text).notes())
    for suffix in (RECORD, APP_SUFFIX, "-intent"):
        for name, value in notes.items():
            if name.endswith(suffix) and (at := parse_time(text_at(value, "launched_at"))) is not None:
                return at
    return None


def read_notes(text: str) -> tuple[RunEntry | None, RunRecord | None]:
    """Read the entry and the record of the last run from the notes of a stack.

    Returns:
        The entry of an app that `torchx run` launched, and the record of its last run. None: the stack has none.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
        DeployError: A newer release wrote the entry or the record, or it was edited.
    """
    entry = record = None
    for name, value in parse_checkpoint(text).notes():
        if name.endswith(APP_SUFFIX):
            entry = read_entry(value, f"resource {name}")
        elif name == RECORD:
            record = read_record(value)
    return entry, record


def record_in(resource: Resource) -> Any:
    """Return the record of a component in a state (`run_record`), or None for any other resource."""
    return at(resource, "outputs", RECORD) if str(resource.get("type")).startswith(COMPONENTS) else None
