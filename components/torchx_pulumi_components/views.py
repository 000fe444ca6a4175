"""What a component shows of a run: its outputs, and those of its roles. Nothing is registered here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulumi
from torchx_pulumi import names
from torchx_pulumi.options import Gang as GangMode
from torchx_pulumi.outputs import Source, app_handle, build_declared, build_observed
from torchx_pulumi.plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.status.model import JobState, JobStatus, Reason
from torchx_pulumi.status.volcano import read_gang_pods, read_volcano
from torchx_pulumi_components.gangs import Gang
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.leaves import Leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What is shown of a run."""

    outputs: dict[str, Any]
    """Outputs of the component."""
    roles: Mapping[str, dict[str, Any]]
    """Role name in object names to the outputs of the role."""
    seen: Any
    """`observed` as plain data, where the run was looked at. None: it was not."""


def view_job(
    launch: Launch, gang: Gang | None, leaves: Leaves, previous: Mapping[str, Any] | None, now: datetime
) -> JobView:
    """Build what is shown of a run.

    Args:
        launch: What was decided.
        gang: What was registered. None: the run is over and gone.
        leaves: Unknown and secret values in the plan.
        previous: The component's last `observed`.
        now: When the cluster was looked at.
    """
    plan = launch.plan
    nameless = launch.launching and bool(launch.undecided)
    job_name: Any = plan.job_name if not nameless or gang is None else gang.head.metadata["name"]
    uid: Any = launch.run.uid
    if uid is None and gang is not None:
        uid = gang.head.metadata.apply(lambda metadata: (metadata or {}).get("uid") or "")
    seen = _seen(launch, previous, now)
    observed = seen if seen is not None or gang is None else gang.head.status.apply(_first_look(plan, now))
    is_pods = plan.options.gang is GangMode.PODS
    groups = [job_name] if is_pods else pulumi.Output.all(job_name, uid).apply(_pod_groups)
    outputs: dict[str, Any] = {
        "app_id": f"{plan.namespace}:{plan.job_name}",
        "app_handle": app_handle("volcano", plan.namespace, plan.job_name),
        "job_name": plan.job_name,
        "namespace": plan.namespace,
        "uid": uid or "",
        "service": plan.job_name if is_pods or "svc" in plan.options.job_plugins else "",
        "pod_groups": groups,
        "pod_names": [_pod(plan, replica) for role in plan.roles for replica in _asked(role)],
        "rank0_host": _rank0_host(plan),
        "images": {role.name: role.image for role in plan.roles},
        "declared": build_declared(plan, spec_hash=launch.run.hash),
        "observed": observed,
    }
    if nameless:
        for output in ("app_id", "app_handle", "job_name", "service", "pod_names", "rank0_host"):
            outputs[output] = _unknown_like(gang, outputs[output])
    roles = {role.dns_name: _view_role(launch, role, groups, leaves) for role in plan.roles}
    return JobView(outputs=leaves.restore(outputs), roles=roles, seen=seen)


def _seen(launch: Launch, previous: Mapping[str, Any] | None, now: datetime) -> Any:
    if launch.status is not None:
        source: Source = "live" if launch.seen.pods is not None else "record"
        return build_observed(launch.status, observed_at=now, source=source, previous=previous)
    if launch.launching:
        return None
    if launch.run.observed is not None:
        return {**launch.run.observed, "source": "record"}
    message = "its end was not seen: the object was deleted before anybody looked"
    status = JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message=message)
    return build_observed(status, observed_at=now, source="record", previous=previous)


def _first_look(plan: JobPlan, now: datetime) -> Any:
    """Read the status that the object was created with: usually none."""

    def read(status: Any) -> Any:
        head = {"metadata": {"name": plan.job_name, "namespace": plan.namespace}, "status": status or {}}
        seen = read_gang_pods(head, ()) if plan.options.gang is GangMode.PODS else read_volcano(head)
        return build_observed(seen, observed_at=now)

    return read


def _view_role(launch: Launch, role: RolePlan, groups: Any, leaves: Leaves) -> dict[str, Any]:
    """Build the outputs of a role: what it asks for, and each of its objects."""
    plan = launch.plan
    pods = {item["metadata"]["name"]: item for item in launch.seen.pods or ()}
    resources = {"requests": dict(role.requests), "limits": dict(role.limits)}
    objects: list[Any] = []
    for replica in _asked(role):
        name = _pod(plan, replica)
        uid = ((pods.get(name) or {}).get("metadata") or {}).get("uid")
        known = {"uid": uid} if uid else {}
        objects.append({"kind": "Pod", "name": name, **known, "image": role.image, "resources": resources})
    shared = [] if not _has_service(plan) else [{"kind": "Service", "name": plan.job_name}]
    value = {
        "name": role.name,
        "image": role.image,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "resources": resources,
        "objects": [*objects, *shared],
    }
    return {
        **leaves.restore(value),
        "pod_groups": pulumi.Output.from_input(groups).apply(
            lambda found: [{"kind": "PodGroup", "name": name} for name in found]
        ),
    }


def _asked(role: RolePlan) -> list[ReplicaPlan]:
    return [replica for replica in role.replica_plans if not replica.surplus]


def _pod(plan: JobPlan, replica: ReplicaPlan) -> str:
    return names.pod_name(plan.job_name, replica.name)


def _has_service(plan: JobPlan) -> bool:
    return plan.options.gang is GangMode.PODS or "svc" in plan.options.job_plugins


def _rank0_host(plan: JobPlan) -> str:
    pod = _pod(plan, plan.roles[0].replica_plans[0])
    return f"{pod}.{plan.job_name}" if _has_service(plan) else pod


def _pod_groups(job: list[Any]) -> list[str]:
    name, uid = job
    return [f"{name}-{uid}"] if uid else []


def _unknown_like(gang: Gang | None, value: Any) -> Any:
    return value if gang is None else gang.head.metadata.apply(lambda _: value)
