"""What a run consists of in one way of making it, and how that is looked at. Shapes only; the ways are in `forms`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.job_plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.schedulers.diagnosis import Diagnosis, Evidence, agree, diagnose

Expected = Mapping[str, Sequence[str]] | None
"""Role name to its pods in rank order, all of which were made. None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedObjects:
    """The objects of one run. Empty: there are none."""

    head: Manifest | None = None
    """The object that stands for the run."""
    pods: Sequence[Manifest] | None = None
    """None: not looked at, or they may not be read."""
    listed: bool = True
    """False: pods may not be listed, and `pods` has only those that were asked for by name."""
    expected: Expected = None
    """What is known of the pods that were made."""
    pod_groups: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    """Events of all these, as far as they can explain anything."""
    queues: Sequence[Manifest] | None = None
    """The Volcano queue of the run; empty where it does not exist. None: not looked at."""
    neighbours: Sequence[Manifest] = ()
    """What else waits or runs in the same queue: PodGroups, or AppWrappers."""
    nodes: Sequence[Manifest] | None = None
    """All nodes. None: not looked at."""
    at: datetime | None = None
    """When the cluster was asked; aware. None: the objects were not read from one."""
    last_lines: Mapping[str, str] = field(default_factory=dict)
    """Pod to the end of its log, of the one that failed first."""


class Observe(Protocol):
    """Reads the objects of a run from a cluster; without pods where its head is gone.

    Two requests where the run is healthy; more only where it waits or failed, and only for what can say why.
    """

    def __call__(self, cluster: Cluster, namespace: str, name: str, expected: Expected = None, /) -> ObservedObjects:
        """Read the objects of a run.

        Raises:
            ClusterError: No answer, or the object that stands for the run may not be read.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way of making a run."""

    scheduler: str
    """`volcano` or `mcad`."""
    head: Kind
    """Kind of the object that stands for the run."""
    look: Observe
    """Reads the objects of a run, by namespace and job name."""
    read: Callable[[ObservedObjects], JobStatus]
    """Read the status of a run from its objects, without diagnoses."""
    pod_name: Callable[[JobPlan[Any], ReplicaPlan], str]
    """Name the pod of a replica."""
    service: Callable[[JobPlan[Any]], str]
    """Name the headless Service. Empty: there is none."""
    pod_groups: Callable[[JobPlan[Any], Sequence[RolePlan], str], list[str]]
    """Name the PodGroups of some roles; the text is the uid of the head."""
    name_tail: Callable[[Sequence[str]], int]
    """Task names -> characters that the longest pod name adds to the job's name."""
    kept_fields: tuple[str, ...] = ()
    """Fields of the head which, while a run is kept, keep the values that it was launched with."""
    pod_groups_by_uid: bool = False
    """The controller names them by the head's uid."""
    makes_pods: bool = False
    """Service and pods are resources of their own."""

    def rank0_host(self, plan: JobPlan[Any]) -> str:
        """Name the host of rank 0 as the other replicas find it."""
        pod, service = self.pod_name(plan, plan.roles[0].replica_plans[0]), self.service(plan)
        return f"{pod}.{service}" if service else pod

    def read_status(self, seen: ObservedObjects, now: datetime | None = None) -> JobStatus:
        """Read the status of a run with its diagnoses, the first of which is its reason and message.

        Args:
            seen: The objects of the run.
            now: What time it is. None: when they were looked at; where that is not known either, what needs time to
                tell (nobody looks at the job for a minute) is not told.
        """
        status = replace(self.read(seen), uid=text_at(seen.head, "metadata", "uid"))
        return agree(status, diagnose(self._evidence(seen, status, now)))

    def diagnose(self, seen: ObservedObjects, now: datetime | None = None) -> tuple[Diagnosis, ...]:
        """Find why a run does not run or did not succeed, the most telling cause first. Empty: nothing is wrong."""
        return self.read_status(seen, now).diagnoses

    def _evidence(self, seen: ObservedObjects, status: JobStatus, now: datetime | None) -> Evidence:
        return Evidence(
            scheduler=self.scheduler,
            status=status,
            head=seen.head,
            pods=seen.pods or (),
            pod_groups=seen.pod_groups,
            events=seen.events,
            queues=seen.queues,
            neighbours=seen.neighbours,
            nodes=seen.nodes,
            last_lines=seen.last_lines,
            now=now or seen.at,
        )


def asked(role: RolePlan) -> list[ReplicaPlan]:
    """Return the replicas of a role that are asked for, without the surplus of an elastic job."""
    return [replica for replica in role.replica_plans if not replica.surplus]
