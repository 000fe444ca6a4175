"""The shapes of the stack outputs: the versioned object `torchx` and the flat outputs. No logic.

`building` builds them and `reader` reads them. `make schema` writes schema.json, the JSON Schema for other languages,
from these types and the texts under their fields. In a stack's state, fields that are null may be absent.

`Declared`, `Observed`, `UserRequest` and the types of their fields are also types of the Pulumi package. So they do not
inherit (inherited fields lose their text), the module has no `from __future__ import annotations` (Pulumi's analyzer
needs real types), and no name is another one followed by `Output` (Go generates such a type for each).
"""

from collections.abc import Sequence
from typing import Final, Literal

from typing_extensions import NotRequired, TypedDict

SCHEMA_VERSION: Final = 1
"""Version of the object `torchx`. A new field keeps it; a removed or changed one raises it."""

Source = Literal["live", "record"]
"""`live`: read from the cluster; `record`: the last known state, kept by the stack."""


class AppOutput(TypedDict):
    """Which job this is."""

    id: str
    """namespace:name"""
    handle: str
    """Handle by which TorchX finds the job."""
    name: str
    """Name of the app, as the user wrote it."""
    scheduler: str
    """Name of the scheduler, for example volcano or mcad."""
    namespace: str
    """Namespace of the job object."""
    queue: str | None
    """Queue of the job. Null: the scheduler has no queues, or none was chosen."""


class DeclaredResource(TypedDict):
    """Requested amounts. An amount that is not set or negative counts as 0."""

    cpu: float
    """CPU cores."""
    gpu: int
    """GPUs."""
    memory_mb: int
    """Memory in MB (10^6 bytes)."""
    devices: dict[str, int]
    """Other devices: Kubernetes resource name to number."""


class DeclaredRole(TypedDict):
    """One role as requested."""

    name: str
    """Name of the role."""
    image: str
    """Image reference of its containers."""
    digest: str | None
    """Digest of the image. Null: not known."""
    replicas: int
    """Number of replicas, at least 0."""
    min_replicas: int | None
    """Replicas that are enough to start. Null: all."""
    resource: DeclaredResource
    """Amounts of one replica."""


class Declared(TypedDict):
    """What was requested; equal from `up` to `up`."""

    roles: list[DeclaredRole]
    """Roles in the order of the app."""
    resources_total: DeclaredResource
    """Amounts of all replicas together."""
    priority: str | None
    """PriorityClass. Null: the cluster's default."""
    spec_hash: str
    """Hash of the run."""
    created_by: str | None
    """User who requested the job. Null: not known."""
    success_roles: NotRequired[list[str] | None]
    """The job succeeds when one of these roles has. Null: when all have."""
    start_after: NotRequired[dict[str, list[str]] | None]
    """Role to the roles that must run before it starts. Null: no role waits."""


class ObservedCondition(TypedDict):
    """One thing that is true of the job, or not."""

    type: str
    """Admitted (by the queue), PodsScheduled (all on nodes) or Finished."""
    status: str
    """True, False or Unknown."""
    reason: str
    """One word that never changes; the page Diagnosis lists them."""
    message: str
    """Details. Empty: none."""
    since: str | None
    """When it changed to this status. Null: not known."""


class ObservedObject(TypedDict):
    """One object of the cluster."""

    kind: str
    """Kubernetes kind."""
    namespace: str | None
    """Null: the object belongs to the whole cluster."""
    name: str
    """Name of the object."""


class ObservedDiagnosis(TypedDict):
    """One cause for which the job does not run, or did not succeed."""

    reason: str
    """One word that never changes; the page Diagnosis lists them."""
    summary: str
    """What is wrong, in one line."""
    detail: str
    """Evidence, quoted from its source, at most 2,000 characters. Empty: the summary is complete."""
    resolution: str
    """What to do next."""
    objects: list[ObservedObject]
    """Objects from which it was read, the most important first."""


class ObservedReplica(TypedDict):
    """One observed replica."""

    id: int
    """Number of the replica in its role, from 0."""
    pod: str | None
    """Name of its pod. Null: not known."""
    state: str
    """State, by the names of TorchX's AppState."""
    reason: str
    """One word that never changes; the page Diagnosis lists them."""
    message: str
    """Details, at most 400 characters."""
    exit_code: int | None
    """Exit code of the container that ended last. Null: still running, or never ran."""
    node: str | None
    """Node of the pod. Null: not on a node."""
    restarts: int
    """Restarts of the pod's containers."""
    started_at: NotRequired[str | None]
    """When its first container started."""
    finished_at: NotRequired[str | None]
    """When its last container ended."""


