"""Options of a job in an AppWrapper."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from torchx_pulumi.model.options import Options, TaskLayout, option, option_table


class PodGroupVersion(str, Enum):
    """API of the PodGroups that a coscheduler reads."""

    X_K8S = "scheduling.x-k8s.io/v1alpha1"
    """API of scheduler-plugins since v0.24."""
    SIGS = "scheduling.sigs.k8s.io/v1alpha1"
    """API of older ones, which TorchX writes."""


class AppWrapperVersion(str, Enum):
    """Version of the AppWrapper, and with it the controller that runs it."""

    V1BETA1 = "v1beta1"
    """MCAD."""
    V1BETA2 = "v1beta2"
    """The AppWrapper operator, its successor, alone or under Kueue."""


class NeverAdmitted(str, Enum):
    """What becomes of a launch that Kueue can never admit."""

    REFUSE = "refuse"
    """It is refused, before anything is made."""
    WARN = "warn"
    """It is launched with a warning, and waits: for a quota that is about to be raised."""


@option_table
class MCADOptions(Options):
    """Options of a job that MCAD runs, or its successor, the AppWrapper operator."""

    scheduler: ClassVar[str] = "mcad"

    priority: int | None = option(
        "The priority level to set on the job specs, changed in place. Higher integer value means higher priority",
        default=None,
    )
    priority_class: str | None = option(
        "Pod specific priority level: the name of the PriorityClass to set on the pod specs",
        default=None,
        torchx="priority_class_name",
    )
    image_secret: str | None = option("The name of the Kubernetes secret set up for private images", default=None)
    coscheduler_name: str | None = option(
        "Scheduler that binds the pods as gangs, one PodGroup per role. Unset: the cluster's own, without gangs",
        default=None,
        known=True,
    )
    network: str | None = option(
        "Name of additional pod-to-pod network beyond default Kubernetes network (Multus)", default=None
    )
    pod_group_api: PodGroupVersion = option(
        "PodGroup API: `scheduling.x-k8s.io/v1alpha1` or `scheduling.sigs.k8s.io/v1alpha1`",
        default=PodGroupVersion.X_K8S,
    )
    api_version: AppWrapperVersion = option(
        "Version of the AppWrapper: `v1beta1` (MCAD) or `v1beta2` (AppWrapper operator, Kueue)",
        default=AppWrapperVersion.V1BETA1,
    )
    # Not `auto`, nor `refuse` below: the entries of runs have every option that is not None.
    layout: TaskLayout | None = option(
        "v1beta2, new run: `replica` (pods), `role` (Indexed Jobs). Unset: `auto`, Jobs above 8 replicas",
        default=None,
        counted=False,
    )
    local_queue: str | None = option(
        "v1beta2: Kueue's LocalQueue to schedule job in. Unset: not under Kueue", default=None
    )
    on_never_admitted: NeverAdmitted | None = option(
        "v1beta2 under Kueue: `refuse` a launch that its queue can never admit, or `warn` of it. Unset: `refuse`",
        default=None,
        known=True,
        counted=False,
    )
    suspend: bool = option(
        "v1beta2 without Kueue: hold the job back, or stop it and keep its AppWrapper; changes in place",
        default=False,
    )
    requeuing_time_s: int | None = option(
        "v1beta1 with retries: seconds until a job whose pods are too few is queued again. Unset: 300", default=None
    )
    requeuing_max_time_s: int | None = option(
        "v1beta1 with retries: most seconds that this time grows to. Unset: 0, which is no limit", default=None
    )
    requeuing_growth: str | None = option(
        "v1beta1 with retries: how this time grows, `exponential`, `linear` or `none`. Unset: exponential",
        default=None,
        known=True,
    )

    @property
    def image_secrets(self) -> Sequence[str]:
        """Return the pull secrets, as every scheduler's options have them."""
        return () if self.image_secret is None else (self.image_secret,)
