"""Metadata of the job object, as every scheduler's has it."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest


def job_metadata(plan: JobPlan[Any]) -> Manifest:
    """Render the metadata of the job object; labels and annotations only where there are some."""
    metadata: Manifest = {"name": plan.job_name, "namespace": plan.namespace}
    if plan.options.labels:
        metadata["labels"] = dict(plan.options.labels)
    if plan.options.annotations:
        metadata["annotations"] = dict(plan.options.annotations)
    return metadata
