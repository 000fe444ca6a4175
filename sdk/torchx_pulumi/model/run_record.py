"""The record of a run, which the stack keeps after the objects of the run were deleted.

Data and its codec, without secrets: digests of fields, never their values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torchx_pulumi.model.cluster_identity import ClusterIdentity, write_identity
from torchx_pulumi.model.codec import check_version, from_json, to_json, without_none
from torchx_pulumi.model.errors import DeployError

RECORD_VERSION = 2
"""Version of the written form of a run in the layout `role`, or with digests of images; of others it is 1. A reader
refuses a newer one."""

IDENTITY_VERSION = 2
"""Version of the identity of new runs: how digests, hash and job name are computed. A change of it is a new version."""

IDENTITY_VERSIONS = (IDENTITY_VERSION,)
"""Versions that recorded runs may have. The algorithm of each is frozen."""


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
    identity_version: int = IDENTITY_VERSION
    """Version of the identity that hash, digests and job name are of."""
    tasks: Mapping[str, Sequence[int]] | None = None
    """Role name to the replica id of the first replica of each of its tasks (`planning.layout.RoleTasks`); not part of
    the run's identity. None: layout `replica`, in which each replica is a task."""
    image_digests: Mapping[str, str] | None = None
    """Role name to the digest that the run's pods name after the tag of their image; not part of the run's identity.
    None, or a role that is not in it: they name the tag alone."""
    cluster: ClusterIdentity | None = None
    """The cluster that it was launched in; not part of the run's identity. None: it could not be read then."""
    quotes_secrets: bool | None = None
    """True: messages of the cluster may quote a secret value, such as a command that is not found. None: they do not.
    Not part of the run's identity."""
    provider: str | None = None
    """URN of the Kubernetes provider that the program chose for its objects; not part of the run's identity. None: that
    of the component, or the default one."""


def json_digest(value: object) -> str:
    """Return 12 hex digits of a JSON value in its canonical form (`identity_fields.canonical`)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def are_first_replicas(found: Sequence[Any]) -> bool:
    """Return whether these can be the first replicas of the tasks of a role: whole numbers, ascending from 0."""
    is_whole = all(isinstance(first, int) for first in found)
    return is_whole and list(found[:1]) == [0] and all(first < later for first, later in pairwise(found))


def write_record(record: RunRecord) -> dict[str, Any]:
    """Return the record as plain JSON values."""
    plain = to_json(record)
    plain["cluster"] = write_identity(record.cluster) if record.cluster is not None else None
    plain["image_digests"] = plain["image_digests"] or None
    is_first = record.tasks is None and not record.image_digests
    return {"version": 1 if is_first else RECORD_VERSION, **without_none(plain)}


def read_record(value: Any) -> RunRecord | None:
    """Read what `write_record` wrote; None stays None.

    Raises:
        DeployError: This release does not know its version or that of its identity, or it is not a record.
    """
    if value is None:
        return None
    where = "the stack's record of the run"
    check_version(value, where, "a record", RECORD_VERSION)
    missing = sorted({"job_name", "namespace", "hash", "attempt", "launched"} - value.keys())
    if missing:
        raise DeployError(f"{where} lacks {', '.join(missing)}; it was changed by hand")
    version = value.get("identity_version")
    if version not in IDENTITY_VERSIONS:
        known = ", ".join(map(str, IDENTITY_VERSIONS))
        raise DeployError(
            f"{where} has {'no identity_version' if version is None else f'identity_version {version}'}, this release "
            f"of torchx-pulumi knows {known}; install the release that wrote it"
        )
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
    return record
