"""Options of a job that runs as an Indexed Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


# region options
@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedJobOptions:
    """Options of a job that runs as an Indexed Job."""

    scheduler: ClassVar[str] = "indexed_job"

    namespace: str = "default"
    """Kubernetes namespace to run the job in"""
    active_deadline_s: int | None = None
    """Seconds after which the job is stopped and counts as failed. Unset: no limit"""
    service_account: str | None = None
    """The service account name to set on the pod specs"""
    priority_class_name: str | None = None
    """The name of the PriorityClass to set on the pod specs"""
    image_secrets: Sequence[str] = ()
    """Names of pull secrets to set on the pod specs. Empty: none"""
    reserved_millicpu: int = 100
    """CPU in millicores that a request leaves to the node"""
    reserved_memmb: int = 1024
    """Memory in MB that a request leaves to the node"""
    efa_device_count: int | None = None
    """EFA devices of each replica: unset keeps the resource's own number, 0 removes them, N sets N"""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the job object, never of its pods"""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job object, never of its pods"""

    @property
    def priority_class(self) -> str | None:
        """Return the PriorityClass, by the name that the options of all schedulers have."""
        return self.priority_class_name


# endregion
