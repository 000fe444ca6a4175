"""Build the stack outputs: the versioned object `torchx` and the flat outputs. Pure.

`declared` is what was requested and is equal from `up` to `up`. `observed` is the last observation; its `observed_at`
changes only when something else in it does, so that an `up` without a change shows none. No output is secret.
"""

from __future__ import annotations

import json
import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, cast

from torchx_pulumi.model.codec import to_json
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.job_spec import ResourceSpec
from torchx_pulumi.model.status import MAX_DIAGNOSES, MAX_OBJECTS, JobState, JobStatus, ReplicaStatus, RoleStatus
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi.outputs.types import (
    SCHEMA_VERSION,
    Declared,
    DeclaredResource,
    FlatOutputs,
    Links,
    Observed,
    ObservedReplica,
    ObservedRole,
    Source,
    TorchxOutput,
    UserRequest,
)
from torchx_pulumi.schedulers import backend_of

MAX_REPLICAS_LISTED: Final = 64
"""A role with more replicas lists the failed ones only, and at most this many; `omitted` counts the rest."""

MAX_OBSERVED_BYTES: Final = 60_000
"""Longest `observed` as JSON; see `build_observed`."""

MAX_TEXT: Final = 2000
"""Characters of a message, of a phase, and of each text of a diagnosis."""

RESERVED_BYTES: Final = 100
"""Bytes that are left for the number of roles that are not listed, and for another form of `observed_at`."""

_STATUS_FIELDS: Final = (
    *("state", "phase", "reason", "message", "diagnoses", "conditions", "roles"),
    *("attempt", "queued_at", "started_at", "finished_at"),
)
"""Fields of a status in the order of `observed`."""

MAX_REPLICA_MESSAGE: Final = 400
"""Characters of a replica's message; the diagnoses have more."""


def assemble(
    plan: JobPlan,
    declared: Declared,
    observed: Observed,
    *,
    scheduler: str,
    queue: str | None,
    kube_context: str | None = None,
    ui_url: str | None = None,
    log_archive: str | None = None,
    requested: UserRequest | None = None,
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
            "queue": queue,
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


def app_handle(scheduler: str, namespace: str, job_name: str) -> str:
    """Return the handle by which TorchX finds the job.

    >>> app_handle("volcano", "default", "train-1")
    'pulumi_volcano://torchx/default:train-1'
    """
    return f"pulumi_{scheduler}://torchx/{namespace}:{job_name}"


def log_command(plan: JobPlan, *, kube_context: str | None = None) -> str:
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
    plan: JobPlan,
    *,
    spec_hash: str,
    created_by: str | None = None,
    digests: Mapping[str, str] | None = None,
) -> Declared:
    """Return the part `declared`.

    Args:
        plan: The job as requested.
        spec_hash: Hash of the run.
        created_by: User who requested the job, if known.
        digests: Image reference of pods to its digest, for images whose digest is known and that the pods do not name.
    """
    roles = [*zip(plan.roles, plan.spec.roles, strict=True)]
    declared: Declared = {
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
    if plan.options.success_roles is not None:
        declared["success_roles"] = [*plan.options.success_roles]
    if plan.options.start_after is not None:
        declared["start_after"] = {role: [*others] for role, others in plan.options.start_after.items()}
    return declared


def total(counted: Sequence[tuple[ResourceSpec, int]]) -> DeclaredResource:
    """Add up resources, each a number of times; an unset or negative amount counts as 0."""
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
    """Return the part `observed`; it keeps the time of `previous` if nothing else differs.

    As JSON it has at most `MAX_OBSERVED_BYTES`. In this order, as far as needed: texts are cut until everything but the
    roles takes at most half of that; fewer replicas are listed, then none; the last roles are left out, and
    `roles_omitted` counts them.
    """
    most = MAX_TEXT
    observed = _without_roles(status, most)
    while most and _size(observed) > MAX_OBSERVED_BYTES // 2:
        most //= 2
        observed = _without_roles(status, most)
    observed |= {"observed_at": format_time(observed_at), "source": source}
    if resource_version is not None:
        observed["resource_version"] = resource_version
    _add_roles(observed, status.roles, MAX_OBSERVED_BYTES - RESERVED_BYTES - _size(observed))
    if previous and isinstance(previous.get("observed_at"), str) and same(previous, cast("dict[str, Any]", observed)):
        observed["observed_at"] = previous["observed_at"]
    return observed


def _without_roles(status: JobStatus, most: int) -> Observed:
    """Return a status with texts of at most so many characters, without its roles."""
    short = replace(
        status,
        message=status.message[:most],
        phase=status.phase and status.phase[:most],
        conditions=tuple(replace(one, message=one.message[:most]) for one in status.conditions),
        diagnoses=tuple(
            replace(
                one,
                summary=one.summary[:most],
                detail=one.detail[:most],
                resolution=one.resolution[:most],
                objects=one.objects[:MAX_OBJECTS],
            )
            for one in status.diagnoses[:MAX_DIAGNOSES]
        ),
        roles=(),
    )
    plain = to_json(short)
    uid = {} if status.uid is None else {"uid": status.uid}
    return cast("Observed", {**{name: plain[name] for name in _STATUS_FIELDS}, **uid})


def _add_roles(observed: Observed, roles: Sequence[RoleStatus], room: int) -> None:
    """Add the roles that take at most so many bytes, with as many replicas as that allows."""
    listed = MAX_REPLICAS_LISTED
    shown = [observe_role(role, listed) for role in roles]
    while listed and _size(shown) > room:
        listed //= 2
        shown = [observe_role(role, listed) for role in roles]
    # Each takes a separator, too.
    ends = [*accumulate(_size(role) + 2 for role in shown)]
    observed["roles"] = shown[: bisect_right(ends, room)]
    if len(observed["roles"]) < len(roles):
        observed["roles_omitted"] = len(roles) - len(observed["roles"])


def _size(value: object) -> int:
    return len(json.dumps(value))


def same(one: object, other: object) -> bool:
    """Return whether two observations are equal, apart from time, version and source, and from values that are None."""
    return bool(_without_freshness(one) == _without_freshness(other))


def _without_freshness(observed: object, depth: int = 0) -> Any:
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


def observe_role(role: RoleStatus, most: int = MAX_REPLICAS_LISTED) -> ObservedRole:
    """Build one observed role; of more than `most` replicas, only failed ones are listed."""
    listed: Sequence[ReplicaStatus] = role.replicas
    if len(listed) > most:
        listed = [replica for replica in role.replicas if replica.state is JobState.FAILED][:most]
    replicas: list[ObservedReplica] = []
    for replica in listed:
        plain = to_json(replace(replica, message=replica.message[:MAX_REPLICA_MESSAGE]))
        for name in ("started_at", "finished_at"):
            if plain[name] is None:
                del plain[name]
        replicas.append(cast("ObservedReplica", plain))
    return {
        "name": role.name,
        "replicas": replicas,
        "omitted": len(role.replicas) - len(listed),
        "counts": {state.value: count for state, count in role.counts.items()},
    }
