"""Options of a job that Volcano runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from torchx_pulumi.model.options import Options, TaskLayout, option, option_table

DEFAULT_PLUGINS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"svc": ("--publish-not-ready-addresses",), "env": ()},
)
"""Volcano job plugins that replicas need to find each other, also before they are ready."""

ADDED_PLUGINS: Mapping[str, Sequence[str]] = MappingProxyType(
    {"tensorflow": ("svc",), "mpi": ("svc", "ssh"), "pytorch": ("svc",), "ray": ("svc",)},
)
"""Plugins that Volcano's webhook adds to a job, by the plugin that needs them (`jobs/mutate/mutate_job.go`)."""


class GangMode(str, Enum):
    """Who makes the pods of a Volcano job."""

    JOB = "job"
    """Volcano's job controller, from one Volcano Job object."""
    PODS = "pods"
    """Pulumi, as a PodGroup, a Service and one Pod per replica."""


@option_table
class NetworkTopology:
    """How close together a gang must be placed."""

    ARGUMENT_TYPE: ClassVar[str] = "Topology"
    """Name of the type in component arguments."""
    TEXT_FIELD: ClassVar[str] = "mode"
    """Field that is meant if the option is a plain text."""

    mode: str = option("`hard` or `soft`", default="hard", known=True)
    highest_tier_allowed: int | None = option(
        "Highest HyperNode tier that a hard placement may cross. Unset: Volcano's default", default=None
    )


@option_table
class VolcanoOptions(Options):
    """Options of a job that Volcano runs."""

    scheduler: ClassVar[str] = "volcano"

    queue: str = option("Volcano queue to schedule job in")
    priority_class: str | None = option(
        "The name of the PriorityClass to set on the job specs; it changes in place", default=None
    )
    gang: GangMode = option(
        "Who makes the pods: `job` (Volcano) or `pods` (PodGroup, Service and Pods are resources)",
        default=GangMode.JOB,
    )
    layout: TaskLayout = option(
        "Tasks of a new run: `replica` (one each), `role` (shared), `auto` (shared above 10 replicas)",
        default=TaskLayout.AUTO,
        counted=False,
    )
    scheduler_name: str = option("Scheduler that binds the pods", default="volcano", known=True)
    ttl_seconds_after_finished: int | None = option(
        "Seconds until a finished job is deleted; it is not run again. Unset: kept. Zero: at once", default=None
    )
    network_topology: NetworkTopology | None = option(
        "How close together the gang must be placed. Unset: anywhere", default=None
    )
    plugins: Mapping[str, Sequence[str]] | None = option(
        "Volcano job plugins and their arguments. Unset: svc, which lets only pods of the job in, and env",
        default=None,
    )
    success_roles: Sequence[str] | None = option(
        "Roles that end the job: it succeeds when all replicas of one of them have. Unset: all roles have to",
        default=None,
        known=True,
    )
    start_after: Mapping[str, Sequence[str]] | None = option(
        "Role to the roles that must run before its pods are made; it is no part of the gang. Unset: none waits",
        default=None,
        known=True,
    )
    image_secrets: Sequence[str] = option("Names of pull secrets to set on the pod specs. Empty: none", default=())

    @property
    def job_plugins(self) -> Mapping[str, Sequence[str]]:
        """Return the plugins in force, as they are written into the job."""
        return DEFAULT_PLUGINS if self.plugins is None else self.plugins

    @property
    def awaited_roles(self) -> frozenset[str]:
        """Return the roles that others wait for."""
        return frozenset(name for names in (self.start_after or {}).values() for name in names)

    @property
    def all_plugins(self) -> frozenset[str]:
        """Return the names of the plugins that the job has in the cluster: also those that Volcano adds."""
        added = (ADDED_PLUGINS.get(name, ()) for name in self.job_plugins)
        return frozenset(self.job_plugins).union(*added)
