"""Builders with defaults, so that a test shows only what matters."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
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
