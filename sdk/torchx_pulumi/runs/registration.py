"""What is registered for a run, computed from its plan: names of resources and outputs. Pure.

`plan_registration` has all of it for an app that `torchx run` launches. Components use the parts, because values of
their runs may be secret or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage, write_entry
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.job_plan import JobPlan, RolePlan
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import UID, RegistrationPlan
from torchx_pulumi.model.run_record import IDENTITY_VERSION, RunRecord, write_record
from torchx_pulumi.outputs.building import (
    MAX_REPLICAS_LISTED,
    app_handle,
    assemble,
    build_declared,
    build_observed,
    flatten,
)
from torchx_pulumi.planning.layout import RoleTasks
from torchx_pulumi.runs.driver import LaunchRequest
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import ObservedObjects, replicas_of, variant_of
from torchx_pulumi.schedulers.manifest_objects import objects_of


def pod_names(plan: JobPlan[Any], role: RolePlan) -> list[str]:
    """Return the names of a role's pods in rank order."""
    variant = variant_of(plan.options)
    return [variant.pod_name(plan, task, position) for task, position in replicas_of(role)]


def recorded_tasks(plan: JobPlan[Any]) -> RoleTasks | None:
    """Return the tasks of a plan for its record. None: layout `replica`."""
    if all(task.count == 1 for role in plan.roles for task in role.tasks):
        return None
    return {role.name: [task.index for task in role.tasks] for role in plan.roles}


def recorded_digests(spec: JobSpec) -> Mapping[str, str] | None:
    """Return the digests that pods name after the tags of their images, for the record. None: they name none."""
    return {role.name: role.image_digest for role in spec.roles if role.image_digest is not None} or None


def resource_names(name: str, plan: JobPlan[Any], objects: Sequence[Manifest]) -> list[str]:
    """Return the names of the resources of a run's objects: the component's own, then by kind, a pod by its task.

    Args:
        name: Name of the component.
        plan: The plan.
        objects: The run's objects, the job object first.
    """
    variant = variant_of(plan.options)
    pods = (item for role in plan.roles for item in replicas_of(role)) if variant.makes_pods else ()
    tasks = {variant.pod_name(plan, task, position): task.name for task, position in pods}
    found = [name]
    for manifest in objects[1:]:
        object_name, kind = str(manifest["metadata"]["name"]), str(manifest["kind"])
        # No name of an object has a dot, so that jobs `a` and `a-b` of a program have different names.
        found.append(f"{name}.{tasks.get(object_name, object_name) if kind == 'Pod' else kind.lower()}")
    return found


