"""Parts of manifests that every scheduler renders: the pod of a replica, and the metadata of the job object.

The pod is that of TorchX's `role_to_pod` (`kubernetes_scheduler.py`) with the pod overlay. Two pods share no value,
so that a caller can change one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import InvalidJobError, Problem
from torchx_pulumi.model.job_plan import EnvPlan, JobPlan, MountPlan, RolePlan, TaskPlan
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning.overlay import OverlayError, container_problems, overlay_pod
from torchx_pulumi.planning.references import in_expansion_order, unexpanded

SHM_PATH = "/dev/shm"  # noqa: S108
SHM = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
"""Memory-backed volume at `SHM_PATH`: the default of 64 MB is too small for PyTorch's data loaders."""


def render_pod_template(
    plan: JobPlan, role: RolePlan, task: TaskPlan, more_env: Sequence[tuple[str, str]] = ()
) -> Manifest:
    """Render metadata and spec of a replica's pod.

    Args:
        plan: The plan.
        role: One of its roles.
        task: The task of the replica.
        more_env: Variables that the scheduler's renderer adds to every container, as name and value.

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
    for container in _containers(template):
        if "env" in container or more_env:
            more = ({"name": name, "value": value} for name, value in more_env)
            container["env"] = in_expansion_order([*container.get("env", ()), *more])
    return template


def reference_warnings(plan: JobPlan, more_env: Callable[[JobPlan], Sequence[tuple[str, str]]]) -> Iterator[str]:
    """Yield the references of variables to others that stay as text, with what to do."""
    for role in plan.roles:
        found: dict[str, None] = {}
        # Rank 0 has other variables than the replicas after it, which are alike.
        for task in role.tasks[:2]:
            if "$(" in f"{task.env} {role.pod_overlay}":
                template = render_pod_template(plan, role, task, more_env(plan))
                found |= dict.fromkeys(_unexpanded(role, plan.spec.roles[role.index].env, template))
        yield from found


def _unexpanded(role: RolePlan, given: Collection[str], template: Manifest) -> Iterator[str]:
    for container in _containers(template):
        for variable, name, is_mutual in unexpanded(container.get("env", ())):
            is_given = variable in given
            where = f"env[{variable!r}]" if is_given else f"pod_overlay, variable {variable}"
            # What a container reads from a whole ConfigMap or Secret is known before its own variables.
            if is_mutual or "envFrom" not in container:
                reason = (
                    f"{name} in turn needs {variable}; remove one of the two references"
                    if is_mutual
                    # Macros of roles make one of two dollar signs before the kubelet does.
                    else f"the container has no variable {name} before it; give {name} in env or secret_env, or write "
                    f"{'$$$$' if is_given else '$$'}({name}) for this text. Variables of the image are known to its "
                    "processes only, those of a scheduler's plugin to command and args as well"
                )
                yield f"roles[{role.index}].{where} keeps $({name}) as text: {reason}"


def _containers(template: Manifest) -> list[Manifest]:
    return [*template["spec"]["containers"], *template["spec"].get("initContainers", ())]


def overlay_problems(plan: JobPlan) -> Iterator[Problem]:
    """Yield what a pod overlay makes of the containers that the API server refuses.

    Only of a new launch: a run that was launched all the same, and waits, keeps its identity.
    """
    for role in plan.roles:
        # Two replicas differ wherever any two do.
        tasks = role.tasks[:2] if role.pod_overlay else ()
        templates = [(render_pod_template(plan, role, task)["spec"], task.name) for task in tasks]
        found = [text for spec, main in templates for text in container_problems(spec, main)]
        yield from (Problem(f"roles[{role.index}].pod_overlay", text) for text in dict.fromkeys(found))


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
