"""One launched app, as the index and the stack's own state hold it. Data and its way to and from JSON; no file here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torchx_pulumi.model.cluster_identity import ClusterIdentity, read_identity, write_identity
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.redaction import without_password

ENTRY_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""


ORGANIZATION = "organization"
"""The one organization of backends that are no Pulumi service."""


class Stage(str, Enum):
    """How far what was last asked of an app has come."""

    LAUNCHING = "launching"
    """A launch was begun; `owner` says by whom. Without that process: interrupted."""
    LAUNCHED = "launched"
    DELETING = "deleting"
    """A deletion was begun; `owner` says by whom. Without that process: interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRef:
    """Where the stack of an app is kept."""

    backend: str
    """URL of the Pulumi backend, for example `file:///var/lib/state` or `s3://bucket`.

    Without credentials (`runs.place.choose_backend`), but in entries that 0.1.0 wrote."""
    project: str
    stack: str
    """Name of the stack, without organization."""
    secrets_provider: str | None = None
    """Secrets provider of a new stack. None: passphrase on backends of one's own, the service's own elsewhere."""
    organization: str = ORGANIZATION
    """Organization of a Pulumi service that keeps the stack. `organization`: the backend has no other one.

    On a service `organization` is an app of 0.1.0: its stack is in the default organization of the user who asks."""

    @property
    def cli_name(self) -> str:
        """Return the name by which the CLI finds the stack, in a project of its name."""
        if self.organization == ORGANIZATION:
            return self.stack
        return f"{self.organization}/{self.project}/{self.stack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that works on an app."""

    host: str
    pid: int
    started: str
    """When the process started (`owner.started`); tells it from a later process with its number. Empty: not known."""
    boot_id: str | None = None
    """The boot of the machine that it runs in (`owner.boot_id`). None: 0.1.0 wrote this."""
    pid_namespace: int | None = None
    """Inode of its PID namespace. None: the system has none, or 0.1.0 wrote this."""
    claim: str = ""
    """Tells two claims of one process: its threads work on one app one after the other. Empty: 0.1.0 wrote this."""
    seen_at: float | None = None
    """Its last sign of life, in seconds since 1970. None: 0.1.0 wrote this."""
    lease_until: float | None = None
    """Until when it is taken to be at work where it cannot be seen, in seconds since 1970. None: 0.1.0 wrote this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One launched app. Nothing secret: no value of an environment that was marked so, no credentials."""

    app_id: str
    """`namespace:job_name`."""
    scheduler: str
    """`volcano` or `mcad`."""
    choice: str
    """Value of the option that chooses the form: `job` or `pods`, `v1beta1` or `v1beta2`."""
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
    """Value of the label `torchx-pulumi/launch` of the job object: by it we know it as ours."""
    run: str
    """Hash of the run, value of the annotation `torchx-pulumi/run`."""
    launched_at: str
    """When the launch was asked for, ISO 8601 in UTC."""
    stage: Stage = Stage.LAUNCHED
    owner: Owner | None = None
    """The process that works on it. None: nobody does."""
    uid: str | None = None
    """Uid of the job object. None: not known yet."""
    cancelled_at: str | None = None
    """When somebody asked to cancel it, ISO 8601 in UTC. None: nobody did."""
    ambient_kubeconfig: str | None = None
    """Path of the kubeconfig that was the ambient one at the launch. None: `kubeconfig` is set, or there was none."""
    ambient_context: str | None = None
    """Context that was the current one at the launch. None: `kube_context` is set, or there was none."""
    organization: str = ORGANIZATION
    """Organization of which `launch` is made: that of the stack; in apps of 0.1.0 always `organization`."""
    ui_url: str | None = None
    """Link to the app in a dashboard. None: none was configured."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's run options that were chosen, by name, as plain JSON values."""
    log_options: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of reading its logs."""
    cluster_identity: ClusterIdentity | None = None
    """The cluster that it was launched in. None: 0.1.0 launched it, and `cluster` is the digest of its address."""

    @property
    def made_pods(self) -> Mapping[str, Sequence[str]] | None:
        """Return role name to its pods, where all of them were made. None: that is not known."""
        return self.pods if self.pods and self.stage is Stage.LAUNCHED else None

    @property
    def namespace(self) -> str:
        """Return the namespace of the job object."""
        return self.app_id.partition(":")[0]

    @property
    def job_name(self) -> str:
        """Return the name of the job object."""
        return self.app_id.partition(":")[2]


def write_entry(entry: RunEntry) -> dict[str, Any]:
    """Return the entry as plain JSON values."""
    plain = {name: value for name, value in dataclasses.asdict(entry).items() if value is not None}
    # 0.1.0 refuses a place with fields that it does not know.
    del plain["place"]["organization"]
    if entry.place.organization != entry.organization:
        plain["stack_organization"] = entry.place.organization
    if entry.owner is not None:
        # 0.1.0 refuses an owner with fields that it does not know, and ignores other fields of the entry.
        plain |= {"owner": _owner_of_0_1_0(entry.owner), "owner_details": dataclasses.asdict(entry.owner)}
    identity = {"cluster_identity": write_identity(entry.cluster_identity)} if entry.cluster_identity else {}
    return {"version": ENTRY_VERSION, **plain, "stage": entry.stage.value, **identity}


def without_backend_password(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a written entry without the credentials that 0.1.0 left in the URL of its backend."""
    place = entry.get("place")
    if not isinstance(place, Mapping):
        return dict(entry)
    return {**entry, "place": {**place, "backend": without_password(str(place.get("backend") or ""))}}


