"""From an order to all that is registered of its run. Pure: no engine, no file, no cluster."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import Stage, write_entry
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.job_plan import JobPlan, RolePlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.registration_plan import UID, RegistrationPlan
from torchx_pulumi.model.run_record import IDENTITY_VERSION, RunRecord, write_record
from torchx_pulumi.outputs.building import assemble, build_declared, build_observed, flatten
from torchx_pulumi.runs.driver import LaunchRequest
from torchx_pulumi.runs.identity import field_digests
from torchx_pulumi.runs.run_hash import run_hash
from torchx_pulumi.schedulers import ObservedObjects, asked, variant_of
from torchx_pulumi.schedulers.manifest_objects import objects_of


def prepare(order: LaunchRequest, now: datetime | None = None) -> RegistrationPlan:
    """Put together what is registered of a run.

    Args:
        order: The run.
        now: When the launch was decided. None: now.

    Raises:
        InvalidJobError: The manifest has an object of a kind that we do not make.
        DeployError: The manifest is not of the kind that the plan is for.
    """
    entry, plan, at = order.entry, order.plan, now or datetime.now(timezone.utc)
    variant = variant_of(plan.options)
    objects = [copy.deepcopy(dict(item)) for _, item in objects_of(order.manifest)]
    head = objects[0]
    _check_head(head, variant.job_object.api_version, variant.job_object.kind)
    record = _record(order, at)
    _mark(head, entry.launch, record.hash)
    for follower in objects[1:]:
        _add_annotation(follower, labels.LAUNCH, entry.launch)
    status = variant.read_status(
        ObservedObjects(job_object={key: value for key, value in head.items() if key != "status"}, pods=())
    )
    declared = build_declared(plan, spec_hash=record.hash, created_by=entry.user, digests=order.digests)
    observed = build_observed(status, observed_at=at)
    scheduler = plan.options.scheduler
    whole = assemble(plan, declared, observed, scheduler=scheduler, kube_context=entry.kube_context)
    if entry.ui_url is not None:
        whole["links"]["ui_url"] = entry.ui_url
    flat = flatten(whole)
    names = [entry.name, *_names(plan, objects[1:], entry.name)]
    return RegistrationPlan(
        scheduler=scheduler,
        name=entry.name,
        objects=objects,
        names=names,
        intent=write_record(record),
        record=write_record(record),
        entry=write_entry(replace(entry, stage=Stage.LAUNCHED, owner=None, uid=None, run=record.hash)),
        outputs={
            "app_id": flat["app_id"],
            "app_handle": flat["app_handle"],
            "job_name": plan.job_name,
            "namespace": plan.namespace,
            "uid": UID,
            "service": variant.service(plan),
            "pod_groups": variant.pod_groups(plan, plan.roles, UID),
            "pod_names": [variant.pod_name(plan, item) for role in plan.roles for item in asked(role)],
            "rank0_host": variant.rank0_host(plan),
            "images": {role.name: role.image for role in plan.roles},
            "declared": declared,
            "observed": observed,
        },
        roles={role.dns_name: _role(plan, role, UID) for role in plan.roles},
        exports={"torchx": whole, **flat},
        kubeconfig=entry.kubeconfig,
        kube_context=entry.kube_context,
    )


def _record(order: LaunchRequest, now: datetime) -> RunRecord:
    plan = order.plan
    replicas = {role.name: role.num_replicas for role in plan.spec.roles}
    digests = field_digests(plan.spec, plan.options)
    return RunRecord(
        app_id=plan.job_name,
        job_name=plan.job_name,
        namespace=plan.namespace,
        # What the entry says is on the object already, or will be; a record must say the same.
        hash=order.entry.run or run_hash(digests, replicas, plan.spec, plan.options, version=IDENTITY_VERSION),
        digests=digests,
        launched=replicas,
        replicas=replicas,
        attempt=1,
        launched_at=now.isoformat(timespec="seconds"),
        identity_version=IDENTITY_VERSION,
        cluster=order.entry.cluster_identity,
    )


def _check_head(head: Manifest, api_version: str, kind: str) -> None:
    found = (head.get("apiVersion"), head.get("kind"))
    if found != (api_version, kind):
        raise DeployError(
            f"the request's resource is a {found[1]} of {found[0]}, must be a {kind} of {api_version}; "
            "change what it contains, not what it is"
        )


def _mark(head: dict[str, Any], launch: str, run: str) -> None:
    """Add what the object is known by to a manifest that is ours to change."""
    metadata = head.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), labels.LAUNCH: launch}
    _add_annotation(head, labels.RUN, run)


def _add_annotation(manifest: dict[str, Any], key: str, value: str) -> None:
    metadata = manifest.setdefault("metadata", {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), key: value}


def _names(plan: JobPlan[Any], others: Sequence[Manifest], name: str) -> list[str]:
    """Name the resources beside the head as the components do: by kind, a pod by its task."""
    tasks = {variant_of(plan.options).pod_name(plan, item): item.name for role in plan.roles for item in asked(role)}
    named = []
    for manifest in others:
        object_name = str(manifest["metadata"]["name"])
        kind = str(manifest["kind"])
        named.append(f"{name}-{tasks.get(object_name, object_name) if kind == 'Pod' else kind.lower()}")
    return named


def _role(plan: JobPlan[Any], role: RolePlan, uid: str) -> Mapping[str, Any]:
    variant = variant_of(plan.options)
    resources = {"requests": dict(role.requests), "limits": dict(role.limits)}
    pods = [
        {"kind": "Pod", "name": variant.pod_name(plan, replica), "image": role.image, "resources": resources}
        for replica in asked(role)
    ]
    service = variant.service(plan)
    return {
        "name": role.name,
        "image": role.image,
        "replicas": role.replicas,
        "min_replicas": role.min_replicas,
        "resources": resources,
        "objects": [*pods, *([{"kind": "Service", "name": service}] if service else [])],
        "pod_groups": [{"kind": "PodGroup", "name": name} for name in variant.pod_groups(plan, [role], uid)],
    }
