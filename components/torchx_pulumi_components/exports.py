"""Stack outputs of a job, which dashboards, the fleet and `torchx` read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pulumi
from torchx_pulumi.outputs.building import assemble, log_command
from torchx_pulumi.outputs.types import Declared, Observed, TorchxOutput, UserRequest
from torchx_pulumi.schedulers import backend_of

from torchx_pulumi_components.places import unknown
from torchx_pulumi_components.training_job import TrainingJob


def export_outputs(job: TrainingJob, *, digests: Mapping[str, str] | None = None, ui_url: str | None = None) -> None:
    """Export the outputs of a stack that has one job; see `stack_outputs`."""
    for name, value in stack_outputs(job, digests=digests, ui_url=ui_url).items():
        pulumi.export(name, value)


def stack_outputs(
    job: TrainingJob, *, digests: Mapping[str, str] | None = None, ui_url: str | None = None
) -> dict[str, pulumi.Output[Any]]:
    """Return the object `torchx` and the flat outputs. Values that do not depend on the cluster are known in preview.

    Args:
        job: The job.
        digests: Image reference to its digest, for images whose digest the job does not know. A kept run may name the
            tag of an image whose reference has the digest now.
        ui_url: Link to the job in a dashboard. None: the one in the app's index entry, if `torchx run` launched it.
    """
    whole = pulumi.Output.all(job.app_id, job.declared, job.observed, job.requested).apply(
        lambda known: unknown() if "queue" in job.made.marks.unknown else _build(job, digests or {}, ui_url, *known[1:])
    )
    command = job.app_id.apply(lambda _: log_command(job.plan, kube_context=job.made.kube_context))
    whole, command = _hidden_with(job, whole), _hidden_with(job, command)
    return {
        "torchx": whole,
        "app_id": job.app_id,
        "app_handle": job.app_handle,
        "state": whole.apply(lambda outputs: outputs["observed"]["state"]),
        "reason": whole.apply(lambda outputs: outputs["observed"]["reason"]),
        "log_command": command,
    }


def _hidden_with(job: TrainingJob, output: pulumi.Output[Any]) -> pulumi.Output[Any]:
    """Return an output of a job, secret if it names secret arguments."""

    def hidden(value: Any) -> Any:
        # After the decision, for which the output waits.
        return pulumi.Output.secret(value) if job.made.is_secret else pulumi.Output.from_input(value)

    return output.apply(hidden, run_with_unknowns=True)


def _build(
    job: TrainingJob,
    digests: Mapping[str, str],
    ui_url: str | None,
    declared: Declared,
    observed: Observed,
    requested: UserRequest | None,
) -> TorchxOutput:
    digests = {image.partition("@")[0]: digest for image, digest in digests.items()} | dict(digests)
    roles = [{**role, "digest": role.get("digest") or digests.get(role["image"])} for role in declared["roles"]]
    who = declared.get("created_by") or f"{pulumi.get_project()}/{pulumi.get_stack()}"
    options = job.plan.options
    return assemble(
        job.plan,
        cast("Declared", {**declared, "roles": roles, "created_by": who}),
        observed,
        scheduler=options.scheduler,
        queue=getattr(options, backend_of(options).queue_option, None),
        kube_context=job.made.kube_context,
        ui_url=ui_url or (job.made.app or {}).get("ui_url"),
        log_archive=job.made.log_archive,
        requested=requested,
    )
