"""The status of a run: states, reasons, and the status of job, role and replica. Data only.

The packages in `schedulers` read it from observed objects; `outputs` writes it to stack outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

STOP_CODES = frozenset({129, 130, 143})
"""Exit codes of a container that was stopped from outside: SIGHUP, SIGINT, SIGTERM. A consequence of another end."""

MAX_DIAGNOSES = 8
"""Diagnoses of one run; later ones are consequences of the first."""

MAX_OBJECTS = 8
"""Objects that a diagnosis names at most."""

LOST_POD_ADVICE = "once the job has ended, launch it again; max_retries does that for you"
"""What to do about a pod that was deleted, as by a drain or with its node, if retries cover that."""


class JobState(str, Enum):
    """State of a job or a replica, by the names of TorchX's `AppState`."""

    UNSUBMITTED = "UNSUBMITTED"
    """Not launched."""
    SUBMITTED = "SUBMITTED"
    """The object exists; no controller has acted on it yet."""
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
    """Why a job or a replica is in its state, in one stable word; the message has the details.

    The text of each is what it means; the table of docs/diagnosis.md has the same text, and what to do.
    """

    SUBMITTED = "Submitted"
    """Submitted; no controller has acted on it yet."""
    WAITING_IN_QUEUE = "WaitingInQueue"
    """The queue, or MCAD's line, has not let the job in. The detail says what runs in it, or who is before it."""
    UNSCHEDULABLE = "Unschedulable"
    """Every suitable node is full now, or a volume is not made yet. The summary names what is short and nodes that
    could take it."""
    NEVER_SCHEDULABLE = "NeverSchedulable"
    """No room ends the wait: more than the cluster or the queue can have; labels, taints or cordons that exclude every
    node; no such claim or StorageClass; a volume of other nodes."""
    GANG_WAITING = "GangWaiting"
    """Some replicas have a place, others not, and the gang starts whole: k of n."""
    QUEUE_MISSING = "QueueMissing"
    """The queue does not exist."""
    QUEUE_CLOSED = "QueueClosed"
    """The queue is closed or stopped, or takes no job of the namespace."""
    OVER_QUOTA = "OverQuota"
    """More than the queue's capability or the namespace's ResourceQuota leaves. The detail names what runs in the
    queue."""
    SCHEDULER_ABSENT = "SchedulerAbsent"
    """Pods or gang have waited for a scheduler for a minute."""
    CONTROLLER_ABSENT = "ControllerAbsent"
    """The controller has not acted on job or ended pods for a minute."""
    REFUSED = "Refused"
    """A webhook, the API server or the engine refused an object of the launch, or a pod."""
    WAITING_FOR_PODS = "WaitingForPods"
    """Waiting for its pods: it was let in, and they are being made or placed."""
    WAITING_FOR_ROLE = "WaitingForRole"
    """A replica whose role starts after others (`start_after`), which do not all run yet. The message names them."""
    STARTING = "Starting"
    """Its containers are being created, on its node."""
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    """The image cannot be pulled. The summary says why: not in the registry, credentials, rate limit, registry not
    reached, invalid name, another processor."""
    CONTAINER_REFUSED = "ContainerRefused"
    """The container cannot be made or started: a missing Secret or volume, a command that the image does not have."""
    CRASH_LOOP = "CrashLoop"
    """A container ends again and again; counted, with how it ended the last time."""
    INIT_FAILED = "InitContainerFailed"
    """An init container failed before the others started."""
    SIDECAR_FAILED = "SidecarFailed"
    """A container other than the job's own failed."""
    RUNNING = "Running"
    """Running."""
    RESTARTING = "Restarting"
    """Being restarted, after a failure or a resume."""
    STOPPING = "Stopping"
    """Being stopped: aborted, terminated or completed."""
    COMPLETED = "Completed"
    """All replicas exited with code 0; in an elastic job, as many as it needs, and the message names the others."""
    ROLE_ENDED = "RoleEnded"
    """A replica that was stopped, and its pod deleted, because another role ended the job (`success_roles`)."""
    EXIT_CODE = "ExitCode"
    """A container ended with another exit code, or by a signal, which is named. The detail has its last lines."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A container used more memory than its limit, which is named."""
    EVICTED = "Evicted"
    """The node took the pod away, or somebody drained it; or Kueue took the job's admission back."""
    PREEMPTED = "Preempted"
    """The pod, or under Kueue the whole job, had to make room for another."""
    NODE_LOST = "NodeLost"
    """The node of the pod went away, shut down, or does not answer."""
    FAILED = "Failed"
    """Failed, and the scheduler does not say why."""
    RETRIES_EXHAUSTED = "RetriesExhausted"
    """Started again as often as it may be, resumes included. The next diagnosis says why."""
    SUSPENDED = "Suspended"
    """Held back or stopped until it is resumed."""
    CANCELLED = "Cancelled"
    """Stopped, because somebody asked for it."""
    POD_GONE = "PodGone"
    """Its pods were deleted before their end was seen; `gang=pods`, AppWrapper v1beta2 with pods make no new ones."""
    NOT_FOUND = "NotFound"
    """The job's objects are not in the cluster."""
    NOT_OBSERVED = "NotObserved"
    """It was never observed: the cluster has not answered since the launch, and the stack has only the launch."""
    UNREADABLE = "Unreadable"
    """The object lacks its status, or has one that this release does not know."""


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
    def advice(self) -> str:
        """What to do, by the first diagnosis that says it. Empty: nothing."""
        return next((one.resolution for one in self.diagnoses if one.resolution), "")

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
