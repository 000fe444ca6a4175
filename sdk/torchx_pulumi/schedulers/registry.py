"""The table of schedulers: one row each, with everything about a launch that differs between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import AppWrapperApi, Gang, Manifest, MCADOptions, Options, VolcanoOptions
from torchx_pulumi.planning import names
from torchx_pulumi.schedulers.appwrapper.checks import (
    check_mcad_app_id,
    check_mcad_launch,
    check_mcad_options,
    mcad_warnings,
)
from torchx_pulumi.schedulers.appwrapper.v1beta1 import render_mcad
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.volcano.checks import check_app_id, check_launch, check_options, volcano_warnings
from torchx_pulumi.schedulers.volcano.gang_pods import render_gang_pods
from torchx_pulumi.schedulers.volcano.job import render_volcano


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One scheduler, and what is its own."""

    name: str
    """What users call it."""
    options: type[Any]
    """Class of its options."""
    placeholder: Options
    """Options that can be checked with when the user's own cannot be read."""
    check_options: Callable[[Any], Iterator[Problem]]
    """Rules for every option by itself."""
    check_launch: Callable[[JobSpec, Any, object, Mapping[str, int]], Iterator[Problem]]
    """Rules for job and options together."""
    check_app_id: Callable[[object, Any], Iterator[Problem]]
    """Rules for the name of the job object."""
    warnings: Callable[[JobSpec, Any], Sequence[str]]
    """What the user should know of a job that passed the checks."""
    rank0_env: Callable[[str], str]
    """Role's name in object names -> variable with rank 0's host."""
    render: Callable[[JobPlan[Any]], Manifest]
    """Plan -> manifest."""
    pod_label: str
    """Label of every pod whose value is the job's name."""
    tolerated: frozenset[str] = frozenset()
    """Rules that warn here, where they refuse elsewhere."""
    resizes: bool = False
    """Fewer replicas are the same run."""


def _render_volcano(plan: JobPlan[Any]) -> Manifest:
    if plan.options.gang == Gang.PODS:
        return {"apiVersion": "v1", "kind": "List", "items": render_gang_pods(plan)}
    return render_volcano(plan)


def _render_mcad(plan: JobPlan[Any]) -> Manifest:
    renderers = {AppWrapperApi.V1BETA1: render_mcad, AppWrapperApi.V1BETA2: render_mcad_v1beta2}
    return renderers[AppWrapperApi(plan.options.api_version)](plan)


VOLCANO = Scheduler(
    name="volcano",
    options=VolcanoOptions,
    placeholder=VolcanoOptions(queue="unknown"),
    check_options=check_options,
    check_launch=check_launch,
    check_app_id=check_app_id,
    warnings=volcano_warnings,
    rank0_env=names.volcano_hosts_env,
    render=_render_volcano,
    pod_label=labels.VOLCANO_JOB_NAME,
    resizes=True,
)

MCAD = Scheduler(
    name="mcad",
    options=MCADOptions,
    placeholder=MCADOptions(),
    check_options=check_mcad_options,
    check_launch=check_mcad_launch,
    check_app_id=check_mcad_app_id,
    warnings=mcad_warnings,
    rank0_env=names.mcad_hosts_env,
    render=_render_mcad,
    pod_label=labels.UNIQUE_NAME,
    # TorchX gives the Service its default port then.
    tolerated=frozenset({"port"}),
)

SCHEDULERS: Mapping[str, Scheduler] = {scheduler.name: scheduler for scheduler in (VOLCANO, MCAD)}
"""Every scheduler by its name."""


def scheduler_of(options: Options) -> Scheduler:
    """Return the scheduler that options are for."""
    return next(scheduler for scheduler in SCHEDULERS.values() if isinstance(options, scheduler.options))
