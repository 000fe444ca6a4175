"""What the stack of an app says of it, in the shape of the stack output `torchx`. Data in, data out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Any

from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.building import app_handle
from torchx_pulumi.outputs.newer import is_newer
from torchx_pulumi.outputs.types import SCHEMA_VERSION
from torchx_pulumi.stack_state.checkpoint import SECRET, StackApp

SHARED_LENGTH = 64
"""Characters of the longest text of which equal ones of different apps are stored once."""


def exported_output(resources: Iterable[Mapping[str, Any]], app_id: str) -> Mapping[str, Any] | None:
    """Return the object of the shape `torchx` that a program exports of an app, by whatever name. None: it has none."""
    for item in resources:
        for output in mapping_at(item, "outputs").values() if not item.get("parent") else ():
            version = number_at(output, "schema_version")
            if not isinstance(output, Mapping) or version is None or version > SCHEMA_VERSION:
                continue
            if text_at(output, "app", "id") == app_id:
                return output
    return None


def read_output(
    exported: Mapping[str, Any] | None,
    component: Mapping[str, Any],
    entry: RunEntry | None,
    record: RunRecord | None,
    *,
    scheduler: str,
    app_id: str,
) -> StackApp:
    """Return what a stack says of an app.

    Args:
        exported: What the program exports of it. None: nothing, and the result is made of what the component has.
        component: The resource of the app's component.
        entry: The note of a launch by `torchx run`. None: the stack has none.
        record: The note of its last run. None: the stack has none.
        scheduler: Name of the scheduler.
        app_id: `namespace:job_name`.
    """
    outputs = mapping_at(component, "outputs")
    output = exported or _made(outputs, str(component.get("urn")), entry, scheduler, app_id)
    observed, latest = mapping_at(output, "observed"), mapping_at(outputs, "observed")
    if latest and (not observed or is_newer(latest, observed)):
        observed = latest
    launched_at = None
    if time_at(observed, "queued_at") is None:
        launched = (record and record.launched_at) or (entry and entry.launched_at)
        launched_at = parse_time(launched) if launched else None
    return StackApp(output=compact({**output, "observed": observed}), launched_at=launched_at)


def compact(value: Any) -> Any:
    """Return a JSON value in which short texts are shared with other apps, and secret ones are null."""
    if isinstance(value, str):
        return intern(str(value)) if len(value) <= SHARED_LENGTH else value
    if isinstance(value, Mapping):
        return None if SECRET in value else {intern(str(key)): compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    return value


def _made(
    outputs: Mapping[str, Any], urn: str, entry: RunEntry | None, scheduler: str, app_id: str
) -> Mapping[str, Any]:
    """Return the object of an app whose program exports none, or whose launch has not ended."""
    namespace, _, job_name = app_id.partition(":")
    return {
        "schema_version": SCHEMA_VERSION,
        "app": {
            "id": app_id,
            "handle": text_at(outputs, "app_handle") or app_handle(scheduler, namespace, job_name),
            "name": urn.rpartition("::")[2] if entry is None else entry.name,
            "scheduler": scheduler,
            "namespace": namespace,
            "queue": None if entry is None else entry.queue,
        },
        "declared": mapping_at(outputs, "declared") or ({} if entry is None else entry.declared),
        "observed": mapping_at(outputs, "observed"),
        "links": {"ui_url": None if entry is None else entry.ui_url},
    }
