"""The record of a run: what the stack keeps of a launch after the objects of the run were deleted.

Data and its codec. No secrets: digests of fields, never their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torchx_pulumi.model.cluster_identity import ClusterIdentity, write_identity
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import DeployError

RECORD_VERSION = 2
"""Version of the written form of a run in the layout `role`, or with digests of images; of others it is 1. A reader
refuses a newer one: 0.1.0 would render other pods."""

FIRST_VERSION = 1
"""Version of the identity of 0.1.0, whose records do not name it: the name of a job object ends in a hash of the name
of its component and the hash of its run."""

IDENTITY_VERSION = 2
"""Version of the identity of new runs: the run's hash is computed from the rendered manifest, and the hash in the name
covers the owner's digest too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a job, as its stack keeps it."""

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
    """True: another program created the job object, and it stays as it was imported."""
    observed: Mapping[str, Any] | None = None
    """The end of the run as last seen (`state`, `reason`, `message`, ...). None: it had not ended."""
    identity_version: int = FIRST_VERSION
    """Version of the identity that hash, digests and job name are of. Not written where it is the first: 0.1.0's."""
    tasks: Mapping[str, Sequence[int]] | None = None
    """Role name to the replica id of the first replica of each of its tasks (`planning.layout.RoleTasks`); not part of
    the run's identity. None: layout `replica`, in which each replica is a task."""
    image_digests: Mapping[str, str] | None = None
    """Role name to the digest that the run's pods name after the tag of their image; not part of the run's identity.
    None, or a role that is not in it: they name the tag alone."""
    cluster: ClusterIdentity | None = None
    """The cluster that it was launched in; not part of the run's identity. None: not known, 0.1.0 wrote the record."""


def are_first_replicas(found: Sequence[Any]) -> bool:
    """Return whether these can be the first replicas of the tasks of a role: whole numbers, ascending from 0."""
    is_whole = all(isinstance(first, int) for first in found)
    return is_whole and list(found[:1]) == [0] and all(first < later for first, later in pairwise(found))


def write_record(record: RunRecord) -> dict[str, Any]:
    """Return the record as plain JSON values. The first version of the identity is not written: 0.1.0 did not."""
    plain = to_json(record)
    plain["identity_version"] = None if record.identity_version == FIRST_VERSION else record.identity_version
    plain["cluster"] = write_identity(record.cluster) if record.cluster is not None else None
    plain["image_digests"] = plain["image_digests"] or None
    is_first = record.tasks is None and not record.image_digests
    return {"version": 1 if is_first else RECORD_VERSION, **without_none(plain)}


def read_record(value: Any) -> RunRecord | None:
    """Return what `write_record` wrote. None: the value is None.

    Raises:
        DeployError: The record was written by a newer release, or is not a record.
    """
    if value is None:
        return None
    where = "the stack's record of the run"
    check_version(value, where, "a record", RECORD_VERSION)
    missing = sorted({"job_name", "namespace", "hash", "attempt", "launched"} - value.keys())
    if missing:
        raise DeployError(f"{where} lacks {', '.join(missing)}; it was changed by hand")
    defaults = {"app_id": value["job_name"], "digests": {}, "launched_at": ""}
    replicas = value.get("replicas") or value["launched"]
    try:
        record = from_json(RunRecord, {**defaults, **without_none(value), "replicas": replicas})
    except ValueError as error:
        raise DeployError(f"{where} cannot be read: {error}; it was changed by hand") from error
    for role, firsts in (record.tasks or {}).items():
        if not are_first_replicas(firsts):
            raise DeployError(
                f"{where} cannot be read: tasks.{role}: found {list(firsts)}, replica ids from 0 upwards are needed; "
                "it was changed by hand"
            )
    if record.identity_version > IDENTITY_VERSION:
        raise DeployError(
            f"{where} has identity_version {record.identity_version}, this release of torchx-pulumi knows up to "
            f"{IDENTITY_VERSION}; install the release that wrote it, or a newer one"
        )
    return record