class ObservedRole(TypedDict):
    """One observed role."""

    name: str
    """Name of the role."""
    replicas: list[ObservedReplica]
    """Replicas in rank order. Of a role with more than 64 replicas the failed ones only, and at most 64; fewer where
    `observed` would be larger than 60,000 bytes."""
    omitted: int
    """Replicas that are not listed."""
    counts: dict[str, int]
    """State to the number of replicas in it, all replicas counted."""


class Observed(TypedDict):
    """What was observed. Updated by `pulumi up` and `pulumi refresh --run-program`."""

    state: str
    """State, by the names of TorchX's AppState."""
    phase: str | None
    """The scheduler's own word for the state. Null: it has none yet."""
    reason: str
    """One word that never changes; the page Diagnosis lists them."""
    message: str
    """Details, those of the first diagnosis where there is one; at most 2,000 characters."""
    diagnoses: list[ObservedDiagnosis]
    """The most important first, at most 8."""
    conditions: list[ObservedCondition]
    """Empty: not known."""
    roles: list[ObservedRole]
    """Roles in the order of the app. Empty: nothing of them was observed."""
    attempt: int
    """1 for the first start, one more for each restart of the whole job."""
    queued_at: str | None
    """When the job object was created. Null: not known."""
    started_at: str | None
    """When the first container started. Null: none did yet, or not known."""
    finished_at: str | None
    """When the job ended. Null: it did not, or not known."""
    observed_at: str
    """When it was observed; changes only when something else here does."""
    source: str
    """live: read from the cluster; record: the last known state, kept by the stack."""
    uid: NotRequired[str | None]
    """Uid of the observed job object."""
    resource_version: NotRequired[str | None]
    """`metadata.resourceVersion` of what was observed, which orders observations of one attempt."""
    roles_omitted: NotRequired[int | None]
    """Number of roles after the listed ones, left out where `observed` would be larger than 60,000 bytes even without
    replicas. Null: none."""


class Links(TypedDict):
    """Where to find more."""

    log_command: str
    """Shell command that prints and follows the logs of all replicas."""
    ui_url: str | None
    """Link to the job in a dashboard. Null: none was configured."""
    log_archive: NotRequired[str | None]
    """URL of the archive that a controller copies the logs to, without credentials. Null: none was configured."""


class UserRequest(TypedDict):
    """The last request to cancel or to resume the run. What is null may be absent."""

    action: str
    """cancel or resume."""
    at: str
    """When it was made."""
    by: str | None
    """User who made it. Null: not known."""
    counter: int
    """1 for the first request about a run; orders requests."""
    uid: str | None
    """Uid of the job object that it is about. Null: not known."""
    attempt: int
    """Attempt of the run when it was made."""
    resource_version: str | None
    """`metadata.resourceVersion` of the job object when it was made. Null: not known."""


class TorchxOutput(TypedDict):
    """The stack output `torchx`. Fields may be added without a new schema_version; what is null may be absent."""

    schema_version: int
    """Version of this object."""
    app: AppOutput
    declared: Declared
    observed: Observed
    links: Links
    requested: NotRequired[UserRequest | None]
    """The last request to cancel or to resume the run."""


class FlatOutputs(TypedDict):
    """The stack outputs for shells."""

    app_id: str
    """`torchx.app.id`"""
    app_handle: str
    """`torchx.app.handle`"""
    state: str
    """`torchx.observed.state`"""
    reason: str
    """`torchx.observed.reason`"""
    log_command: str
    """`torchx.links.log_command`"""


COMPONENT_OUTPUTS: Sequence[tuple[str, str, str]] = (
    ("app_id", "str", "Id of the app in TorchX's words: `namespace:job_name`."),
    ("app_handle", "str", "Handle by which TorchX finds the app."),
    ("job_name", "str", "Name of the job object."),
    ("namespace", "str", "Namespace of all objects."),
    ("uid", "str", "Uid of the job object; a new one is a new run."),
    ("service", "str", "Name of the headless Service by which replicas find each other. Empty: none."),
    ("pod_groups", "list[str]", "Names of the PodGroups. Empty: there is no gang scheduler."),
    ("pod_names", "list[str]", "Names of the pods, in the order of ranks."),
    ("rank0_host", "str", "Host name of rank 0 inside the job."),
    ("images", "dict[str, str]", "Role name to image."),
    ("declared", "Declared", "What was asked for: `declared` of the stack output `torchx`."),
    ("observed", "Observed", "What was seen: `observed` of the stack output `torchx`."),
    (
        "requested",
        "UserRequest | None",
        "Last request to cancel or resume the run: `requested` of the stack output `torchx`. None: none.",
    ),
)
"""Name, type and text of each output of a component."""
