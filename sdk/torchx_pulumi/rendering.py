"""From whatever a user hands in to the manifest: the one way through doors, planner and renderers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.appdef import read_app
from torchx_pulumi.appfile import read_app_mapping
from torchx_pulumi.checks import check_job, found
from torchx_pulumi.errors import InvalidJobError, Problem, invalid_job
from torchx_pulumi.manifests.pods import render_gang_pods
from torchx_pulumi.manifests.volcano import render_volcano
from torchx_pulumi.options import Gang, Manifest
from torchx_pulumi.plan import JobPlan
from torchx_pulumi.planner import plan_job
from torchx_pulumi.run_options import read_options
from torchx_pulumi.spec import JobSpec

SCHEDULERS = ("volcano",)


def render_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> Manifest:
    """Render a job; see `torchx_pulumi.render`."""
    return render_plan(plan_app(app, scheduler, options, app_id=app_id))


def render_plan(plan: JobPlan) -> Manifest:
    """Render a plan as one manifest; several objects become a `List`."""
    if plan.options.gang == Gang.PODS:
        return {"apiVersion": "v1", "kind": "List", "items": render_gang_pods(plan)}
    return render_volcano(plan)


def plan_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> JobPlan:
    """Plan a job from an AppDef, a JobSpec or a mapping, with options by name.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
    """
    problems: list[Problem] = []
    if scheduler not in SCHEDULERS:
        problems.append(Problem("scheduler", f"{found(scheduler)}, must be {', '.join(SCHEDULERS)}"))
    spec = _collect(problems, lambda: read_any_app(app))
    chosen = _collect(problems, lambda: read_options(options))
    if problems:
        if isinstance(spec, JobSpec) and not any(problem.path.startswith("roles") for problem in problems):
            problems = [*check_job(spec), *problems]
        raise invalid_job(getattr(spec, "name", getattr(app, "name", "?")), problems)
    return plan_job(spec, chosen, app_id)


def read_any_app(app: Any) -> JobSpec:
    """Read a job through the door that fits it."""
    if isinstance(app, JobSpec):
        return app
    return read_app_mapping(app) if isinstance(app, Mapping) else read_app(app)


def _collect(problems: list[Problem], read: Any) -> Any:
    try:
        return read()
    except InvalidJobError as error:
        problems.extend(error.problems)
        return None
