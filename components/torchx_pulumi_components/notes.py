"""What the stack's state remembers of a run: its record, and the index entry of an app that `torchx run` launched."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pulumi
from torchx_pulumi.model.codec import without_none
from torchx_pulumi.model.run_record import RunRecord, write_record
from torchx_pulumi.runs.decision import Action

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.places import Marks, unknown
from torchx_pulumi_components.stack_state import StackState, is_marked


def record_of(
    run: RunRecord, launch: Launch, marks: Marks, state: StackState, uid: pulumi.Input[str | None] = None
) -> dict[str, Any]:
    """Return a record as it is registered.

    In a preview, the fields that depend on unknown arguments are unknown. What is observed of a run later is no part of
    its record, so that a preview after its end shows no change.

    Args:
        run: The record.
        launch: The decision.
        marks: What is unknown, and whether messages may quote a secret.
        state: The component in the stack's state.
        uid: Uid of the registered job object, if the record has none. None: it is not registered.
    """
    value = write_record(run)
    if marks.quoted:
        value["quotes_secrets"] = True
    if launch.launching and marks.unknown:
        value["digests"] = unknown()
    if "run" in marks.unknown:
        value["hash"] = unknown()
    if "name" in marks.unknown:
        value |= {"app_id": unknown(), "job_name": unknown()}
    if "namespace" in marks.unknown:
        value["namespace"] = unknown()
    if launch.decision.as_launched and is_marked(state.outputs.get("namespace")):
        # The outputs in the state are kept, and so is what was secret in them.
        value["namespace"] = pulumi.Output.secret(value["namespace"])
    return value if uid is None or run.uid is not None else {**value, "uid": uid}


def entry_of(
    app: Mapping[str, Any], launch: Launch, marks: Marks, outputs: Mapping[str, Any], log_archive: str | None = None
) -> dict[str, Any]:
    """Return the index entry of an app that a program has taken over, for `torchx` and the fleet.

    The entry describes the program's run, also after the program has launched another one.

    Args:
        app: The entry in the state.
        launch: The decision.
        marks: What is unknown.
        outputs: Outputs of the component.
        log_archive: URL of the archive of the containers' logs. None: the program has none, or it is secret.
    """
    plan, run, value = launch.plan, launch.run, dict(app)
    if (app.get("log_options") or {}).get("log_archive") != log_archive:
        reading = {key: item for key, item in (app.get("log_options") or {}).items() if key != "log_archive"}
        value["log_options"] = reading if log_archive is None else {**reading, "log_archive": log_archive}
    if launch.decision.as_launched or launch.decision.action is Action.DONE_AND_GONE:
        return value
    value |= {
        "app_id": outputs["app_id"],
        "uid": outputs["uid"],
        **marks.of_fields(without_none(launch.registration.entry_fields())),
    }
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
    if run.launched_at:
        value["launched_at"] = datetime.fromisoformat(run.launched_at).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**value, "declared": outputs["declared"], "app": {**described, "roles": roles}}
