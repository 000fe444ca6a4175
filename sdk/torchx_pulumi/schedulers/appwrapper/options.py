"""Options of a job in an AppWrapper. The text under each field is its help everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from torchx_pulumi.model.options import RESERVED_CPU_MILLI, RESERVED_MEMORY_MB


class PodGroupApi(str, Enum):
    """API of the PodGroups that a coscheduler reads."""

    X_K8S = "scheduling.x-k8s.io/v1alpha1"
    """What scheduler-plugins have served since v0.24."""
    SIGS = "scheduling.sigs.k8s.io/v1alpha1"
    """What older ones serve, and what TorchX writes."""


class AppWrapperApi(str, Enum):
    """Version of the AppWrapper, and with it the controller that runs it."""

    V1BETA1 = "v1beta1"
    """MCAD."""
    V1BETA2 = "v1beta2"
    """The AppWrapper operator, its successor, alone or under Kueue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MCADOptions:
    """Options of a job that MCAD runs, or its successor, the AppWrapper operator."""

    scheduler: ClassVar[str] = "mcad"

    namespace: str = "default"
    """Kubernetes namespace to schedule job in"""
    service_account: str | None = None
    """The service account name to set on the pod specs"""
    priority: int | None = None
    """The priority level to set on the job specs. Higher integer value means higher priority"""
    priority_class_name: str | None = None
    """Pod specific priority level: the name of the PriorityClass to set on the pod specs"""
    image_secret: str | None = None
    """The name of the Kubernetes secret set up for private images"""
    coscheduler_name: str | None = None
    """Scheduler that binds the pods as gangs, one PodGroup per role. Unset: the cluster's own, without gangs"""
    network: str | None = None
    """Name of additional pod-to-pod network beyond default Kubernetes network (Multus)"""
    pod_group_api: PodGroupApi = PodGroupApi.X_K8S
    """API of the coscheduler's PodGroups: `scheduling.x-k8s.io/v1alpha1` or `scheduling.sigs.k8s.io/v1alpha1`"""
    api_version: AppWrapperApi = AppWrapperApi.V1BETA1
    """Version of the AppWrapper: `v1beta1` (MCAD) or `v1beta2` (the AppWrapper operator, Kueue)"""
    local_queue: str | None = None
    """v1beta2: Kueue's LocalQueue to schedule job in. Unset: not under Kueue"""
    suspend: bool = False
    """v1beta2 without Kueue: true holds the job back, or stops it and keeps its AppWrapper; changes in place"""
    requeuing_time_s: int | None = None
    """v1beta1 with retries: seconds until a job whose pods are too few is queued again. Unset: 300"""
    requeuing_max_time_s: int | None = None
    """v1beta1 with retries: most seconds that this time grows to. Unset: 0, which is no limit"""
    requeuing_growth: str | None = None
    """v1beta1 with retries: how this time grows, `exponential`, `linear` or `none`. Unset: exponential"""
    reserved_millicpu: int = RESERVED_CPU_MILLI
    """CPU in millicores that a request leaves to the node"""
    reserved_memmb: int = RESERVED_MEMORY_MB
    """Memory in MB that a request leaves to the node"""
    efa_device_count: int | None = None
    """EFA devices of each replica: unset keeps the resource's own number, 0 removes them, N sets N"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the job object, never of its pods"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job object, never of its pods"""

    @property
    def priority_class(self) -> str | None:
        """Return the PriorityClass, by the name that every scheduler's options have for it."""
        return self.priority_class_name

    @property
    def image_secrets(self) -> Sequence[str]:
        """Return the pull secrets, as every scheduler's options have them."""
        return () if self.image_secret is None else (self.image_secret,)