def planned_outputs(plan: JobPlan[Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a component that depend on the plan alone.

    Args:
        plan: The plan.
        declared: The output `declared`, see `outputs.building.build_declared`.
    """
    variant = variant_of(plan.options)
    return {
        "app_id": f"{plan.namespace}:{plan.job_name}",
        "app_handle": app_handle(plan.options.scheduler, plan.namespace, plan.job_name),
        "job_name": plan.job_name,
        "namespace": plan.namespace,
        "service": variant.service(plan),
        "pod_names": [pod for role in plan.roles for pod in pod_names(plan, role)],
        "rank0_host": variant.rank0_host(plan),
        "images": {role.name: role.image for role in plan.roles},
        "declared": declared,
    }


def planned_role(plan: JobPlan[Any], role: RolePlan, uids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the outputs of a role that depend on the plan alone: its requests, its pods and its Service.

    The pods of a role of more than `MAX_REPLICAS_LISTED` replicas are not listed; `omitted` is their number. Otherwise
    there is no `omitted`.

    Args:
        plan: The plan.
        role: A role of it.
        uids: Pod name to uid, for pods that were observed.
    """
    resources = {"requests": dict(role.requests), "limits": dict(role.limits)}
    names = pod_names(plan, role)
    is_listed = len(names) <= MAX_REPLICAS_LISTED
    pods = [
        {
            "kind": "Pod",
            "name": pod,
            **({"uid": uid} if (uid := (uids or {}).get(pod)) else {}),
            "image": role.image,
            "resources": resources,
        }
        for pod in (names if is_listed else ())
    ]
    service = variant_of(plan.options).service(plan)
    return {
        "name": role.name,
        "image": role.image,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "resources": resources,
        "objects": [*pods, *([{"kind": "Service", "name": service}] if service else [])],
        **({} if is_listed else {"omitted": len(names)}),
    }


def pod_group_objects(names: Sequence[str]) -> list[dict[str, str]]:
    """Return the output `pod_groups` of a role."""
    return [{"kind": "PodGroup", "name": name} for name in names]


def plan_registration(request: LaunchRequest, now: datetime | None = None) -> RegistrationPlan:
    """Return what is registered for an app that `torchx run` launches.

    Args:
        request: The app.
        now: When the launch was decided. None: now.

    Raises:
        InvalidJobError: The manifest has an object of a kind that no scheduler backend names.
        DeployError: The first object is not of the kind that the plan is for.
    """
    entry, plan, at = request.entry, request.plan, now or datetime.now(timezone.utc)
    variant = variant_of(plan.options)
    # Only labels and annotations change below; a copy of all tasks would take longer than the rest of the plan.
    objects = [{**item, "metadata": dict(item["metadata"])} for _, item in objects_of(request.manifest)]
    job_object, *companions = objects
    found, kind = (job_object.get("apiVersion"), job_object.get("kind")), variant.job_object
    if found != (kind.api_version, kind.kind):
        raise DeployError(
            f"the request's resource is a {found[1]} of {found[0]}, must be a {kind.kind} of {kind.api_version}; "
            "change what it contains, not what it is"
        )
    record = _record(request, at)
    job_object["metadata"]["labels"] = {**(job_object["metadata"].get("labels") or {}), labels.LAUNCH: entry.launch}
    _annotate(job_object, labels.RUN, record.hash)
    for companion in companions:
        _annotate(companion, labels.LAUNCH, entry.launch)
        _annotate(companion, labels.RUN, record.hash)
    new = {key: value for key, value in job_object.items() if key != "status"}
    observed = build_observed(variant.read_status(ObservedObjects(job_object=new, pods=())), observed_at=at)
    declared = build_declared(plan, spec_hash=record.hash, created_by=entry.user, digests=request.digests)
    scheduler = plan.options.scheduler
    whole = assemble(
        plan,
        declared,
        observed,
        scheduler=scheduler,
        kube_context=entry.kube_context,
        ui_url=entry.ui_url,
        log_archive=entry.log_archive,
    )
    return RegistrationPlan(
        scheduler=scheduler,
        name=entry.name,
        objects=objects,
        names=resource_names(entry.name, plan, objects),
        intent=write_record(record),
        record=write_record(record),
        entry=write_entry(replace(entry, stage=Stage.LAUNCHED, owner=None, uid=None, run=record.hash)),
        outputs={
            **planned_outputs(plan, declared),
            "uid": UID,
            "pod_groups": variant.pod_groups(plan, plan.roles, UID),
            "observed": observed,
        },
        roles={
            role.dns_name: {
                **planned_role(plan, role),
                "pod_groups": pod_group_objects(variant.pod_groups(plan, [role], UID)),
            }
            for role in plan.roles
        },
        exports={"torchx": whole, **flatten(whole)},
        kubeconfig=entry.kubeconfig,
        kube_context=entry.kube_context,
    )


def _record(request: LaunchRequest, now: datetime) -> RunRecord:
    plan = request.plan
    replicas = {role.name: role.num_replicas for role in plan.spec.roles}
    digests = field_digests(plan.spec, plan.options)
    return RunRecord(
        app_id=plan.job_name,
        job_name=plan.job_name,
        namespace=plan.namespace,
        # The entry's hash is on the object already, or will be; the record must have the same.
        hash=request.entry.run or run_hash(digests, replicas, plan.spec, plan.options, version=IDENTITY_VERSION),
        digests=digests,
        launched=replicas,
        replicas=replicas,
        attempt=1,
        launched_at=now.isoformat(timespec="seconds"),
        identity_version=IDENTITY_VERSION,
        cluster=request.entry.cluster_identity,
        tasks=recorded_tasks(plan),
        image_digests=recorded_digests(plan.spec),
    )


def _annotate(manifest: dict[str, Any], key: str, value: str) -> None:
    metadata = manifest["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), key: value}
