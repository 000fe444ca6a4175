"""Options of a job that Volcano runs. The text under each field is its help everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from torchx_pulumi.model.options import RESERVED_CPU_MILLI, RESERVED_MEMORY_MB, Layout

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

    TEXT_FIELD: ClassVar[str] = "mode"
    """Field that is meant where the option is a plain text."""

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
    layout: Layout = Layout.AUTO
    """Tasks of the Volcano Job: `replica` (one per replica), `role` (shared) or `auto` (shared above 100 replicas)"""
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
