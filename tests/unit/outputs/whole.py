"""The whole object `torchx` of a job, as a stack builds it part by part."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.outputs.building import assemble, build_declared, build_observed
from torchx_pulumi.outputs.types import Source, TorchxOutput


def build_outputs(
    plan: JobPlan[Any],
    status: JobStatus,
    *,
    scheduler: str,
    spec_hash: str,
    observed_at: datetime,
    source: Source = "live",
    previous: Mapping[str, Any] | None = None,
    created_by: str | None = None,
    digests: Mapping[str, str] | None = None,
    kube_context: str | None = None,
    ui_url: str | None = None,
) -> TorchxOutput:
    declared = build_declared(plan, spec_hash=spec_hash, created_by=created_by, digests=digests)
    before = previous.get("observed") if previous else None
    observed = build_observed(status, observed_at=observed_at, source=source, previous=before)
    queue = getattr(plan.options, "queue", None)
    return assemble(
        plan, declared, observed, scheduler=scheduler, queue=queue, kube_context=kube_context, ui_url=ui_url
    )
