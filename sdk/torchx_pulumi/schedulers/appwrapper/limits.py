"""Limits of large AppWrappers: the object in etcd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import Problem
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.schedulers.appwrapper.options import AppWrapperVersion, MCADOptions
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
    if plan.options.api_version == AppWrapperVersion.V1BETA2:
        return object_bytes(
            plan, render_mcad_v1beta2, lambda one: _pods(one["spec"]["components"], "template"), POD_STATUS_BYTES
        )
    # MCAD writes the numbers of pods only, and more if it waits for pods that no node has room for.
    return object_bytes(
        plan, render_mcad, lambda one: _pods(one["spec"]["resources"]["GenericItems"], "generictemplate"), 0
    )


def _pods(items: Sequence[Manifest], template: str) -> list[Manifest]:
    return [item for item in items if item[template]["kind"] == POD.kind]
