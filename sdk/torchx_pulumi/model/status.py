"""The status of a run: states, reasons, and the status of job, role and replica. Data only.

The packages in `schedulers` read it from observed objects; `outputs` writes it to stack outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

STOP_CODES = frozenset({129, 130, 143})
"""Exit codes of a container that was stopped from outside: SIGHUP, SIGINT, SIGTERM. A consequence of another end."""


class JobState(str, Enum):
    """State of a job or a replica, by the names of TorchX's `AppState`."""

    UNSUBMITTED = "UNSUBMITTED"
    """Not launched."""
    SUBMITTED = "SUBMITTED"
    """The object exists; the scheduler has not acted on it yet."""
    PENDING = "PENDING"
    """Waiting for the queue, for a node or for its image."""
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    """Stopped on request."""
    UNKNOWN = "UNKNOWN"
    """Unknown from the observed objects; the reason says why."""

    @property
    def terminal(self) -> bool:
        """Return whether a job stays in this state."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class Reason(str, Enum):
    """Why a job or a replica is in its state, in one stable word; the message has the details."""

    SUBMITTED = "Submitted"
    """No controller has acted on it yet."""
    WAITING_IN_QUEUE = "WaitingInQueue"
    """The queue has not admitted the gang."""
    UNSCHEDULABLE = "Unschedulable"
    """No node, or not enough nodes, for the gang."""
    NEVER_SCHEDULABLE = "NeverSchedulable"
    """More than the cluster has, even when nothing else runs in it."""
    GANG_WAITING = "GangWaiting"
    """Some replicas have a node, others not, and the gang starts whole."""
    QUEUE_MISSING = "QueueMissing"
    """The queue does not exist."""
    QUEUE_CLOSED = "QueueClosed"
    """The queue takes no jobs."""
    OVER_QUOTA = "OverQuota"
    """More than the queue or the namespace may have now."""
    SCHEDULER_ABSENT = "SchedulerAbsent"
    """No scheduler has acted on the job for a minute."""
    CONTROLLER_ABSENT = "ControllerAbsent"
    """No controller has acted on the job for a minute."""
    REFUSED = "Refused"
    """A webhook, or the API server, did not take the job."""
    WAITING_FOR_PODS = "WaitingForPods"
    """Admitted; pods are being made or placed."""
    STARTING = "Starting"
    """Placed on a node; containers are being made."""
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    """The image cannot be pulled."""
    CONTAINER_REFUSED = "ContainerRefused"
    """The container cannot be made or started: a missing Secret, a command that is not in the image."""
    CRASH_LOOP = "CrashLoop"
    """A container ends again and again and is started again and again."""
    INIT_FAILED = "InitContainerFailed"
    """An init container failed, so that the others were never started."""
    SIDECAR_FAILED = "SidecarFailed"
    """A container other than the job's own failed."""
    RUNNING = "Running"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    """Being aborted, terminated or completed."""
    COMPLETED = "Completed"
    """All replicas ended with exit code 0."""
    EXIT_CODE = "ExitCode"
    """A container ended with an exit code other than 0."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A container used more memory than its limit."""
    EVICTED = "Evicted"
    """The node or the scheduler took the pod away."""
    PREEMPTED = "Preempted"
    """The pod was removed for one of higher priority, or for another queue."""
    NODE_LOST = "NodeLost"
    """The node of the pod was removed, or does not answer."""
    FAILED = "Failed"
    """Failed for a reason that the observed objects do not tell."""
    RETRIES_EXHAUSTED = "RetriesExhausted"
    """Failed more often than the job may be retried."""
    SUSPENDED = "Suspended"
    """Not started, or stopped, until it is resumed."""
    CANCELLED = "Cancelled"
    POD_GONE = "PodGone"
    """The pod was deleted before its end was seen."""
    NOT_FOUND = "NotFound"
    """The job's objects are not in the cluster."""
    NOT_OBSERVED = "NotObserved"
    """Its cluster has not answered yet, and nothing was written about it."""
    UNREADABLE = "Unreadable"
    """The observed object has no state, or one that this version does not know."""


