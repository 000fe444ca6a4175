"""What a component shows of a run: its outputs, and those of its roles. Nothing is registered here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pulumi
from torchx_pulumi.model.cluster_identity import write_identity
from torchx_pulumi.model.job_plan import JobPlan, ReplicaPlan, RolePlan
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.outputs.building import app_handle, build_declared, build_observed
from torchx_pulumi.outputs.newer import is_newer
from torchx_pulumi.outputs.types import Source
from torchx_pulumi.schedulers import ObservedObjects, asked, variant_of

from torchx_pulumi_components.kubernetes_objects import ROLE_TYPE
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.marks import Marks
from torchx_pulumi_components.resources import Gang
from torchx_pulumi_components.stack_state import as_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What is shown of a run."""

    outputs: dict[str, Any]
    """Outputs of the component."""
    roles: Mapping[str, dict[str, Any]]
    """Role name in object names to the outputs of the role."""


def view_job(
    launch: Launch,
    gang: Gang | None,
    marks: Marks,
    stored: Mapping[str, Any],
    now: datetime,
    *,
    created_by: str | None = None,
) -> JobView:
    """Build what is shown of a run.

    Args:
        launch: What was decided.
        gang: What was registered. None: the run is over and gone.
        marks: Unknown and secret values in the plan.
        stored: The component's outputs in the state, without marks of secrets.
        now: When the cluster was looked at.
        created_by: Who launched the app with `torchx run`. None: a program launched it.
    """
    plan = launch.plan
    nameless = launch.launching and bool(launch.undecided)
    job_name: Any = plan.job_name if not nameless or gang is None else gang.head.name
    uid: Any = launch.run.uid
    if uid is None and gang is not None:
        uid = gang.head.uid.apply(lambda known: known or "")
    previous = stored.get("observed")
    roles_shown = (stored.get("declared") or {}).get("roles") or ()
    digests = {role["image"]: role["digest"] for role in roles_shown if role.get("digest")}
    hidden = marks.leaves.hidden
    seen, look = hidden(_seen(launch, previous, now)), _first_look(plan, now)
    observed = seen
    if seen is None and gang is not None:
        observed = pulumi.Output.unsecret(gang.head.status.apply(lambda status: hidden(look(status))))
    outputs: dict[str, Any] = {
        **marks.of(lambda plan: _planned(plan, launch, created_by, digests)),
        "uid": uid or "",
        "pod_groups": _pod_groups(plan, plan.roles, job_name, uid),
        "observed": observed,
    }
    if launch.run.cluster is None and launch.cluster is not None:
        # Kept where a change is no change of the deployment: the record was written by 0.1.0, and stays as it is.
        outputs["cluster"] = write_identity(launch.cluster)
    roles = {
        role.dns_name: _view_role(launch, role, _pod_groups(plan, [role], job_name, uid), marks) for role in plan.roles
    }
    return JobView(outputs=outputs, roles=roles)


def _planned(plan: JobPlan[Any], launch: Launch, created_by: str | None, digests: Mapping[str, str]) -> dict[str, Any]:
    """Build the outputs that a plan is enough for."""
    variant = variant_of(plan.options)
    return {
        "app_id": f"{plan.namespace}:{plan.job_name}",
        "app_handle": app_handle(plan.options.scheduler, plan.namespace, plan.job_name),
        "job_name": plan.job_name,
        "namespace": plan.namespace,
        "service": variant.service(plan),
        "pod_names": [_pod(plan, replica) for role in plan.roles for replica in asked(role)],
        "rank0_host": variant.rank0_host(plan),
        "images": {role.name: role.image for role in plan.roles},
        "declared": build_declared(plan, spec_hash=launch.run.hash, created_by=created_by, digests=digests),
    }


