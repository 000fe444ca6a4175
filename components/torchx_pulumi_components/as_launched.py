"""A run that is kept as it was launched while its arguments change (`on_running_change: ignore`): its plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchx_pulumi.model.errors import RelaunchRefusedError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import JobSpec, ResourceSpec, RoleSpec
from torchx_pulumi.model.options import Options
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.runs.identity import variant_of_run
from torchx_pulumi.schedulers import backend_of, plan_job

from torchx_pulumi_components.read_args import ParsedArgs


def plan_as_launched(
    name: str, run: RunRecord, wanted: ParsedArgs, job: Mapping[str, Any] | None, shown: Mapping[str, Any]
) -> JobPlan[Any]:
    """Plan a run that is kept as it was launched, as far as its names and its outputs need that.

    The record has digests. What they are of is in what the component showed of the run and in the job object.

    Args:
        name: The component's name.
        run: The run.
        wanted: What the arguments say now: the scheduler and the app's name stay.
        job: The job object in the state.
        shown: The component's outputs in the state.

    Raises:
        RelaunchRefusedError: The state has neither, as its deployment was interrupted.
    """
    declared, options = shown.get("declared"), wanted.options
    if not isinstance(declared, Mapping) or job is None:
        raise RelaunchRefusedError(
            f"job {name!r}: run {run.job_name} cannot be kept while its arguments change (on_running_change: "
            "ignore), as the deployment that launched it was interrupted. Undo the change and run `up` once, which "
            "completes it"
        )
    roles = [
        RoleSpec(
            name=role["name"],
            image=role["image"],
            # Nothing is rendered of it.
            entrypoint="as-launched",
            num_replicas=int(role["replicas"]),
            min_replicas=None if role.get("min_replicas") is None else int(role["min_replicas"]),
            resource=_resource_of(role.get("resource") or {}),
        )
        for role in declared["roles"]
    ]
    fields = {"priority_class": declared.get("priority")}
    if (option := backend_of(options).variant_option) is not None:
        fields[option] = variant_of_run(run, options).name
    queue = (job.get("spec") or {}).get("queue")
    fields |= {} if queue is None else {"queue": queue}
    known = {field.name for field in dataclasses.fields(options)}
    chosen = {field: value for field, value in fields.items() if field in known}
    kept: Any = type(options)(**{**_required(options), "namespace": run.namespace, **chosen})
    return plan_job(JobSpec(name=wanted.spec.name, roles=roles), kept, run.job_name, launched=run.launched)


def _resource_of(shown: Mapping[str, Any]) -> ResourceSpec:
    devices = {name: int(count) for name, count in (shown.get("devices") or {}).items()}
    return ResourceSpec(
        cpu=shown.get("cpu"),
        gpu=int(shown.get("gpu") or 0),
        memory_mb=int(shown.get("memory_mb") or 0),
        devices=devices,
    )


def _required(options: Options) -> dict[str, Any]:
    """Return the fields of options that have no default."""
    missing = dataclasses.MISSING
    return {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.default is missing and field.default_factory is missing
    }
