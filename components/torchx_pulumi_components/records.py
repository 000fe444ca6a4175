"""Writing what a stack remembers of a run: an intent before the job is made, a record after it. Read by `memory`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pulumi
from torchx_pulumi.relaunch.record import RunRecord, write_record
from torchx_pulumi.runs.entry import without_backend_password
from torchx_pulumi.runs.ready_run import APP_SUFFIX

from torchx_pulumi_components.gangs import Gang
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.marks import Marks
from torchx_pulumi_components.memory import Past, is_marked


def note_intent(name: str, launch: Launch, marks: Marks, parent: pulumi.Resource) -> pulumi.Resource:
    """Note that this run is about to be launched; the job must depend on the note."""
    opts = pulumi.ResourceOptions(parent=parent)
    return pulumi.Stash(f"{name}-intent", opts=opts, input=_written(launch.intent, marks))


def keep_app(name: str, past: Past, parent: pulumi.Resource) -> None:
    """Keep what `torchx run` noted of an app that a program has taken over, for `torchx` and the fleet to read."""
    if past.app is not None:
        pulumi.Stash(
            f"{name}{APP_SUFFIX}", opts=pulumi.ResourceOptions(parent=parent), input=without_backend_password(past.app)
        )


def write_run(
    name: str, launch: Launch, gang: Gang | None, observed: Any, marks: Marks, parent: pulumi.Resource
) -> None:
    """Record the run once its objects are there.

    Args:
        name: The component's name.
        launch: What was decided.
        gang: What was registered. None: the run is over and gone.
        observed: The run as seen, for the record of its end.
        marks: Unknown and secret values in the plan.
        parent: The component.
    """
    run = launch.run
    if launch.status is not None and launch.status.state.terminal:
        run = replace(run, observed=_without_none(observed))
    value = _written(run, marks)
    if gang is not None and run.uid is None:
        value["uid"] = gang.head.uid
    made = [] if gang is None else [gang.head, *gang.pods.values()]
    pulumi.Stash(f"{name}-record", opts=pulumi.ResourceOptions(parent=parent, depends_on=made), input=value)


def _written(run: RunRecord, marks: Marks) -> dict[str, Any]:
    """Return a record as it is registered: of all that it holds, only the namespace can be secret."""
    value = write_record(run)
    kept = is_marked((marks.kept or {}).get("namespace"))
    if kept or isinstance(marks.of(lambda plan: {"namespace": plan.namespace})["namespace"], pulumi.Output):
        value["namespace"] = pulumi.Output.secret(value["namespace"])
    return value


def _without_none(value: Any) -> Any:
    """Leave out what Pulumi's state does not keep, so that the record is equal to what was read back."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
