"""Render a plan as an AppWrapper v1beta1 (workload.codeflare.dev), which MCAD runs: one generic item per object."""

from __future__ import annotations

from typing import Any

from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.appwrapper.options import MCADOptions
from torchx_pulumi.schedulers.appwrapper.wrapped import render_pod_groups, render_pods, render_service
from torchx_pulumi.schedulers.pods.template import job_metadata, new_object

COMPLETED_WHEN = "Ready"
"""Condition by whose type MCAD takes a pod for one that can complete; it then waits until all pods have ended."""

REQUEUING_TIME_S = 300
REQUEUING_MAX_TIME_S = 0
REQUEUING_GROWTH = "exponential"
"""Defaults of TorchX (`kubernetes_mcad_scheduler.py`)."""


def render_mcad(plan: JobPlan[MCADOptions]) -> Manifest:
    """Render the AppWrapper. The same plan gives the same bytes."""
    retries = min(role.max_retries for role in plan.roles)
    items = [
        *(_item(pod_group) for pod_group in render_pod_groups(plan)),
        *(_pod_item(pod, completes=not retries) for pod in render_pods(plan)),
        _item(render_service(plan)),
    ]
    spec: dict[str, Any] = {"resources": {"GenericItems": items}}
    if plan.options.priority is not None:
        spec["priority"] = plan.options.priority
    if retries:
        time_s, most_s = plan.options.requeuing_time_s, plan.options.requeuing_max_time_s
        spec["schedulingSpec"] = {
            "minAvailable": sum(role.replicas for role in plan.roles),
            "requeuing": {
                "timeInSeconds": REQUEUING_TIME_S if time_s is None else time_s,
                "maxTimeInSeconds": REQUEUING_MAX_TIME_S if most_s is None else most_s,
                "growthType": plan.options.requeuing_growth or REQUEUING_GROWTH,
                "maxNumRequeuings": retries,
            },
        }
    return new_object(APP_WRAPPER, job_metadata(plan), spec)


def _item(template: Manifest) -> Manifest:
    return {"replicas": 1, "generictemplate": template}


def _pod_item(pod: Manifest, *, completes: bool) -> Manifest:
    item = _item(pod)
    # MCAD adds these up instead of the requests of the pod.
    item["custompodresources"] = [
        {
            "replicas": 1,
            "requests": dict(container.get("resources", {}).get("requests", {})),
            "limits": dict(container.get("resources", {}).get("limits", {})),
        }
        for container in pod["spec"]["containers"]
    ]
    if completes:
        # MCAD does not queue an item again that can complete, so only jobs without retries have it.
        item["completionstatus"] = COMPLETED_WHEN
    return item
