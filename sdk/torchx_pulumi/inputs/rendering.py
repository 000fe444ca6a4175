"""From whatever a user hands in to the manifest: the one way through doors, planner and renderers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.inputs.appdef import read_app
from torchx_pulumi.inputs.appfile import read_app_mapping
from torchx_pulumi.inputs.run_options import read_options
from torchx_pulumi.model.errors import InvalidJobError, Problem, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest, Options
from torchx_pulumi.planning.checks.job import check_job
from torchx_pulumi.planning.checks.values import found
from torchx_pulumi.planning.planner import plan_job
from torchx_pulumi.schedulers.registry import SCHEDULERS, VOLCANO, Scheduler, scheduler_of


def render_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> Manifest:
    """Render a job; see `torchx_pulumi.render`."""
    return render_plan(plan_app(app, scheduler, options, app_id=app_id))


def render_plan(plan: JobPlan[Any]) -> Manifest:
    """Render a plan as one manifest; several objects become a `List`."""
    return scheduler_of(plan.options).render(plan)


def plan_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> JobPlan[Any]:
    """Plan a job from an AppDef, a JobSpec or a mapping, with options by name.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
    """
    problems: list[Problem] = []
    known = SCHEDULERS.get(scheduler) if isinstance(scheduler, str) else None
    if known is None:
        problems.append(Problem("scheduler", f"{found(scheduler)}, must be {', '.join(SCHEDULERS)}"))
    spec, job = None, "unnamed"
    try:
        spec = read_any_app(app)
        job = spec.name
    except InvalidJobError as error:
        problems.extend(error.problems)
        job = error.job
    try:
        chosen = read_options(options, (known or VOLCANO).name)
    except InvalidJobError as error:
        problems.extend(error.problems)
        chosen = None
    if spec is None or chosen is None or problems:
        every = [*_other_problems(known or VOLCANO, spec, chosen, app_id), *problems]
        raise invalid_job(job, [problem for problem in every if problem.rule not in (known or VOLCANO).tolerated])
    return plan_job(spec, chosen, app_id)


def _other_problems(scheduler: Scheduler, spec: JobSpec | None, options: Options | None, app_id: str) -> list[Problem]:
    """Find what is wrong beside what could not even be read, so that one error says it all."""
    chosen = options or scheduler.placeholder
    if spec is None:
        return list(scheduler.check_app_id(app_id, chosen))
    problems = [*check_job(spec), *scheduler.check_launch(spec, chosen, app_id, {})]
    return problems if options is None else [*problems, *scheduler.check_options(options)]


def read_any_app(app: Any) -> JobSpec:
    """Read a job through the door that fits it."""
    if isinstance(app, JobSpec):
        return app
    return read_app_mapping(app) if isinstance(app, Mapping) else read_app(app)
