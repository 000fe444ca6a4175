"""The plan: a job with every choice made, from which a renderer writes manifests. Data only, no behaviour.

A plan is made by `planner.plan_job` and read by `manifests`, `identity` and the components. Same plan, same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Options, TaskLayout

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
    """The parts that all replicas of a role share."""

    name: str
    """Role name as the user wrote it."""
    dns_name: str
    """Role name in object names; unique in the job."""
    index: int
    """Position in the AppDef, from 0."""
    image: str
    """Image reference of the pods, with the digest if they name one."""
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
    tasks: Sequence[TaskPlan]
    """In rank order. In the layout `replica` one for each of `replicas`, then the surplus ones of an elastic job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """One pod template, and the replicas that run it: one, or in the layout `role` many that differ in their index."""

    index: int
    """Replica id, in the role, of its first replica."""
    name: str
    """`<role>-<index>`, unique in the job: Volcano's task, and the container."""
    count: int = 1
    """Replicas at the launch, at least 1."""
    requested: int = 1
    """Replicas that are asked for now, 0 to `count`. Fewer: the first ones; an elastic job has shrunk."""
    command: Sequence[str]
    env: Sequence[EnvPlan]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan(Generic[OptionsT]):
    """A job with every choice made."""

    app_id: str
    """Name of the job in macros and labels; equal to `job_name`."""
    job_name: str
    """Name of the job object."""
    namespace: str
    spec: JobSpec
    """The job that the plan was made from."""
    options: OptionsT
    roles: Sequence[RolePlan]
    layout: TaskLayout = TaskLayout.REPLICA
    """`role`, or `replica` where each replica is a task."""
    warnings: Sequence[str] = field(default_factory=tuple)
    """Hints for the user about a job that passed the checks."""
