"""The shapes of what a stack says of a job: the versioned object `torchx` and the flat outputs. Types only.

`outputs` builds them, `outputs_reader` reads them back; the JSON Schema beside this says the same to other languages.
"""

from __future__ import annotations

from typing import Final, Literal, TypedDict

SCHEMA_VERSION: Final = 1
"""Version of the object `torchx`. A new field keeps it; a removed or changed one raises it."""

Source = Literal["live", "record"]
"""`live`: the cluster said so; `record`: the stack remembers it."""


class AppOutput(TypedDict):
    """Which job this is."""

    id: str
    handle: str
    name: str
    scheduler: str
    namespace: str
    queue: str | None


class ResourceOutput(TypedDict):
    """Amounts that were asked for; memory in MB (10^6 bytes)."""

    cpu: float
    gpu: int
    memory_mb: int
    devices: dict[str, int]


class DeclaredRole(TypedDict):
    """One role as asked for; `resource` is of one replica."""

    name: str
    image: str
    digest: str | None
    replicas: int
    min_replicas: int | None
    resource: ResourceOutput


class Declared(TypedDict):
    """What was asked for."""

    roles: list[DeclaredRole]
    resources_total: ResourceOutput
    priority: str | None
    spec_hash: str
    created_by: str | None


class ObservedCondition(TypedDict):
    """One thing that is true of the job, or not."""

    type: str
    status: str
    reason: str
    message: str
    since: str | None


class ObservedObject(TypedDict):
    """One object of the cluster."""

    kind: str
    namespace: str | None
    name: str


class ObservedDiagnosis(TypedDict):
    """One cause for which the job does not run, or did not succeed."""

    reason: str
    summary: str
    detail: str
    resolution: str
    objects: list[ObservedObject]


class ReplicaTimes(TypedDict, total=False):
    """When a replica ran; a time that is not known is absent."""

    started_at: str | None
    finished_at: str | None


class ObservedReplica(ReplicaTimes):
    """One replica as seen."""

    id: int
    pod: str | None
    state: str
    reason: str
    message: str
    exit_code: int | None
    node: str | None
    restarts: int


class ObservedRole(TypedDict):
    """One role as seen: `counts` by state covers all replicas, `omitted` of which are not listed."""

    name: str
    replicas: list[ObservedReplica]
    omitted: int
    counts: dict[str, int]


class ObservedObjectUid(TypedDict, total=False):
    """Which job object was seen; absent where that is not known, or where 0.1.0 wrote it."""

    uid: str | None


class Observed(ObservedObjectUid):
    """What was seen; times are ISO 8601 in UTC. The first of `diagnoses` is what `reason` and `message` tell."""

    state: str
    phase: str | None
    reason: str
    message: str
    diagnoses: list[ObservedDiagnosis]
    conditions: list[ObservedCondition]
    roles: list[ObservedRole]
    attempt: int
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    observed_at: str
    source: Source


class Links(TypedDict):
    """Where to go from here."""

    log_command: str
    ui_url: str | None


class TorchxOutput(TypedDict):
    """The stack output `torchx`."""

    schema_version: int
    app: AppOutput
    declared: Declared
    observed: Observed
    links: Links


class FlatOutputs(TypedDict):
    """The stack outputs for shells."""

    app_id: str
    app_handle: str
    state: str
    reason: str
    log_command: str
