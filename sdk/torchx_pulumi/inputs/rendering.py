"""Plan and render an app and run options of any form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchx_pulumi.inputs.appdef import AppReader
from torchx_pulumi.inputs.appfile import MappingReader
from torchx_pulumi.inputs.run_options import OptionsReader
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest, Options
from torchx_pulumi.planning.checks.values import found
from torchx_pulumi.planning.typed_reader import TypedReader
from torchx_pulumi.schedulers import find_backend, plan_job, scheduler_names, variant_of


def render_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> Manifest:
    """Render a job; see `torchx_pulumi.render`."""
    return render_plan(plan_app(app, scheduler, options, app_id=app_id))


def render_plan(plan: JobPlan) -> Manifest:
    """Render a plan as one manifest; several objects become a `List`."""
    objects = variant_of(plan.options).render(plan)
    return objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}


def plan_app(app: Any, scheduler: str, options: Mapping[str, Any], *, app_id: str) -> JobPlan:
    """Plan a job from an AppDef, a JobSpec or a mapping, with options by name.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once.
    """
    spec, chosen = read_job_and_options(app, options, scheduler, app_id=app_id, is_named=True)
    return plan_job(spec, chosen, app_id)


def read_job_and_options(
    app: Any,
    options: Mapping[str, Any],
    scheduler: str,
    *,
    app_id: object = None,
    is_named: bool = False,
    others: Sequence[Problem] = (),
) -> tuple[JobSpec, Options]:
    """Read a job and its options.

    Args:
        app: An AppDef, a JobSpec or a mapping.
        options: Options by name.
        scheduler: Its name.
        app_id: Name of the job object.
        is_named: False: the name is made later, and its rules are checked with the plan.
        others: Problems that were found elsewhere, for the same message.

    Raises:
        InvalidJobError: The job or an option is wrong; all problems at once, those of the rules included.
    """
    known = scheduler_names()
    problems = []
    if scheduler not in known:
        problems.append(Problem("scheduler", f"{found(scheduler)}, must be {', '.join(known)}"))
    backend = find_backend(scheduler if scheduler in known else known[0])
    app_reader, options_reader = app_reader_of(app), OptionsReader(backend.name)
    spec = app_reader.read(JobSpec, app, "")
    chosen = options_reader.options(options)
    unread = [*problems, *app_reader.problems, *options_reader.problems]
    problems = [*backend.find_problems(spec, chosen, unread, app_id=app_id, is_named=is_named), *others]
    if problems:
        raise invalid_job(spec.name or None, problems)
    return spec, chosen


def app_reader_of(app: Any) -> TypedReader:
    """Return the reader for the form of an app."""
    if isinstance(app, JobSpec):
        return TypedReader()
    return MappingReader() if isinstance(app, Mapping) else AppReader()
