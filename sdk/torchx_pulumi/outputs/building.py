"""Build the stack outputs: the versioned object `torchx` and the flat outputs. Pure.

`declared` is what was requested and is equal from `up` to `up`. `observed` is the last observation; its `observed_at`
changes only when something else in it does, so that an `up` without a change shows none. No output is secret.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, cast

from torchx_pulumi.model.codec import to_json
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.model.status import JobState, JobStatus, ReplicaStatus, RoleStatus
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.outputs.types import (
    SCHEMA_VERSION,
    Declared,
    FlatOutputs,
    Links,
    Observed,
    ObservedReplica,
    ObservedRole,
    RequestedOutput,
    ResourceOutput,
    Source,
    TorchxOutput,
)
from torchx_pulumi.schedulers import backend_of

MAX_REPLICAS_LISTED: Final = 64
"""A role with more replicas lists the failed ones only, and at most this many; `omitted` counts the rest."""

MAX_OBSERVED_BYTES: Final = 60_000
"""Longest `observed` as JSON; where it would be longer, fewer replicas are listed."""

MAX_DETAIL: Final = 2000
"""Characters of a diagnosis' detail."""

_STATUS_FIELDS: Final = (
    *("state", "phase", "reason", "message", "diagnoses", "conditions", "roles"),
    *("attempt", "queued_at", "started_at", "finished_at"),
)
"""Fields of a status in the order of `observed`."""

MAX_REPLICA_MESSAGE: Final = 400
"""Characters of a replica's message; the diagnoses have more."""


def assemble(
    plan: JobPlan[Any],
    declared: Declared,
    observed: Observed,
    *,
    scheduler: str,
    kube_context: str | None = None,
    ui_url: str | None = None,
    log_archive: str | None = None,
    requested: RequestedOutput | None = None,
) -> TorchxOutput:
    """Put the parts of the object `torchx` together."""
    links: Links = {"log_command": log_command(plan, kube_context=kube_context), "ui_url": ui_url}
    if log_archive is not None:
        links["log_archive"] = log_archive
    outputs: TorchxOutput = {
        "schema_version": SCHEMA_VERSION,
        "app": {
            "id": f"{plan.namespace}:{plan.job_name}",
            "handle": app_handle(scheduler, plan.namespace, plan.job_name),
            "name": plan.spec.name,
            "scheduler": scheduler,
            "namespace": plan.namespace,
            "queue": getattr(plan.options, "queue", None),
        },
        "declared": declared,
        "observed": observed,
        "links": links,
    }
    if requested is not None:
        outputs["requested"] = requested
    return outputs


def flatten(outputs: TorchxOutput) -> FlatOutputs:
    """Pick the outputs for shells."""
    return {
        "app_id": outputs["app"]["id"],
        "app_handle": outputs["app"]["handle"],
        "state": outputs["observed"]["state"],
        "reason": outputs["observed"]["reason"],
        "log_command": outputs["links"]["log_command"],
    }


def app_handle(scheduler: str, namespace: str, job_name: str, *, session: str = "torchx") -> str:
    """Return the handle by which TorchX finds the job.

    >>> app_handle("volcano", "default", "train-1")
    'pulumi_volcano://torchx/default:train-1'
    """
    return f"pulumi_{scheduler}://{session}/{namespace}:{job_name}"


def log_command(plan: JobPlan[Any], *, kube_context: str | None = None) -> str:
    """Return a command that prints and follows the logs of all replicas, each line with its pod's name."""
    words = ["kubectl", *(["--context", kube_context] if kube_context else []), "--namespace", plan.namespace, "logs"]
    replicas = sum(role.replicas for role in plan.roles)
    words += [
        "--selector",
        f"{backend_of(plan.options).pod_label}={plan.job_name}",
        "--prefix",
        "--tail=-1",
        "--follow",
    ]
    return shlex.join([*words, f"--max-log-requests={max(replicas, 5)}"])


