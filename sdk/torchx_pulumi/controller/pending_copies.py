"""Logs that the controller has to copy, and what it knows of their pods. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.log_archive import Archive, ArchivedJob, ContainerRunRef

CopyKey = tuple[str, str]
"""URL of the archive, and path of the record in it."""


@dataclass(slots=True, kw_only=True)
class PendingCopy:
    """One container run that has to be copied."""

    key: CopyKey
    archive: Archive
    cluster: LiveCluster
    job: ArchivedJob
    ref: ContainerRunRef
    gone: bool = False
    """The pod is gone."""
    active: bool = False
    """A thread copies it."""
    failures: int = 0
    """Failures since the pod was gone."""

    @property
    def name(self) -> str:
        """Return what messages call the log."""
        return f"{self.job.app_id}: the log of {self.ref.pod}/{self.ref.container}"


@dataclass(slots=True)
class CopiedPod:
    """What is known of a pod."""

    finished: set[CopyKey] = field(default_factory=set)
    """Runs that need no copy any more."""
    open: set[CopyKey] = field(default_factory=set)
    """Runs that are being copied."""
    gone: bool = False
