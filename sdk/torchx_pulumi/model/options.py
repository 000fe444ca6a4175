"""Run options: what may be chosen about a launch that the AppDef does not say.

The text under each field is the option's help, everywhere: `torchx runopts`, stack configuration, component arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

RESERVED_CPU_MILLI = 100
"""Share of a node's CPU that Kubernetes keeps, as TorchX assumes it, in millicores."""

RESERVED_MEMORY_MB = 1024
"""Share of a node's memory that Kubernetes keeps, as TorchX assumes it, in MB."""

DEFAULT_PLUGINS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"svc": ("--publish-not-ready-addresses",), "env": ()},
)
"""Volcano job plugins that replicas need to find each other, also before they are ready."""


class Gang(str, Enum):
    """Who makes the pods of a Volcano job."""

    JOB = "job"
    """Volcano's job controller, from one Volcano Job object."""
    PODS = "pods"
    """Pulumi, as a PodGroup, a Service and one Pod per replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTopology:
    """How close together a gang must be placed (Volcano `spec.networkTopology`)."""

    mode: str = "hard"
    """`hard` or `soft`."""
    highest_tier_allowed: int | None = None
    """Highest HyperNode tier that a hard placement may cross. None: Volcano's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolcanoOptions:
    """Options of a job that Volcano runs."""

    scheduler: ClassVar[str] = "volcano"

    queue: str
    """Volcano queue to schedule job in"""
    namespace: str = "default"
    """Kubernetes namespace to schedule job in"""
    service_account: str | None = None
    """The service account name to set on the pod specs"""
    priority_class: str | None = None
    """The name of the PriorityClass to set on the job specs"""
    reserved_millicpu: int = RESERVED_CPU_MILLI
    """CPU in millicores that a request leaves to the node"""
    reserved_memmb: int = RESERVED_MEMORY_MB
    """Memory in MB that a request leaves to the node"""
    efa_device_count: int | None = None
    """EFA devices of each replica: unset keeps the resource's own number, 0 removes them, N sets N"""
    gang: Gang = Gang.JOB
    """Who makes the pods: `job` (Volcano's job controller) or `pods` (PodGroup, Service and Pods as resources)"""
    scheduler_name: str = "volcano"
    """Scheduler that binds the pods"""
    ttl_seconds_after_finished: int | None = None
    """Seconds until a finished job is deleted. Unset: kept. Zero: at once"""
    network_topology: NetworkTopology | None = None
    """How close together the gang must be placed. Unset: anywhere"""
    plugins: Mapping[str, Sequence[str]] | None = None
    """Volcano job plugins and their arguments. Unset: svc and env, as TorchX has them"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the job object, never of its pods"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job object, never of its pods"""
    image_secrets: Sequence[str] = ()
    """Names of pull secrets to set on the pod specs. Empty: none"""

    @property
    def job_plugins(self) -> Mapping[str, Sequence[str]]:
        """Return the plugins in force."""
        return DEFAULT_PLUGINS if self.plugins is None else self.plugins


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


class Options(Protocol):
    """What the options of every scheduler have. Each scheduler has a frozen dataclass of its own."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    scheduler: ClassVar[str]
    """Name of the scheduler."""

    @property
    def namespace(self) -> str:
        """Kubernetes namespace of the job."""
        ...

    @property
    def service_account(self) -> str | None:
        """Service account of the pods. None: the namespace's default."""
        ...

    @property
    def priority_class(self) -> str | None:
        """PriorityClass of the job. None: none."""
        ...

    @property
    def image_secrets(self) -> Sequence[str]:
        """Names of the pull secrets of the pods. Empty: none."""
        ...

    @property
    def reserved_millicpu(self) -> int:
        """CPU in millicores that a request leaves to the node."""
        ...

    @property
    def reserved_memmb(self) -> int:
        """Memory in MB that a request leaves to the node."""
        ...

    @property
    def efa_device_count(self) -> int | None:
        """EFA devices of each replica. None: as the resource says."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the job object."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the job object."""
        ...


Manifest = dict[str, Any]
"""One Kubernetes object, as its API server takes it."""


def defaults_of(options: type[Any]) -> dict[str, Any]:
    """Return the defaults of an options class by field; a required option is not in it."""
    defaults: dict[str, Any] = {}
    for item in fields(options):
        if item.default is not MISSING:
            defaults[item.name] = item.default
        elif item.default_factory is not MISSING:
            defaults[item.name] = item.default_factory()
    return defaults