def read_state(value: object) -> JobState:
    """Return a state by its name. Any other value is UNKNOWN."""
    return JobState[value] if isinstance(value, str) and value in JobState.__members__ else JobState.UNKNOWN


STUCK = (Reason.IMAGE_UNAVAILABLE, Reason.CONTAINER_REFUSED, Reason.CRASH_LOOP)
"""Reasons of a replica that rarely go away by waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """One object of a cluster."""

    kind: str
    namespace: str | None = None
    """None: the object is of the whole cluster."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One cause for which a job does not run, or did not succeed."""

    reason: Reason
    summary: str
    """The problem in one line; the same while the cause stays."""
    detail: str
    """Quoted messages, which may have several lines. Empty: the summary is complete."""
    resolution: str
    """Next step for the user."""
    objects: tuple[ObjectRef, ...] = ()
    """Objects that it was read from, the most relevant first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica and its pod."""

    id: int
    """Replica id in the role, from 0."""
    pod: str | None
    """Name of the pod, if known."""
    state: JobState
    reason: Reason
    message: str = ""
    """Explanation of the reason for this replica. Empty: not diagnosed yet."""
    exit_code: int | None = None
    """Exit code of the container that ended last. None: still running, or never ran."""
    node: str | None = None
    """Node of the pod. None: not placed."""
    restarts: int = 0
    """How often the pod's containers were restarted."""
    started_at: datetime | None = None
    """When its first container started, UTC. None: none has, or not known."""
    finished_at: datetime | None = None
    """When its last container ended, UTC. None: none has, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleStatus:
    """All replicas of a role, in rank order."""

    name: str
    replicas: tuple[ReplicaStatus, ...]

    @property
    def counts(self) -> dict[JobState, int]:
        """Return how many replicas are in each state that occurs."""
        states = [replica.state for replica in self.replicas]
        return {state: states.count(state) for state in JobState if state in states}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition of a job, like those of Kubernetes."""

    type: str
    """`Admitted` (by the queue), `PodsScheduled` (all on nodes) or `Finished`."""
    status: str
    """`True`, `False` or `Unknown`."""
    reason: Reason
    message: str = ""
    since: datetime | None = None
    """When it changed, UTC, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a run at one time."""

    state: JobState
    reason: Reason
    message: str = ""
    """Explanation of the reason for this run. Empty: not diagnosed yet."""
    phase: str | None = None
    """The scheduler's own name of the state. None: it has not set one."""
    roles: tuple[RoleStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    attempt: int = 1
    """1 for the first launch, one more for each time the scheduler restarted the whole job."""
    queued_at: datetime | None = None
    """When the job object was made, UTC."""
    started_at: datetime | None = None
    """When the first container ran, UTC. None: none did yet."""
    finished_at: datetime | None = None
    """When the job ended, UTC. None: it has not, or not known."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """Why the job does not run, or did not succeed. The first one gives `reason` and `message`."""
    uid: str | None = None
    """Uid of the observed job object, if known."""

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """All replicas, role by role."""
        return tuple(replica for role in self.roles for replica in role.replicas)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the replica that failed first. None: no replica has one other than 0.

        That is the replica that the diagnoses name, else one that was not stopped by a signal.
        """
        failed = [replica for replica in self.replicas if replica.exit_code]
        named = [one.name for diagnosis in self.diagnoses for one in diagnosis.objects if one.kind == "Pod"]
        order = {name: place for place, name in reversed([*enumerate(named)])}

        def rank(replica: ReplicaStatus) -> tuple[int, bool]:
            return order.get(replica.pod or "", len(named)), replica.exit_code in STOP_CODES

        return min(failed, key=rank).exit_code if failed else None
