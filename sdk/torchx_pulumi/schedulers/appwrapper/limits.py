"""Limits of large AppWrappers: the object in etcd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from torchx_pulumi.kube.kinds import JOB, POD
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest, TaskLayout
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
from torchx_pulumi.schedulers.appwrapper.v1beta1 import render_mcad
from torchx_pulumi.schedulers.appwrapper.v1beta2 import render_mcad_v1beta2
from torchx_pulumi.schedulers.object_size import MAX_OBJECT_BYTES, object_bytes

POD_STATUS_BYTES: Final = 336
"""Most bytes of the status of an AppWrapper v1beta2 for each Pod or Job (`componentStatus`)."""


def check_size(plan: JobPlan[MCADOptions]) -> Iterator[Problem]:
    """Check the size of a new launch."""
    size = app_wrapper_bytes(plan)
    if size <= MAX_OBJECT_BYTES:
        return
    replicas, smaller = sum(role.replicas for role in plan.roles), "make arguments, environment or overlays smaller"
    if plan.layout is TaskLayout.ROLE:
        what, advice = f"as {sum(len(role.tasks) for role in plan.roles)} Jobs", smaller
    elif plan.options.api_version == AppWrapperVersion.V1BETA2:
        what, advice = "each of them a pod of its own", f"set layout to role, or {smaller}"
    else:
        what = "each of them a pod of its own"
        advice = f"ask for fewer, {smaller}, or use api_version v1beta2 or the scheduler volcano: replicas share tasks"
    yield Problem(
        "roles",
        f"have {replicas} replicas, {what} in the AppWrapper, which makes {size / 1e6:.2f} MB; etcd takes "
        f"{MAX_OBJECT_BYTES / 1e6:.2f} MB; {advice}",
    )


def app_wrapper_bytes(plan: JobPlan[MCADOptions]) -> int:
    """Return the size of the AppWrapper of a plan as JSON, with its status."""
    if plan.options.api_version == AppWrapperVersion.V1BETA2:
        return object_bytes(
            plan, render_mcad_v1beta2, lambda one: _pods(one["spec"]["components"], "template"), POD_STATUS_BYTES
        )
    # MCAD writes the numbers of pods only, and more if it waits for pods that no node has room for.
    return object_bytes(
        plan, render_mcad, lambda one: _pods(one["spec"]["resources"]["GenericItems"], "generictemplate"), 0
    )


def _pods(items: Sequence[Manifest], template: str) -> list[Manifest]:
    return [item for item in items if item[template]["kind"] in (POD.kind, JOB.kind)]