def build_declared(
    plan: JobPlan[Any],
    *,
    spec_hash: str,
    created_by: str | None = None,
    digests: Mapping[str, str] | None = None,
) -> Declared:
    """Return the part `declared`.

    Args:
        plan: The job as requested.
        spec_hash: Hash of the run.
        created_by: User who requested the job. None: not known.
        digests: Image reference of pods to its digest, for images whose digest is known and that the pods do not name.
    """
    roles = [*zip(plan.roles, plan.spec.roles, strict=True)]
    return {
        "roles": [
            {
                "name": role.name,
                "image": role.image,
                "digest": asked.image_digest or (digests or {}).get(role.image),
                "replicas": role.replicas,
                "min_replicas": role.min_replicas,
                "resource": total([(asked.resource, 1)]),
            }
            for role, asked in roles
        ],
        "resources_total": total([(asked.resource, role.replicas) for role, asked in roles]),
        "priority": plan.options.priority_class,
        "spec_hash": spec_hash,
        "created_by": created_by,
    }


def total(counted: Sequence[tuple[ResourceSpec, int]]) -> ResourceOutput:
    """Add up resources, each so many times; what is unset or negative counts as none."""
    devices: dict[str, int] = {}
    for resource, times in counted:
        for name, number in resource.devices.items():
            devices[name] = devices.get(name, 0) + number * times

    def total(field: str) -> Any:
        return sum(max(getattr(resource, field) or 0, 0) * times for resource, times in counted)

    return {"cpu": total("cpu"), "gpu": total("gpu"), "memory_mb": total("memory_mb"), "devices": devices}


def build_observed(
    status: JobStatus,
    *,
    observed_at: datetime,
    source: Source = "live",
    previous: Mapping[str, Any] | None = None,
    resource_version: str | None = None,
) -> Observed:
    """Return the part `observed`; it keeps the time of `previous` if nothing else differs."""
    shortened = [replace(one, detail=one.detail[:MAX_DETAIL]) for one in status.diagnoses]
    plain = to_json(replace(status, roles=(), diagnoses=tuple(shortened)))
    values = {name: plain[name] for name in _STATUS_FIELDS}
    observed = cast("Observed", {**values, "observed_at": format_time(observed_at), "source": source})
    if status.uid is not None:
        observed["uid"] = status.uid
    if resource_version is not None:
        observed["resource_version"] = resource_version
    listed = MAX_REPLICAS_LISTED
    observed["roles"] = [observe_role(role, listed) for role in status.roles]
    while listed and len(json.dumps(observed)) > MAX_OBSERVED_BYTES:
        listed //= 2
        observed["roles"] = [observe_role(role, listed) for role in status.roles]
    if previous and isinstance(previous.get("observed_at"), str) and same(previous, cast("dict[str, Any]", observed)):
        observed["observed_at"] = previous["observed_at"]
    return observed


def same(one: Any, other: Any) -> bool:
    """Return whether two observations are equal, apart from time, version and source, and from values that are None."""
    return bool(_without_freshness(one) == _without_freshness(other))


def _without_freshness(observed: Any, depth: int = 0) -> Any:
    """Leave out freshness at the top, and None everywhere: Pulumi's state does not keep it."""
    if isinstance(observed, Mapping):
        fresh = ("observed_at", "source", "resource_version") if depth == 0 else ()
        return {
            key: _without_freshness(value, depth + 1)
            for key, value in observed.items()
            if key not in fresh and value is not None
        }
    if isinstance(observed, (list, tuple)):
        return [_without_freshness(value, depth + 1) for value in observed]
    return observed


def listed_replicas(role: RoleStatus, most: int) -> tuple[ReplicaStatus, ...]:
    """Return the replicas of a role; of one that has more than `most`, the failed ones only, and at most so many."""
    if len(role.replicas) <= most:
        return role.replicas
    return tuple(replica for replica in role.replicas if replica.state is JobState.FAILED)[:most]


def observe_role(role: RoleStatus, most: int = MAX_REPLICAS_LISTED) -> ObservedRole:
    """Build one role as seen; of one with more replicas than are listed, the failed ones only."""
    listed = listed_replicas(role, most)
    return {
        "name": role.name,
        "replicas": [_observe_replica(replica) for replica in listed],
        "omitted": len(role.replicas) - len(listed),
        "counts": {state.value: count for state, count in role.counts.items()},
    }


def _observe_replica(replica: ReplicaStatus) -> ObservedReplica:
    plain = to_json(replace(replica, message=replica.message[:MAX_REPLICA_MESSAGE]))
    absent = [name for name in ("started_at", "finished_at") if plain[name] is None]
    return cast("ObservedReplica", {name: value for name, value in plain.items() if name not in absent})
