"""Registry of scheduler backends, and the protocol that each of them implements."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_pulumi.model.job_plan import JobPlan, OptionsT
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.planning.layout import RoleTasks
from torchx_pulumi.schedulers.protocol import SchedulerBackend, Variant, replicas_of
from torchx_pulumi.schedulers.registry import backend_of, find_backend, register, scheduler_names, variant_of

__all__ = [
    "SchedulerBackend",
    "Variant",
    "backend_of",
    "find_backend",
    "plan_job",
    "register",
    "replicas_of",
    "scheduler_names",
    "variant_of",
]


def plan_job(
    spec: JobSpec,
    options: OptionsT,
    app_id: str,
    *,
    launched: Mapping[str, int] | None = None,
    tasks: RoleTasks | None = None,
) -> JobPlan[OptionsT]:
    """Plan a job by the rules of the scheduler that its options are for; see `SchedulerBackend.plan`."""
    return backend_of(options).plan(spec, options, app_id, launched=launched, tasks=tasks)
