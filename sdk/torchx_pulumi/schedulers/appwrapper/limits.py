"""Limits of large AppWrappers: the object in etcd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperApi, MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta1 import render_mcad
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.object_size import MAX_OBJECT_BYTES, object_bytes

POD_STATUS_BYTES: Final = 336
"""Most bytes of the status of an AppWrapper v1beta2 for each pod (`componentStatus`)."""


def check_size(plan: JobPlan[MCADOptions]) -> Iterator[Problem]:
    """Check the size of a new launch."""
    size = app_wrapper_bytes(plan)
    if size <= MAX_OBJECT_BYTES:
        return
    yield Problem(
        "roles",
        f"have {sum(role.replicas for role in plan.roles)} replicas, each of them a pod of its own in the AppWrapper, "
        f"which makes {size / 1e6:.2f} MB; etcd takes {MAX_OBJECT_BYTES / 1e6:.2f} MB; ask for fewer, make arguments, "
        f"environment or overlays smaller, or use the scheduler volcano, where replicas share tasks",
    )


def app_wrapper_bytes(plan: JobPlan[MCADOptions]) -> int:
    """Return the size of the AppWrapper of a plan as JSON, with its status."""
    if plan.options.api_version == AppWrapperApi.V1BETA2:
        return object_bytes(plan, render_mcad_v1beta2, _pod_components, POD_STATUS_BYTES)
    # MCAD writes the numbers of pods only, and more where it waits for pods that no node has room for.
    return object_bytes(plan, render_mcad, _pod_items, 0)


def _pod_components(app_wrapper: Manifest) -> list[Any]:
    return [one for one in app_wrapper["spec"]["components"] if one["template"]["kind"] == POD.kind]


def _pod_items(app_wrapper: Manifest) -> list[Any]:
    items = app_wrapper["spec"]["resources"]["GenericItems"]
    return [one for one in items if one["generictemplate"]["kind"] == POD.kind]