def read_entry(value: Any, where: str) -> RunEntry:
    """Read what `write_entry` wrote.

    Args:
        value: The JSON value.
        where: What messages call the place that it came from.

    Raises:
        DeployError: It was written by a newer release, or is no entry.
    """
    if not isinstance(value, Mapping) or not is_version(value.get("version")):
        raise DeployError(f"{where} is no entry of a launched app: found {type(value).__name__} without a version")
    if int(value["version"]) > ENTRY_VERSION:
        raise DeployError(
            f"{where} has version {int(value['version'])}, this release of torchx-pulumi reads up to {ENTRY_VERSION}; "
            "install the release that wrote it, or a newer one"
        )
    known = {item.name for item in dataclasses.fields(RunEntry)}
    fields = {name: item for name, item in value.items() if name in known}
    try:
        organization = value.get("stack_organization", value.get("organization", ORGANIZATION))
        fields["place"] = StackRef(**fields["place"], organization=organization)
        fields["owner"] = _read_owner(value)
        fields["cluster_identity"] = read_identity(fields.get("cluster_identity"))
        fields["stage"] = Stage(fields.get("stage", Stage.LAUNCHED.value))
        entry = RunEntry(**{"kubeconfig": None, "kube_context": None, "queue": None, **fields})
        _check_types(entry)
        return entry
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeployError(f"{where} is no entry of a launched app: {error}; it was changed by hand") from error


def is_version(value: Any) -> bool:
    """Return whether a JSON value is the number of a version."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def check_fields(of: Any, kind: type | tuple[type, ...], names: str, *, optional: bool = False) -> None:
    """Check the types of fields that were read from JSON.

    Args:
        of: The dataclass that has them.
        kind: The type that is allowed.
        names: Names of the fields, with blanks between them.
        optional: None is allowed too.

    Raises:
        TypeError: A field has another type.
    """
    for name in names.split():
        value = getattr(of, name)
        if not isinstance(value, kind) and not (optional and value is None):
            allowed = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
            raise TypeError(f"{name} is {type(value).__name__}, must be {allowed}")


def _check_types(entry: RunEntry) -> None:
    check_fields(entry, str, "app_id scheduler choice cluster session user name launch run launched_at organization")
    optional = "kubeconfig kube_context queue uid cancelled_at ambient_kubeconfig ambient_context ui_url"
    check_fields(entry, str, optional, optional=True)
    check_fields(entry, Mapping, "app pods declared options log_options")
    for role, pods in entry.pods.items():
        if not isinstance(pods, (list, tuple)) or not all(isinstance(pod, str) for pod in pods):
            raise TypeError(f"pods of role {role} are not a list of names")
    check_fields(entry.place, str, "backend project stack organization")
    check_fields(entry.place, str, "secrets_provider", optional=True)
    if entry.owner is not None:
        check_fields(entry.owner, str, "host started claim")
        check_fields(entry.owner, (int, float), "pid")
        check_fields(entry.owner, str, "boot_id", optional=True)
        check_fields(entry.owner, (int, float), "pid_namespace seen_at lease_until", optional=True)


def _owner_of_0_1_0(owner: Owner) -> dict[str, Any]:
    # It knows the start of a process by the boot and the clock tick in it, and nowhere but on Linux.
    known = owner.started if owner.boot_id and owner.started.startswith(f"{owner.boot_id}:") else ""
    return {"host": owner.host, "pid": owner.pid, "started": known}


def _read_owner(value: Mapping[str, Any]) -> Owner | None:
    if not value.get("owner"):
        return None
    details = value.get("owner_details")
    if not details:
        return Owner(**value["owner"])
    known = {item.name for item in dataclasses.fields(Owner)}
    return Owner(**{name: item for name, item in details.items() if name in known})
