"""Checkpoints of Pulumi stacks: the only module that parses them. Bytes and text in, data out; no file is read here.

A checkpoint is the JSON file of a stack in a backend (`checkpoint.latest`), or the output of `pulumi stack export`
(`deployment`).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torchx_pulumi.model.object_fields import at, is_finite
from torchx_pulumi.model.registration_plan import APP_SUFFIX, INTENT_SUFFIX, RECORD
from torchx_pulumi.outputs.types import SCHEMA_VERSION

_RESTORE: Final = "`pulumi stack import --file FILE` restores what `pulumi stack export` saved"

STACK = "pulumi:pulumi:Stack"
STASH = "pulumi:index:Stash"
_OBJECTS = "kubernetes:"
"""Prefix of the types of Kubernetes objects."""

COMPONENTS = "torchx:index:"
"""Prefix of the types of our components."""

_OWN_PROVIDERS = ("pulumi:providers:pulumi", "pulumi:providers:kubernetes")
_OWN_STASHES = (INTENT_SUFFIX, APP_SUFFIX)
"""Suffixes of the names of the stashes that our components register."""

SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the key that marks a secret, not a secret
"""Key by which Pulumi marks a secret value."""

WRITABLE_VERSIONS = (3, 4)
"""Versions of checkpoint files that `encode_checkpoint` writes back after a change."""

_URN = '"urn:pulumi:'
_FIRST_RESOURCE = re.compile(r'"resources":\s*\[\s*(\{\n\s*"urn":\s*)' + _URN)
"""The beginning of the first resource of an indented state, up to its URN. All others begin in the same way."""

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
        self,
        latest: Mapping[str, Any] | None,
        *,
        whole: Mapping[str, Any] | None = None,
        outdated: bool = False,
        text: str = "",
        lacks_objects: bool = False,
    ) -> None:
        """Take a deployment.

        Args:
            latest: The deployment. None: the stack has no resources yet.
            whole: The JSON value that contains it, if known.
            outdated: The last state was cut off, for example by a full disk, and this is the state before it.
            text: Its text. Empty: not known.
            lacks_objects: The deployment has no Kubernetes objects; they are in the text.
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
        self.may_have_secrets = not text or SECRET in text
        self._text_with_objects = text if lacks_objects else ""

    def objects(self) -> Iterator[Resource]:
        """Yield the Kubernetes objects in the state, also those of pending operations."""
        whole = parse_checkpoint(self._text_with_objects) if self._text_with_objects else self
        yield from (item for item in whole._resources_and_pending() if is_object(item))

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
        raise UnreadableStateError(f"its checkpoint is empty; {_RESTORE}")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:  # brackets can be nested too deeply
        raise UnreadableStateError(f"its checkpoint is not valid JSON ({error}); {_RESTORE}") from error
    if not isinstance(whole, dict):
        raise UnreadableStateError(f"its checkpoint is {type(whole).__name__}, must be an object")
    holder = whole.get("checkpoint")
    # The CLI leaves `deployment` out of the export of a stack that was never updated.
    if not isinstance(holder, Mapping) and "deployment" not in whole and not isinstance(whole.get("version"), int):
        raise UnreadableStateError("its checkpoint has neither `checkpoint` nor `deployment`")
    latest = holder.get("latest") if isinstance(holder, Mapping) else whole.get("deployment")
    if latest is not None and not isinstance(latest, Mapping):
        raise UnreadableStateError(f"the deployment in its checkpoint is {type(latest).__name__}, must be an object")
    return Checkpoint(latest, whole=whole, outdated=outdated, text=text)


def _place_of(resource: Resource) -> tuple[object, object, object, object]:
    """Identify an object among those of one resource: one that is replaced has another name."""
    names = (at(resource, "inputs", "metadata", key) for key in ("namespace", "name"))
    return (resource.get("urn"), bool(resource.get("pendingReplacement")), *names)


def titled(resource: Resource) -> str:
    """Return type and name of a resource, for messages."""
    return f"{resource.get('type')} {str(resource.get('urn')).rpartition('::')[2]!r}"


def is_object(resource: Resource) -> bool:
    """Return whether a resource is a Kubernetes object."""
    return str(resource.get("type") or "").startswith(_OBJECTS)


def _is_own(resource: Resource) -> bool:
    """Return whether a launch registers this resource and it represents nothing outside of the state."""
    kind, urn = str(resource.get("type") or ""), str(resource.get("urn"))
    if kind == STASH:
        return f"::{COMPONENTS}" in urn and urn.endswith(_OWN_STASHES)
    return kind in (STACK, *_OWN_PROVIDERS) or kind.startswith(COMPONENTS)


def parse_components(text: str) -> Checkpoint:
    """Parse a checkpoint without its Kubernetes objects, which are most of it and take most of the time.

    They are parsed when they are asked for. All is parsed at once of a text in which they are not told apart by their
    indentation, as the engine has it, and of one with pending operations.

    Raises:
        UnreadableStateError: The text is not a checkpoint.
    """
    first = _FIRST_RESOURCE.search(text)
    # A text that was cut off is unreadable, even where its beginning can be parsed.
    if first is None or '"pending_operations":' in text or not text.rstrip().endswith("\n}"):
        return parse_checkpoint(text)
    begins, at, decoder = first[1], first.end(1), json.JSONDecoder()
    resources: list[Resource] = []
    try:
        while at >= 0:
            start, end = at - len(begins), at + 1
            # Other fields have URNs as well.
            if text.startswith(begins, start) and not _is_urn_of_object(text[end : text.index('"', end)]):
                found, end = decoder.raw_decode(text, start)
                resources.append(found)
            at = text.find(_URN, end)
    except (ValueError, RecursionError):
        return parse_checkpoint(text)
    return Checkpoint({"resources": resources}, text=text, lacks_objects=True)


def _is_urn_of_object(urn: str) -> bool:
    types = urn.split("::")[2:3]
    return bool(types) and types[0].rpartition("$")[2].startswith(_OBJECTS)


def output_in(checkpoint: Checkpoint) -> Mapping[str, Any] | None:
    """Return the stack output `torchx`. None: the stack has none.

    Raises:
        UnreadableStateError: It has another shape, is secret as a whole, or is of a newer release.
    """
    outputs = next((item.get("outputs") for item in checkpoint.resources if item.get("type") == STACK), None)
    if not isinstance(outputs, Mapping) or "torchx" not in outputs:
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
    return output


def runs_in(checkpoint: Checkpoint, uid: str) -> list[dict[str, Any]]:
    """Return the outputs of the components whose job object has a uid; more than one if the state was edited."""
    present = (item for item in checkpoint.resources if not item.get("delete"))
    outputs = [item.get("outputs") or {} for item in present if str(item.get("type")).startswith(COMPONENTS)]
    return [found for found in outputs if found.get("uid") == uid]


def record_in(resource: Resource) -> Any:
    """Return the record of a component in a state (`run_record`), or None for any other resource."""
    return at(resource, "outputs", RECORD) if str(resource.get("type")).startswith(COMPONENTS) else None
