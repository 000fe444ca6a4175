"""One launched app, as the index and the stack's own state hold it. Data and its codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torchx_pulumi.model.cluster_identity import ClusterIdentity, Match, compare, write_identity
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.requested import Requested

ENTRY_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""


ORGANIZATION = "organization"
"""The only organization of backends other than a Pulumi service."""


class Stage(str, Enum):
    """The last operation on an app, and whether it is complete."""

    LAUNCHING = "launching"
    """`owner` launches it. The launch was interrupted if that process has ended."""
    LAUNCHED = "launched"
    DELETING = "deleting"
    """`owner` deletes it. The deletion was interrupted if that process has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRef:
    """The stack of an app and its backend."""

    backend: str
    """URL of the Pulumi backend without credentials (`backend.choose_backend`), for example `s3://bucket`."""
    project: str
    stack: str
    """Name of the stack, without organization."""
    secrets_provider: str | None = None
    """Secrets provider of a new stack. None: passphrase on backends of one's own, the service's own elsewhere."""
    organization: str = ORGANIZATION
    """Organization of a Pulumi service that keeps the stack. `organization`: the only one of the backend or, on a
    service, the default organization of the user who asks, which the CLI omits when it lists stacks."""

    @property
    def cli_name(self) -> str:
        """Return the stack's name for the CLI, which runs in the stack's project."""
        if self.organization == ORGANIZATION:
            return self.stack
        return f"{self.organization}/{self.project}/{self.stack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownStack(StackRef):
    """The stack of an app that was found in a cluster only: neither the index nor the backend in force has it."""

    backend: str = ""
    project: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStack(UnknownStack):
    """The stack of a program that launched an app found in a cluster; empty until it is searched, or if not found.

    It takes requests, and only the program deletes it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that works on an app."""

    host: str
    pid: int
    started: str
    """Start of the process (`owners.started`), as process ids are used again; empty if unknown."""
    boot_id: str | None = None
    """The boot of the machine that it runs in (`owners.boot_id`), if known."""
    pid_namespace: int | None = None
    """Inode of its PID namespace, if the system has them."""
    pod_uid: str | None = None
    """Uid of its pod (`owners.POD_VARIABLE`). None: it runs in no pod, or that is not known."""
    claim: str = ""
    """Distinguishes claims of one process, whose threads work on one app in turn. Empty: none."""
    seen_at: float | None = None
    """When it last renewed the lease, in seconds since 1970. None: never."""
    lease_until: float | None = None
    """End of its lease, in seconds since 1970: other hosts take it as running until then. None: it has no lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One launched app, without secrets: it has neither credentials nor environment values that were marked secret."""

    app_id: str
    """`namespace:job_name`."""
    scheduler: str
    """`volcano` or `mcad`."""
    choice: str
    """Name of the variant: `job` or `pods`, `v1beta1` or `v1beta2`."""
    place: StackRef
    cluster: str
    """Key of the cluster in names of files and stacks: `ClusterIdentity.key` at the launch."""
    kubeconfig: str | None
    """Path of the kubeconfig. None: the ambient one, or the pod's own account."""
    kube_context: str | None
    session: str
    """TorchX session."""
    user: str
    name: str
    """App name as the user wrote it."""
    queue: str | None
    app: Mapping[str, Any]
    """The AppDef as given, as plain JSON values: name, metadata, roles."""
    pods: Mapping[str, Sequence[str]]
    """Role name to its pods in rank order."""
    declared: Mapping[str, Any]
    """`declared` of the stack output `torchx`."""
    launch: str
    """Value of the label `torchx-pulumi/launch` of the job object: it identifies the objects of this app."""
    run: str
    """Hash of the run, value of the annotation `torchx-pulumi/run`."""
    launched_at: str
    """When the launch was asked for, ISO 8601 in UTC."""
    stage: Stage = Stage.LAUNCHED
    owner: Owner | None = None
    """The process that works on it. None: no process does."""
    uid: str | None = None
    """Uid of the job object. None: not known yet."""
    requested: Requested | None = None
    """The last request to cancel or resume it that is known here."""
    request_written: bool = False
    """Its stack has `requested`. False: it could not be written, and the next command of this user writes it."""
    ambient_kubeconfig: str | None = None
    """Path of the ambient kubeconfig at the launch, if there was one and `kubeconfig` is not set."""
    ambient_context: str | None = None
    """Current context at the launch, if there was one and `kube_context` is not set."""
    ui_url: str | None = None
    """Link to the app in a dashboard, if configured."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's run options that were chosen, by name, as plain JSON values."""
    log_options: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of reading its logs."""
    cluster_identity: ClusterIdentity | None = None
    """The cluster that it was launched in. None: it was found in a cluster only, under the address `cluster`."""

    @property
    def has_stack(self) -> bool:
        """Return whether the stack of the app is known."""
        return bool(self.place.stack)

    @property
    def of_program(self) -> bool:
        """Return whether the app was found in a cluster only, and a program launched it."""
        return isinstance(self.place, ProgramStack)

    @property
    def made_pods(self) -> Mapping[str, Sequence[str]] | None:
        """Return role name to its pods if all of them are known to be made, else None."""
        return self.pods if self.pods and self.stage is Stage.LAUNCHED else None

    @property
    def log_archive(self) -> str | None:
        """Return the URL of the archive that a controller copies its logs to, or None if none was configured."""
        url = self.log_options.get("log_archive")
        return url if isinstance(url, str) and url else None

    @property
    def access(self) -> tuple[str | None, str | None]:
        """Return kubeconfig and context of the launch: those that options named, else the ambient ones, else None."""
        return self.kubeconfig or self.ambient_kubeconfig, self.kube_context or self.ambient_context

    @property
    def namespace(self) -> str:
        """Return the namespace of the job object."""
        return self.app_id.partition(":")[0]

    @property
    def job_name(self) -> str:
        """Return the name of the job object."""
        return self.app_id.partition(":")[2]

    def match(self, present: ClusterIdentity) -> Match:
        """Return whether a cluster is the one of the launch, from what is known of the cluster alone."""
        if self.cluster_identity is not None:
            return compare(self.cluster_identity, present)
        return Match.SAME if self.cluster in ("", *present.keys) else Match.UNDECIDED


def write_entry(entry: RunEntry) -> dict[str, Any]:
    """Return the entry as plain JSON values."""
    plain = without_none(to_json(entry))
    if not entry.request_written:
        del plain["request_written"]
    if entry.cluster_identity is not None:
        plain["cluster_identity"] = write_identity(entry.cluster_identity)
    return {"version": ENTRY_VERSION, **plain}


def read_entry(value: object, where: str) -> RunEntry:
    """Read what `write_entry` wrote.

    Args:
        value: The JSON value.
        where: Place that it was read from, for messages.

    Raises:
        DeployError: It was written by a newer release, or is not an entry.
    """
    what = "an entry of a launched app"
    check_version(value, where, what, ENTRY_VERSION)
    try:
        return from_json(RunEntry, value)
    except ValueError as error:
        raise DeployError(f"{where} is not {what}: {error}; it was changed by hand") from error
