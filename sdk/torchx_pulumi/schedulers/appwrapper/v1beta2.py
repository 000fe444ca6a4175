"""Render a plan as an AppWrapper v1beta2, which the AppWrapper operator runs, alone or under Kueue."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest, TaskLayout
from torchx_pulumi.schedulers.appwrapper.objects import (
    APP_WRAPPER_V1BETA2,
    DELETION_ON_FAILURE_GRACE_ANNOTATION,
    FAILURE_GRACE_ANNOTATION,
    KUEUE_QUEUE,
    RETRY_LIMIT,
    WARMUP_GRACE_ANNOTATION,
)
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.appwrapper.wrapped import render_jobs, render_pod_groups, render_pods, render_service
from torchx_pulumi.schedulers.pods.template import job_metadata, new_object

FAILURE_GRACE = "0s"
"""A failed pod is not restarted, so it cannot recover."""

WARMUP_GRACE = "24h"
"""A job waits for nodes and images as long as the operator lets it; its own default fails it after five minutes."""

DELETION_ON_FAILURE_GRACE = "10m"
"""Failed pods are kept long enough for their exit codes and logs to be read, but hold their quota meanwhile."""


def render_mcad_v1beta2(plan: JobPlan[MCADOptions]) -> Manifest:
    """Render the AppWrapper. The same plan gives the same bytes."""
    # The Service comes before the pods, which resolve each other by it.
    wrapped, pods = [*render_pod_groups(plan), render_service(plan)], list[Manifest]()
    if plan.layout is TaskLayout.ROLE:
        # The operator infers the pod set of a Job, and tells Kueue the label with the index of a pod.
        wrapped += render_jobs(plan)
    else:
        pods = [{"podSets": [{"replicas": 1, "path": "template"}], "template": pod} for pod in render_pods(plan)]
    spec: dict[str, Any] = {"components": [*({"template": template} for template in wrapped), *pods]}
    # Only if it is true: the operator drops a false when it writes the object, and `up` would see a change for ever.
    # Under Kueue it is Kueue that says when the job runs.
    if plan.options.suspend and plan.options.local_queue is None:
        spec["suspend"] = True
    metadata = job_metadata(plan)
    retries = {
        RETRY_LIMIT: str(min(role.max_retries for role in plan.roles)),
        FAILURE_GRACE_ANNOTATION: FAILURE_GRACE,
        WARMUP_GRACE_ANNOTATION: WARMUP_GRACE,
        DELETION_ON_FAILURE_GRACE_ANNOTATION: DELETION_ON_FAILURE_GRACE,
    }
    # Annotations of the user take precedence.
    metadata["annotations"] = {**retries, **metadata.get("annotations", {})}
    if plan.options.local_queue is not None:
        metadata["labels"] = {**metadata.get("labels", {}), KUEUE_QUEUE: plan.options.local_queue}
    return new_object(APP_WRAPPER_V1BETA2, metadata, spec)