def view_as_launched(
    view: JobView, launch: Launch, stored: Mapping[str, Any], children: Mapping[tuple[str, str], Mapping[str, Any]]
) -> JobView:
    """Show a run that is kept as it was launched: as the state has it, but for what was seen of it now.

    Args:
        view: What is shown by its plan.
        launch: What was decided.
        stored: The component's outputs in the state.
        children: Type and end of the name of each child in the state to its outputs.
    """
    fresh = ("observed", "uid")
    outputs = {name: as_inputs(value) for name, value in stored.items() if name not in fresh}
    roles = {role.dns_name: children.get((ROLE_TYPE, f"-{role.dns_name}")) for role in launch.plan.roles}
    kept = {name: as_inputs(value) for name, value in roles.items() if value}
    return replace(view, outputs={**view.outputs, **outputs}, roles={**view.roles, **kept})


def _seen(launch: Launch, previous: Mapping[str, Any] | None, now: datetime) -> Any:
    if launch.status is not None:
        source: Source = "live" if launch.seen.at is not None else "record"
        observed = build_observed(launch.status, observed_at=now, source=source, previous=previous)
        if launch.end is None or launch.status.reason is not Reason.POD_GONE or is_newer(observed, launch.end):
            return observed
        return {**launch.end, "source": "record"}
    if launch.launching:
        return None
    if launch.end is not None:
        return {**launch.end, "source": "record"}
    message = "its end was not seen: the object was deleted before anybody looked"
    status = JobStatus(state=JobState.UNKNOWN, reason=Reason.NOT_FOUND, message=message)
    return build_observed(status, observed_at=now, source="record", previous=previous)


def _first_look(plan: JobPlan[Any], now: datetime) -> Any:
    """Read the status that the object was created with: usually none."""

    def read(status: Any) -> Any:
        variant = variant_of(plan.options)
        metadata = {"name": plan.job_name, "namespace": plan.namespace}
        head = {"apiVersion": variant.job_object.api_version, "metadata": metadata, "status": status or {}}
        return build_observed(variant.read_status(ObservedObjects(job_object=head, pods=())), observed_at=now)

    return read


def _view_role(launch: Launch, role: RolePlan, groups: Any, marks: Marks) -> dict[str, Any]:
    """Build the outputs of a role: what it asks for, and each of its objects."""
    return {
        **marks.of(lambda plan: _planned_role(plan, role.index, launch)),
        "pod_groups": pulumi.Output.from_input(groups).apply(
            lambda found: [{"kind": "PodGroup", "name": name} for name in found]
        ),
    }


def _planned_role(plan: JobPlan[Any], index: int, launch: Launch) -> dict[str, Any]:
    role = plan.roles[index]
    pods = {item["metadata"]["name"]: item for item in launch.seen.pods or ()}
    resources = {"requests": dict(role.requests), "limits": dict(role.limits)}
    objects: list[Any] = []
    for replica in asked(role):
        name = _pod(plan, replica)
        uid = ((pods.get(name) or {}).get("metadata") or {}).get("uid")
        known = {"uid": uid} if uid else {}
        objects.append({"kind": "Pod", "name": name, **known, "image": role.image, "resources": resources})
    service = variant_of(plan.options).service(plan)
    shared = [{"kind": "Service", "name": service}] if service else []
    return {
        "name": role.name,
        "image": role.image,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "resources": resources,
        "objects": [*objects, *shared],
    }


def _pod(plan: JobPlan[Any], replica: ReplicaPlan) -> str:
    return variant_of(plan.options).pod_name(plan, replica)


def _pod_groups(plan: JobPlan[Any], roles: Sequence[RolePlan], job_name: Any, uid: Any) -> Any:
    """Name the PodGroups of some roles as far as that is known."""
    variant = variant_of(plan.options)
    waits_for = [job_name, uid] if variant.pod_groups_by_uid else [job_name]
    if not any(isinstance(item, pulumi.Output) for item in waits_for):
        return variant.pod_groups(plan, roles, str(uid or ""))
    return pulumi.Output.all(*waits_for).apply(lambda known: _groups_of(plan, roles, known))


def _groups_of(plan: JobPlan[Any], roles: Sequence[RolePlan], known: Sequence[Any]) -> list[str]:
    return variant_of(plan.options).pod_groups(plan, roles, str(known[-1] or ""))
