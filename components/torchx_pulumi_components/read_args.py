"""Resolved arguments of a component as the job, options and settings that the planner takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from torchx_pulumi.images import with_digests_apart
from torchx_pulumi.inputs.appdef import installed_torchx_version
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.launch_options import ProgramOptions, WaitFor
from torchx_pulumi.model.options import Options, rows_of
from torchx_pulumi.planning.checks.job import check_job_rules
from torchx_pulumi.planning.typed_reader import FieldValues, uncovered
from torchx_pulumi.schedulers import find_backend

from torchx_pulumi_components.arg_values import ArgumentReader, argument_fields
from torchx_pulumi_components.input_resolution import Unknown
from torchx_pulumi_components.output_texts import texts_of_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedArgs:
    """A job as it was requested through a component."""

    spec: JobSpec
    options: Options
    settings: ProgramOptions
    left_open: frozenset[str] = frozenset()
    """Options that are not given and are read from the cluster."""
    unknown: frozenset[str] = frozenset()
    """Options that only `up` knows. A stand-in is in the place of each."""


def read_args(
    name: str,
    args: Mapping[str, Any],
    scheduler: str,
    spec: JobSpec | None = None,
    refused: Sequence[Problem] = (),
) -> ParsedArgs:
    """Read a component's arguments.

    Args:
        name: The component's name; also the app's, if `spec` is None.
        args: Resolved arguments.
        scheduler: Name of the scheduler.
        spec: The job as an AppDef; `args` then has no roles. None: the arguments have the job.
        refused: Problems of values that were found before.

    Raises:
        InvalidJobError: The arguments are wrong; all problems at once, those of the rules included.
    """
    reader, backend, app = ArgumentReader(), find_backend(scheduler), spec
    launch = {row.name: row.known for row in rows_of(ProgramOptions) if row.component}
    names = {"roles": False, **argument_fields(backend.options), **launch}
    # Without roles there may be no arguments at all.
    given = reader.arguments(args, names, backend.foreign_options) or {} if args or spec is None else {}
    if spec is None:
        job = FieldValues(name=name, torchx_version=installed_torchx_version())
        if "roles" in given:
            job["roles"] = given["roles"]
        spec = reader.read(JobSpec, job, "")
        if "roles" in given and not spec.roles and not reader.problems:
            reader.refuse("roles", "is empty; a job has at least one role")
    options: Any = reader.read(backend.options, _fields_of(backend.options, given), "")
    settings = reader.read(ProgramOptions, _fields_of(ProgramOptions, given), "")
    unknown = frozenset(name for name, value in given.items() if isinstance(value, Unknown))
    reader.problems.extend(_setting_problems(options, settings, unknown))
    unread = [*texts_of_outputs(name, ("name",)), *texts_of_outputs(args), *texts_of_outputs(app)]
    for problems in (reader.problems, refused):
        unread += uncovered(problems, unread)
    if unread:
        found = [problem for problem in check_job_rules(spec) if problem.rule not in backend.tolerated]
        rules = in_words_of_args([*found, *backend.check_options(options)])
        raise invalid_job(name, [*unread, *uncovered(rules, unread)])
    spec = with_digests_apart(spec)
    left_open = frozenset(option for option in backend.discovered if option not in given)
    return ParsedArgs(spec=spec, options=options, settings=settings, left_open=left_open, unknown=unknown)


def _fields_of(kind: type, given: Mapping[str, Any]) -> FieldValues:
    return FieldValues({row.name: given[row.name] for row in rows_of(kind) if row.name in given})


def _setting_problems(options: Any, settings: ProgramOptions, unknown: Set[str]) -> Iterator[Problem]:
    for name in ("timeout_s", "delete_timeout_s"):
        seconds = getattr(settings, name)
        if seconds is not None and seconds < 1:
            yield Problem(name, f"must be at least 1 second, found {seconds}")
    if settings.log_archive is not None and "log_archive" not in unknown:
        from torchx_pulumi.logs.archives import check_archive_url  # what reads logs, too

        yield from check_archive_url(settings.log_archive, "log_archive")
    if getattr(options, "suspend", False) and settings.wait_for is not WaitFor.CREATED:
        yield Problem("wait_for", "must be created, or unset, with suspend: a suspended job comes no further")


def in_words_of_args(problems: Sequence[Problem]) -> list[Problem]:
    """Return the planner's problems with the paths that arguments have: options are on the same level as the roles."""
    return [replace(problem, path=problem.path.removeprefix("options.")) for problem in problems]
