"""Which stacks may be forgotten, by their checkpoint alone. Text in, data out; no file, no request.

A stack is forgotten only where everything in it is known: one app of `torchx run`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.controller.stack_apps import TrackedApp, read_stack_apps
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.object_fields import mapping_at, text_at
from torchx_pulumi.model.text import listed
from torchx_pulumi.stack_state.checkpoint import (
    STACK,
    WRITABLE_VERSIONS,
    Checkpoint,
    is_object,
    parse_checkpoint,
    read_notes,
)

OUTPUTS = frozenset({"torchx", "app_id", "app_handle", "state", "reason", "log_command"})
"""Outputs of a stack of `torchx run`. Another one is of a program that took the app over."""

NOT_OURS = {
    "protect": "is protected",
    "delete": "is deleted by the next update",
    "pendingReplacement": "is deleted by the next update",
    "retainOnDelete": "stays when its stack is deleted",
    "external": "is not managed by its stack",
}
"""Mark of a resource to why its stack stays. A provider that is the default one has none of them."""


class StaysError(Exception):
    """A stack is not forgotten. The message says why."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        """Say why.

        Args:
            why: The reason, in words.
            passing: It may be gone in a moment, for example a lock. False: it stays until somebody changes something.
        """
        super().__init__(why)
        self.passing = passing


@dataclass(frozen=True, slots=True, kw_only=True)
class AppObject:
    """An object of an app in its cluster."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    version: str | None = None
    """Its resourceVersion. None: it was not read."""
    going: bool = False
    """It is being deleted."""

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStack:
    """A stack with one app of `torchx run` and nothing else."""

    app: TrackedApp
    entry: RunEntry
    """The note of the launch."""
    objects: tuple[AppObject, ...]
    """What the launch created, the job object first."""


def read_own_stack(text: str, app: TrackedApp) -> OwnStack:
    """Return what a stack has, from its checkpoint.

    Args:
        text: The checkpoint as it is now.
        app: The app as it was last read.

    Raises:
        StaysError: The stack has anything else, or is being changed.
        UnreadableStateError: The text is not a checkpoint.
        DeployError: A newer release wrote the notes.
    """
    checkpoint, apps = parse_checkpoint(text), read_stack_apps(text, app.place, app.stack)
    _check_whole(checkpoint)
    entry, record = read_notes(text)
    if len(apps) != 1 or apps[0].urn != app.urn or entry is None or not apps[0].by_torchx:
        raise StaysError("its stack does not have exactly the one app that `torchx run` launched")
    now = apps[0]
    if now.uid is None or now.uid != app.uid:
        raise StaysError("it was launched again", passing=True)
    names = {(one.namespace, one.job_name) for one in (entry, now, app)}
    for stays, why in (
        (now.has_secrets, "values of its outputs are secret, so that its stack is not kept current"),
        (now.of_later_release, "a later release wrote its outputs"),
        (record is not None and record.imported, "its job object was created by another program"),
        (record is not None and record.attempt > 1, "a program of the user's launched it again"),
        (len(names) > 1, "its notes are of another app; they were changed by hand"),
    ):
        if stays:
            raise StaysError(why)
    return OwnStack(app=now, entry=entry, objects=_objects(checkpoint, now))


def _check_whole(checkpoint: Checkpoint) -> None:
    """Check what counts for all resources.

    Raises:
        StaysError: Something in it is not for us to remove.
    """
    if checkpoint.version not in WRITABLE_VERSIONS:
        raise StaysError(f"its checkpoint has version {checkpoint.version}, this release knows {WRITABLE_VERSIONS}")
    if checkpoint.pending:
        raise StaysError("an operation on its stack was interrupted (`pulumi refresh`, `torchx-pulumi delete`)")
    others = [_named(item) for item in checkpoint.others()]
    if others:
        raise StaysError(f"its stack also holds {listed(others, 3)}")
    for mark, why in NOT_OURS.items():
        found = [_named(item) for item in checkpoint.resources if item.get(mark)]
        if found:
            raise StaysError(f"{listed(found, 3)} {why}")
    for item in checkpoint.resources:
        more = sorted(mapping_at(item, "outputs").keys() - OUTPUTS) if item.get("type") == STACK else []
        if more:
            raise StaysError(f"a Pulumi program took its stack over: it exports {listed(more, 3)}")


def _objects(checkpoint: Checkpoint, app: TrackedApp) -> tuple[AppObject, ...]:
    """Return the objects of a run, the job object first.

    Raises:
        StaysError: The state has an object that no launch creates, or that it does not identify.
    """
    job = app.variant.job_object
    found = [AppObject(kind=job, namespace=app.namespace, name=app.job_name, uid=app.uid or "")]
    allowed = {(kind.api_version, kind.kind): kind for kind in (job, *app.variant.companions)}
    for item in filter(is_object, checkpoint.resources):
        whole = {**mapping_at(item, "inputs"), **mapping_at(item, "outputs")}
        kind = allowed.get((str(whole.get("apiVersion")), str(whole.get("kind"))))
        name, uid = text_at(whole, "metadata", "name"), text_at(whole, "metadata", "uid")
        if kind is None or name is None or uid is None:
            raise StaysError(f"its stack has {_named(item)}, which no launch of this kind creates, or without a uid")
        namespace = text_at(whole, "metadata", "namespace") or app.namespace
        one = AppObject(kind=kind, namespace=namespace, name=name, uid=uid)
        if kind == job and one != found[0]:
            raise StaysError(f"its stack names {one} with another uid, name or namespace than its outputs")
        if namespace != app.namespace:
            raise StaysError(f"its stack has {one}, which is in another namespace than the app")
        found += [one] if one not in found else []
    return tuple(found)


def _named(item: Mapping[str, Any]) -> str:
    return f"{item.get('type')} {str(item.get('urn')).rpartition('::')[2]!r}"
