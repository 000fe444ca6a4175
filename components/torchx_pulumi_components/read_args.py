"""Resolved arguments of a component as the job, options and settings that the planner takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchx_pulumi.images import split_planned
from torchx_pulumi.inputs.appdef import installed_torchx_version
from torchx_pulumi.log_archive import check_archive_url
from torchx_pulumi.model.errors import Problem, invalid_job
from torchx_pulumi.model.job_spec import JobSpec, RoleSpec
from torchx_pulumi.model.options import OPTION_TO_ARGUMENT, Options
from torchx_pulumi.planning.checks.job import check_job_rules
from torchx_pulumi.planning.typed_reader import FieldValues, field_types, uncovered
from torchx_pulumi.runs.decision import Policy
from torchx_pulumi.schedulers import find_backend

from torchx_pulumi_components.arg_values import ArgumentReader
from torchx_pulumi_components.args import VolcanoTrainingJobArgs, WaitFor
from torchx_pulumi_components.input_resolution import is_placeholder
from torchx_pulumi_components.mcad_args import MCADTrainingJobArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """Arguments that are in neither hash nor manifest, and those that name a run."""

    on_running_change: Policy = Policy.FAIL
    rerun: str | None = None
    job_name: str | None = None
    """Fixed name of the job object. None: made of the component's name and the hash."""
    wait_for: WaitFor = WaitFor.CREATED
    timeout_s: int | None = None
    """Seconds, at least 1. None: no limit."""
    delete_timeout_s: int | None = None
    """Seconds, at least 1. None: the provider's default."""
    kubeconfig: str | None = None
    """Contents or path. None: ambient."""
    kube_context: str | None = None
    """None: the current context."""
    log_archive: str | None = None
    """URL of the archive of the containers' logs. None: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedArgs:
    """A job as it was requested through a component."""

    spec: JobSpec
    options: Options
    settings: LaunchSettings
    left_open: frozenset[str] = frozenset()
    """Options that are not given and are read from the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgsReader:
    """The arguments of one component."""

    shape: type
    """All its arguments."""
    scheduler: str
    """Name of the scheduler whose options are among them."""


VOLCANO = ArgsReader(shape=VolcanoTrainingJobArgs, scheduler="volcano")
"""Arguments of `VolcanoTrainingJob`."""

MCAD = ArgsReader(shape=MCADTrainingJobArgs, scheduler="mcad")
"""Arguments of `MCADTrainingJob`."""


def read_args(name: str, args: Mapping[str, Any], arguments: ArgsReader, spec: JobSpec | None = None) -> ParsedArgs:
    """Read a component's arguments.

    Args:
        name: The component's name; also the app's, where `spec` is None.
        args: Resolved arguments.
        arguments: Which arguments the component has.
        spec: The job, where it came as an AppDef; `args` then has no roles.

    Raises:
        InvalidJobError: The arguments are wrong; all problems at once, those of the rules included.
    """
    reader, backend = ArgumentReader(), find_backend(arguments.scheduler)
    given = reader.arguments(args, arguments.shape, backend.foreign_options) or {}
    if spec is None:
        job = FieldValues(name=name, torchx_version=installed_torchx_version())
        if "roles" in given:
            job["roles"] = given["roles"]
        spec = reader.read(JobSpec, job, "")
        if "roles" in given and not spec.roles and not reader.problems:
            reader.refuse("roles", "is empty; a job has at least one role")
    options: Any = reader.read(backend.options, _fields_of(backend.options, given), "")
    settings = reader.read(LaunchSettings, _fields_of(LaunchSettings, given), "")
    reader.problems.extend(_setting_problems(options, settings))
    if reader.problems:
        found = [problem for problem in check_job_rules(spec) if problem.rule not in backend.tolerated]
        rules = in_words_of_args([*found, *backend.check_options(options)])
        raise invalid_job(name, [*reader.problems, *uncovered(rules, reader.problems)])
    spec = replace(spec, roles=[_with_planned_digest(role) for role in spec.roles])
    left_open = frozenset(option for option in backend.discovered if option not in given)
    return ParsedArgs(spec=spec, options=options, settings=settings, left_open=left_open)


def _with_planned_digest(role: RoleSpec) -> RoleSpec:
    """Return a role with image and digest apart, if this process planned the image."""
    image, digest = split_planned(role.image)
    return role if digest is None else replace(role, image=image, image_digest=digest)


def _fields_of(kind: type, given: Mapping[str, Any]) -> FieldValues:
    arguments = {name: OPTION_TO_ARGUMENT.get(name, name) for name, _, _ in field_types(kind)}
    return FieldValues({name: given[argument] for name, argument in arguments.items() if argument in given})


def _setting_problems(options: Any, settings: LaunchSettings) -> Iterator[Problem]:
    for name in ("timeout_s", "delete_timeout_s"):
        seconds = getattr(settings, name)
        if seconds is not None and seconds < 1:
            yield Problem(name, f"must be at least 1 second, found {seconds}")
    if settings.log_archive is not None and not is_placeholder(settings.log_archive):
        yield from check_archive_url(settings.log_archive, "log_archive")
    if getattr(options, "suspend", False) and settings.wait_for is not WaitFor.CREATED:
        yield Problem("wait_for", "must be created, or unset, with suspend: a suspended job comes no further")


def in_words_of_args(problems: Sequence[Problem]) -> list[Problem]:
    """Return the planner's problems with the paths that arguments have: options are on the same level as the roles."""
    named = ((problem, problem.path.removeprefix("options.")) for problem in problems)
    return [replace(problem, path=OPTION_TO_ARGUMENT.get(path, path)) for problem, path in named]
