"""Builders with defaults, so that a test shows only what matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.inputs.rendering import render_plan
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.runs.registration import LaunchState, Registration, prepare
from torchx_pulumi.schedulers import plan_job
from torchx_pulumi.schedulers.volcano.options import VolcanoOptions


def role(**changes: Any) -> RoleSpec:
    return RoleSpec(**{"name": "trainer", "image": "img:1", "entrypoint": "main", **changes})


def job(**changes: Any) -> JobSpec:
    return JobSpec(**{"name": "app", "roles": [role()], "torchx_version": "0.7.0", **changes})


def options(**changes: Any) -> VolcanoOptions:
    return VolcanoOptions(**{"queue": "test", **changes})


def plan(*roles: RoleSpec, launched: dict[str, int] | None = None, app_id: str = "app-x1", **chosen: Any) -> JobPlan:
    return plan_job(job(roles=list(roles) or [role()]), options(**chosen), app_id, launched=launched)


def registration_of(entry: RunEntry, plan: JobPlan) -> Registration:
    """Return what the launch of an app registers, under the hash that its entry has."""
    state = LaunchState(
        name=entry.name,
        owner=entry.launch,
        at=datetime.now(timezone.utc),
        job_name=plan.job_name,
        cluster=entry.cluster_identity,
        user=entry.user,
        plan=plan,
    )
    made = prepare(plan.spec, plan.options, state)
    record = replace(made.record, hash=entry.run or made.record.hash)
    entry = replace(entry, run=record.hash)
    return replace(made, record=record, manifest=render_plan(plan), entry=entry)
