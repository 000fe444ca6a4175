"""Writing what a stack remembers of a run: an intent before the job is made, a record after it. Read by `memory`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pulumi
from torchx_pulumi.model.app_entry import without_backend_password
from torchx_pulumi.model.registration_plan import APP_SUFFIX
from torchx_pulumi.model.run_record import RunRecord, write_record
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.schedulers import asked, variant_of

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.marks import Marks
from torchx_pulumi_components.resources import Gang, unknown
from torchx_pulumi_components.stack_state import is_marked


def note_intent(name: str, launch: Launch, marks: Marks, parent: pulumi.Resource) -> pulumi.Resource:
    """Note that this run is about to be launched; the job must depend on the note."""
    opts = pulumi.ResourceOptions(parent=parent)
    return pulumi.Stash(f"{name}-intent", opts=opts, input=_written(launch.intent, launch, marks))


def keep_app(
    name: str, app: Mapping[str, Any], launch: Launch, outputs: Mapping[str, Any], parent: pulumi.Resource
) -> None:
    """Keep what `torchx run` noted of an app that a program has taken over, for `torchx` and the fleet to read.

    The note follows the run: once the program has launched another one, it is of that run.

    Args:
        name: The component's name.
        app: The note as the state has it.
        launch: What was decided.
        outputs: Of the component.
        parent: The component.
    """
    value = without_backend_password(app)
    if launch.decision.action not in (Action.IGNORE, Action.DONE_AND_GONE):
        value |= _of_run(app, launch, outputs)
    made = pulumi.ResourceOptions(parent=parent)
    pulumi.Stash(f"{name}{APP_SUFFIX}", opts=made, input=value)


def _of_run(app: Mapping[str, Any], launch: Launch, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a note says of a run."""
    plan, run, variant = launch.plan, launch.run, variant_of(launch.plan.options)
    value: dict[str, Any] = {
        "app_id": outputs["app_id"],
        "choice": variant.name,
        "pods": {role.name: [variant.pod_name(plan, item) for item in asked(role)] for role in plan.roles},
        "run": run.hash,
        "uid": outputs["uid"],
    }
    queue = getattr(plan.options, "queue", None)
    value |= {} if queue is None else {"queue": queue}
    if app.get("run") == run.hash and (run.uid is None or app.get("uid") == run.uid) and not launch.launching:
        # A run that grew or shrank in place has other pods, and is described as it was launched.
        return value
    described = app.get("app") or {}
    known = {role.get("name"): role for role in described.get("roles") or ()}
    roles = [
        {
            **known.get(role.name, {}),
            "name": role.name,
            "image": outputs["images"][role.name],
            "num_replicas": role.replicas,
        }
        for role in plan.roles
    ]
    launched = datetime.fromisoformat(run.launched_at).strftime("%Y-%m-%dT%H:%M:%SZ") if run.launched_at else None
    value |= {} if launched is None else {"launched_at": launched}
    return {**value, "declared": outputs["declared"], "app": {**described, "roles": roles}}


def write_run(name: str, launch: Launch, gang: Gang | None, marks: Marks, parent: pulumi.Resource) -> None:
    """Record the run once its objects are there.

    What is seen of it later is no part of the record, so that a preview after its end shows no change. An end that
    0.1.0 recorded stays in it.

    Args:
        name: The component's name.
        launch: What was decided.
        gang: What was registered. None: the run is over and gone.
        marks: Unknown and secret values in the plan.
        parent: The component.
    """
    run = launch.run
    value = _written(run, launch, marks)
    if gang is not None and run.uid is None:
        value["uid"] = gang.head.uid
    made = [] if gang is None else [gang.head, *gang.pods.values()]
    pulumi.Stash(f"{name}-record", opts=pulumi.ResourceOptions(parent=parent, depends_on=made), input=value)


def _written(run: RunRecord, launch: Launch, marks: Marks) -> dict[str, Any]:
    """Return a record as it is registered: of all that it holds, only the namespace can be secret.

    In a preview, what depends on unknown arguments is unknown in the record of a launch.
    """
    value = write_record(run)
    if launch.launching and launch.undecided:
        value["digests"] |= {path: unknown() for path in launch.undecided if path in value["digests"]}
        value |= {part: unknown() for part in ("hash", *(() if launch.named else ("app_id", "job_name")))}
    kept = is_marked((marks.kept or {}).get("namespace"))
    namespace = marks.of(lambda plan: {"namespace": plan.namespace})["namespace"]
    if kept:
        value["namespace"] = pulumi.Output.secret(value["namespace"])
    elif isinstance(namespace, pulumi.Output):
        value["namespace"] = namespace
    return value
