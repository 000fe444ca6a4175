"""The record of a run: what the stack remembers of a launch when the cluster has forgotten it.

Data and its way to and from plain JSON values. Nothing secret: digests of fields, never their values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_pulumi.model.cluster_identity import ClusterIdentity, read_identity, write_identity
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.runs.identity import FIRST_VERSION, IDENTITY_VERSION

RECORD_VERSION = 1
"""Version of the written form. A reader refuses a newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a job, as its stack remembers it."""

    app_id: str
    job_name: str
    """Name of the job object."""
    namespace: str
    hash: str
    """`run_hash.run_hash` of the run."""
    digests: Mapping[str, str]
    """`identity.field_digests`: path of a field to the digest of its value."""
    launched: Mapping[str, int]
    """Role name to the replicas that it was launched with."""
    replicas: Mapping[str, int]
    """Role name to the replicas that are asked for now; at most `launched`."""
    attempt: int
    """Launches of this job so far, this one included. At least 1."""
    launched_at: str
    """When the launch was decided, ISO 8601 in UTC."""
    uid: str | None = None
    """Uid of the job object. None: not known, for example in a preview."""
    imported: bool | None = None
    """True: somebody else made the job object, and it stays as it was taken over."""
    observed: Mapping[str, Any] | None = None
    """The end of the run as last seen (`state`, `reason`, `message`, ...). None: it had not ended."""
    identity_version: int = FIRST_VERSION
    """Version of the identity that hash, digests and job name are of. Not written where it is the first: 0.1.0's."""
    cluster: ClusterIdentity | None = None
    """The cluster that it was launched in; not part of the run's identity. None: not known, 0.1.0 wrote the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """What a stack knows of a job when its program starts."""

    record: RunRecord | None = None
    """The last run whose launch was confirmed. None: there was none."""
    intent: RunRecord | None = None
    """The last launch that was begun. Newer than `record`: the launch was refused or interrupted."""
    job: Mapping[str, Any] | None = field(default=None)
    """The job object as of the last deployment or refresh. None: not in the state."""

    @property
    def interrupted(self) -> bool:
        """Say whether a launch was begun and never confirmed."""
        return self.intent is not None and (self.record is None or self.intent.attempt > self.record.attempt)


def write_record(record: RunRecord) -> dict[str, Any]:
    """Return the record as plain JSON values."""
    values = {item.name: getattr(record, item.name) for item in dataclasses.fields(record)}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    plain["identity_version"] = None if record.identity_version == FIRST_VERSION else record.identity_version
    plain["cluster"] = write_identity(record.cluster) if record.cluster is not None else None
    return {"version": RECORD_VERSION, **{name: value for name, value in plain.items() if value is not None}}


def read_record(value: Any) -> RunRecord | None:
    """Read what `write_record` wrote; numbers may have become floats on the way through Pulumi's state.

    Raises:
        DeployError: The record was written by a newer release, or is none.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or "version" not in value:
        raise DeployError(f"the stack's record of the run is not one: found {type(value).__name__} without a version")
    if int(value["version"]) > RECORD_VERSION:
        raise DeployError(
            f"the stack's record of the run has version {int(value['version'])}, this release of torchx-pulumi reads "
            f"up to {RECORD_VERSION}; install the release that wrote it, or a newer one"
        )
    known = {item.name for item in dataclasses.fields(RunRecord)}
    fields = {name: item for name, item in value.items() if name in known}
    missing = sorted({"job_name", "namespace", "hash", "attempt", "launched"} - fields.keys())
    if missing:
        raise DeployError(f"the stack's record of the run lacks {', '.join(missing)}; it was changed by hand")
    fields["attempt"] = int(fields["attempt"])
    fields["identity_version"] = int(fields.get("identity_version", FIRST_VERSION))
    if fields["identity_version"] > IDENTITY_VERSION:
        raise DeployError(
            f"the stack's record of the run has identity_version {fields['identity_version']}, this release of "
            f"torchx-pulumi knows up to {IDENTITY_VERSION}; install the release that wrote it, or a newer one"
        )
    for name in ("launched", "replicas"):
        fields[name] = {role: int(count) for role, count in (fields.get(name) or fields["launched"]).items()}
    try:
        fields["cluster"] = read_identity(fields.get("cluster"))
    except ValueError as error:
        raise DeployError(f"the stack's record of the run cannot be read: {error}; it was changed by hand") from error
    return RunRecord(
        **{"app_id": fields["job_name"], "digests": {}, "launched_at": "", **fields},
    )
