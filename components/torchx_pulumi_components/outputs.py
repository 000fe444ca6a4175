"""Outputs of a component and of its roles. Registers nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulumi
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import look_at
from torchx_pulumi.apps.ownership import run_of_object
from torchx_pulumi.model import labels
from torchx_pulumi.model.cluster_identity import write_identity
from torchx_pulumi.model.job_plan import JobPlan, RolePlan
from torchx_pulumi.model.requested import write_requested
from torchx_pulumi.runs.registration import planned_role, pod_group_objects
from torchx_pulumi.schedulers import variant_of
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from torchx_pulumi_components.input_resolution import Leaves
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.resources import KubernetesObject
from torchx_pulumi_components.stack_state import StackState, as_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObject:
    """What the outputs of a component take from the registered job object."""

    name: pulumi.Input[str]
    uid: pulumi.Input[str | None]
    status: pulumi.Input[Mapping[str, Any] | None]

    @classmethod
    async def read(cls, resource: KubernetesObject) -> JobObject:
        """Wait for the object. In `up` all is known; Outputs of a preview would make Outputs of all that has them."""
        if pulumi.runtime.is_dry_run() or not await resource.metadata.is_known():
            return cls(name=resource.name, uid=resource.uid, status=pulumi.Output.unsecret(resource.status))
        metadata = await resource.metadata.future() or {}
        return cls(name=metadata["name"], uid=metadata.get("uid"), status=await resource.status.future())


def run_outputs(
    launch: Launch, job_object: JobObject | None, leaves: Leaves, state: StackState, now: datetime
) -> dict[str, Any]:
    """Return the outputs of a component, those with stand-ins for unknown values included.

    Args:
        launch: The decision.
        job_object: The registered job object. None: the run is over and its object is gone.
        leaves: The arguments, for messages about the run that quote them.
        state: The component in the stack's state.
        now: When the cluster was read.
    """
    plan = launch.plan
    job_name, uid = _name_and_uid(launch, job_object)
    outputs: dict[str, Any] = {
        **launch.registration.outputs(),
        "uid": uid or "",
        "pod_groups": _pod_groups(plan, plan.roles, job_name, uid),
        "observed": _observed(launch, job_object, leaves, now),
    }
    if launch.answer.requested is not None:
        outputs["requested"] = leaves.hidden(write_requested(launch.answer.requested))
    if launch.run.cluster is None and launch.cluster is not None:
        # An output may change without a change of the deployment; the record stays as the launch wrote it.
        outputs["cluster"] = write_identity(launch.cluster)
    if launch.decision.as_launched:
        kept = stored_outputs(state).items()
        return outputs | {name: value for name, value in kept if name not in ("observed", "requested", "uid")}
    return outputs


def stored_outputs(state: StackState) -> dict[str, Any]:
    """Return the outputs that a component has in the state, its record and its roles among them."""
    return {name: as_inputs(value) for name, value in state.outputs.items()}


def role_outputs(launch: Launch, job_object: JobObject | None) -> dict[str, dict[str, Any]]:
    """Return role name in object names -> outputs of the role; arguments as `run_outputs`."""
    plan = launch.plan
    job_name, uid = _name_and_uid(launch, job_object)
    uids = {pod["metadata"]["name"]: pod["metadata"].get("uid") for pod in launch.observed.pods or ()}
    found = {}
    for role in plan.roles:
        groups = _applied(_pod_groups(plan, [role], job_name, uid), pod_group_objects)
        found[role.dns_name] = {**planned_role(plan, role, uids), "pod_groups": groups}
    return found


def _name_and_uid(launch: Launch, job_object: JobObject | None) -> tuple[pulumi.Input[str], pulumi.Input[str] | None]:
    """Return name and uid of the job object: plain if they are known, else Outputs."""
    name: pulumi.Input[str] = launch.plan.job_name
    uid: pulumi.Input[str] | None = launch.run.uid
    if job_object is not None:
        if launch.launching and launch.undecided:
            name = job_object.name
        if uid is None:
            uid = _applied(job_object.uid, lambda known: known or "")
    return name, uid


def _observed(launch: Launch, job_object: JobObject | None, leaves: Leaves, now: datetime) -> Any:
    hidden = leaves.hidden
    if launch.look is not None:
        return hidden({**(launch.judged or {}), "source": "record" if launch.observed.at is None else "live"})
    if job_object is None:
        return None
    return _applied(job_object.status, lambda status: hidden(_created_status(launch, status, now)))


def _created_status(launch: Launch, status: Mapping[str, Any] | None, now: datetime) -> Mapping[str, Any] | None:
    """Return the observation of an object right after its creation, when it usually has no status."""
    plan, variant = launch.plan, variant_of(launch.plan.options)
    own = {labels.LAUNCH: launch.owners[0]}
    metadata = {"name": plan.job_name, "namespace": plan.namespace, "labels": own}
    created = {"apiVersion": variant.job_object.api_version, "metadata": metadata, "status": status or {}}
    objects = ObservedObjects(job_object=created, pods=())
    look = look_at(run_of_object(created, variant), objects, now)
    return judge(look.asking_if_changing(lambda: True), None, None)


def _pod_groups(
    plan: JobPlan[Any], roles: Sequence[RolePlan], job_name: pulumi.Input[str], uid: pulumi.Input[str] | None
) -> pulumi.Input[Sequence[str]]:
    """Return the names of the PodGroups of some roles; an Output if they depend on one."""
    variant = variant_of(plan.options)
    used_uid = uid if variant.pod_groups_by_uid else ""
    if not isinstance(job_name, pulumi.Output) and not isinstance(used_uid, pulumi.Output):
        return variant.pod_groups(plan, roles, str(used_uid or ""))
    return pulumi.Output.all(job_name, used_uid).apply(
        lambda known: variant.pod_groups(plan, roles, str(known[1] or ""))
    )


def _applied(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return the result of a function of a value, in an Output if the value is one."""
    return value.apply(function) if isinstance(value, pulumi.Output) else function(value)
