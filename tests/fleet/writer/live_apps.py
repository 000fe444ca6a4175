"""Apps of a live fleet, as the controller tracks them."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.stacks import StackName
from torchx_pulumi_fleet.tracker.stack_apps import TrackedApp
from torchx_pulumi_fleet.views.row import StackApp

from tests.fleet.tracker.states import output

BACKEND = "file:///backend"


def tracked_app(
    name: str = "train-x1", *, backend: str = BACKEND, uid: str | None = "u1", **changes: Any
) -> TrackedApp:
    """Return an app of a stack `NAME`; `changes` are those of `states.output`."""
    return TrackedApp(
        backend=backend,
        stack=StackName(project="torchx", stack=name),
        place=StackRef(backend=backend, project="torchx", stack=name),
        urn=f"urn:pulumi:{name}::torchx::component::{name}",
        scheduler="volcano",
        variant=next(iter(find_backend("volcano").variants.values())),
        namespace="team",
        job_name=name,
        launches=frozenset(),
        uid=uid,
        output=StackApp(output=output(name, **changes)),
    )
