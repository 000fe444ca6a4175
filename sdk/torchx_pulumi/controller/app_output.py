"""What the stack of an app says of it, in the shape of the stack output `torchx`. Data in, data out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Any

from torchx_pulumi.apps.judge import latest
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.object_fields import mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.timestamps import parse_time
from torchx_pulumi.outputs.building import app_handle
from torchx_pulumi.outputs.types import SCHEMA_VERSION
from torchx_pulumi.stack_state.checkpoint import SECRET, StackApp

SHARED_LENGTH = 64
"""Characters of the longest text of which equal ones of different apps are stored once."""


def exported_outputs(resources: Iterable[Mapping[str, Any]], app_id: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of the shape `torchx` that a stack exports of an app, by whatever name, of any version."""
    for item in resources:
        for output in mapping_at(item, "outputs").values() if not item.get("parent") else ():
            has_version = isinstance(output, Mapping) and number_at(output, "schema_version") is not None
            if has_version and text_at(output, "app", "id") == app_id:
                yield output


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
    observed, own = mapping_at(output, "observed"), mapping_at(outputs, "observed")
    if own:
        observed = latest(observed, own) if observed else own
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
