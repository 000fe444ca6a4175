"""The plan: a job with every choice made, from which a renderer writes manifests. Data only, no behaviour.

A plan is made by `planner.plan_job` and read by `manifests`, `identity` and the components. Same plan, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Options

OptionsT = TypeVar("OptionsT", bound=Options, default=Any)
"""Class of the options of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvPlan:
    """One environment variable of a container; exactly one of the three sources is set."""

    name: str
    value: str | None = None
    """Plain text."""
    field_path: str | None = None
    """Field of the pod (`fieldRef`)."""
    secret: tuple[str, str, bool] | None = None
    """Secret name, key, optional (`secretKeyRef`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """One mount of a container."""

    name: str
    """Volume name, `mount-<index>`."""
    kind: str
    """bind | volume | device | secret."""
    src: str
    dst: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePlan:
    """What all replicas of a role share."""

    name: str
    """Role name as the user wrote it."""
    dns_name: str
    """Role name in object names; unique in the job."""
    index: int
    """Position in the AppDef, from 0."""
    image: str
    replicas: int
    """Pods to run when the queue has room."""
    min_replicas: int | None
    """Pods that must start together. None: all of them."""
    max_retries: int
    retry_policy: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    ports: Mapping[str, int]
    mounts: Sequence[MountPlan]
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, Any]]
    pod_overlay: Mapping[str, Any] | None
    privileged: bool
    """A device is mounted."""
    replica_plans: Sequence[ReplicaPlan]
    """In rank order; as many as `replicas`, then the surplus tasks of an elastic job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One pod: what differs from replica to replica."""

    index: int
    """Replica id in the role, from 0."""
    name: str
    """`<role>-<index>`, unique in the job: Volcano's task and container."""
    command: Sequence[str]
    env: Sequence[EnvPlan]
    labels: Mapping[str, str]
    surplus: bool = False
    """True: launched earlier and no longer requested; rendered with 0 replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan(Generic[OptionsT]):
    """A job with every choice made."""

    app_id: str
    """What macros and labels call the job; equal to `job_name`."""
    job_name: str
    """Name of the job object."""
    namespace: str
    spec: JobSpec
    """What the plan was made from."""
    options: OptionsT
    roles: Sequence[RolePlan]
    warnings: Sequence[str] = field(default_factory=tuple)
    """What the user should know about a job that passed the checks."""
