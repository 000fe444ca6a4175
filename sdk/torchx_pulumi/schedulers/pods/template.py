"""Parts of manifests that every scheduler renders: the pod of a replica, and the metadata of the job object.

The pod is that of TorchX's `role_to_pod` (`kubernetes_scheduler.py`) with the pod overlay. Two pods share no value,
so that a caller can change one of them.
"""

from __future__ import annotations

import copy
from typing import Any

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import InvalidJobError, Problem
from torchx_pulumi.model.job_plan import EnvPlan, JobPlan, MountPlan, RolePlan, TaskPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning.overlay import OverlayError, overlay_pod

SHM_PATH = "/dev/shm"  # noqa: S108
SHM = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
"""Memory-backed volume at `SHM_PATH`: the default of 64 MB is too small for PyTorch's data loaders."""


def render_pod_template(plan: JobPlan, role: RolePlan, task: TaskPlan) -> Manifest:
    """Render metadata and spec of a replica's pod.

    Raises:
        InvalidJobError: The role's pod overlay does not fit the pod.
    """
    template: Manifest = {
        "metadata": {"annotations": {labels.ISTIO_SIDECAR: "false"}, "labels": {}},
        "spec": _pod_spec(plan, role, task),
    }
    if role.pod_overlay:
        try:
            template = overlay_pod(template, role.pod_overlay)
        except OverlayError as error:
            raise InvalidJobError(plan.spec.name, [Problem(f"roles[{role.index}].pod_overlay", str(error))]) from error
        if template["spec"].get("hostNetwork") is True:
            # Replicas on the host's network resolve rank 0 by it. Volcano's webhook would set it, and rewrite the task.
            template["spec"].setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    template["metadata"].setdefault("labels", {}).update(task.labels)
    return template


def _pod_spec(plan: JobPlan, role: RolePlan, task: TaskPlan) -> Manifest:
    container = {
        "name": task.name,
        "image": role.image,
        "command": list(task.command),
        "env": [_env_var(env) for env in task.env],
        "ports": [{"name": name, "containerPort": port} for name, port in role.ports.items()],
        "resources": {"limits": dict(role.limits), "requests": dict(role.requests)},
        "securityContext": {"privileged": True} if role.privileged else {},
        "volumeMounts": [
            {"name": SHM["name"], "mountPath": SHM_PATH},
            *({"name": one.name, "mountPath": one.dst, "readOnly": one.read_only} for one in role.mounts),
        ],
    }
    spec: Manifest = {
        "containers": [container],
        "nodeSelector": dict(role.node_selector),
        "restartPolicy": "Never",
        "volumes": [copy.deepcopy(SHM), *map(_volume, role.mounts)],
    }
    if role.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in role.tolerations]
    if plan.options.service_account is not None:
        spec["serviceAccountName"] = plan.options.service_account
    if plan.options.image_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in plan.options.image_secrets]
    return spec


def _env_var(env: EnvPlan) -> Manifest:
    if env.field_path is not None:
        return {"name": env.name, "valueFrom": {"fieldRef": {"fieldPath": env.field_path}}}
    if env.secret is not None:
        name, key, optional = env.secret
        reference: dict[str, Any] = {"name": name, "key": key}
        if optional:
            reference["optional"] = True
        return {"name": env.name, "valueFrom": {"secretKeyRef": reference}}
    return {"name": env.name, "value": env.value}


def _volume(mount: MountPlan) -> Manifest:
    if mount.kind == "volume":
        return {"name": mount.name, "persistentVolumeClaim": {"claimName": mount.src}}
    if mount.kind == "secret":
        return {"name": mount.name, "secret": {"secretName": mount.src}}
    return {"name": mount.name, "hostPath": {"path": mount.src}}


def new_object(kind: Kind, metadata: Manifest, spec: Manifest) -> Manifest:
    """Return an object of a kind."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def job_metadata(plan: JobPlan) -> Manifest:
    """Render the metadata of the job object, with labels and annotations if there are any."""
    metadata: Manifest = {"name": plan.job_name, "namespace": plan.namespace}
    if plan.options.labels:
        metadata["labels"] = dict(plan.options.labels)
    if plan.options.annotations:
        metadata["annotations"] = dict(plan.options.annotations)
    return metadata
