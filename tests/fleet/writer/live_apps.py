"""Apps of a live fleet, as the controller tracks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.ownership import Run
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.stacks import StackName

from tests.fleet.tracker.states import output

BACKEND = "file:///backend"

OF_RUN = {field.name for field in fields(Run)}


def app_of(
    whole: Mapping[str, Any], stack: StackName, *, backend: str = BACKEND, urn: str = "urn", **changes: Any
) -> App:
    """Return the app of a program whose stack says `whole`; `changes` as of `changed`."""
    run = Run(namespace="team", job_name=stack.stack, variant=next(iter(find_backend("volcano").variants.values())))
    return changed(App(place=stack.at(backend), urn=urn, run=run, output=whole), **changes)


def changed(app: App, *, log_archive: str | None = None, **changes: Any) -> App:
    """Return an app with other fields, or with other fields of its run, or whose launch named an archive."""
    if log_archive is not None:
        changes["output"] = {**app.output, "links": {**app.output.get("links", {}), "log_archive": log_archive}}
    of_run = {name: changes.pop(name) for name in OF_RUN & changes.keys()}
    return replace(app, run=replace(app.run, **of_run), **changes)


def tracked_app(name: str = "train-x1", *, backend: str = BACKEND, uid: str | None = "u1", **changes: Any) -> App:
    """Return an app of a stack `NAME`; `changes` are those of `states.output`."""
    stack, urn = StackName(project="torchx", stack=name), f"urn:pulumi:{name}::torchx::component::{name}"
    return app_of(output(name, **changes), stack, backend=backend, urn=urn, uid=uid)
