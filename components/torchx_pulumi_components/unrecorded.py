"""Find the objects of a run that exist in the cluster and are absent from the stack's state.

A deployment that is killed between the creation of an object and the write of the state leaves such objects. The
provider refuses to create them a second time, so the next deployment imports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.runs.identity import run_hash_of
from torchx_pulumi.runs.registration import resource_names
from torchx_pulumi.schedulers import backend_of, variant_of
from torchx_pulumi.schedulers.manifest_objects import objects_of

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.resources import type_token
from torchx_pulumi_components.stack_state import StackState, plain


def find_unrecorded(
    name: str, launch: Launch, state: StackState, cluster: Cluster | None, owners: Sequence[str]
) -> dict[str, str]:
    """Return the objects to import: resource name -> import id, which is `namespace/name`.

    Args:
        name: Name of the component.
        launch: The decision.
        state: The component in the stack's state.
        cluster: The cluster that is read. None: no cluster is, and no object is imported.
        owners: Launch labels of the component under its URNs.

    Raises:
        DeployError: The state has another object under the same id, which Pulumi cannot replace by an import.
        ClusterError: The cluster does not answer.
    """
    plan, run, variant = launch.plan, launch.run, variant_of(launch.plan.options)
    begun = state.interrupted and state.intent is not None and state.intent.hash == run.hash
    kept = launch.decision.action is Action.KEEP
    if cluster is None or run.imported or not (kept or (launch.launching and begun)):
        return {}
    if kept and not begun and not variant.makes_pods and state.job is not None:
        return {}
    rendered = objects_of({"kind": "List", "items": variant.render(plan)})
    names = resource_names(name, plan, [manifest for _, manifest in rendered])
    pods: Mapping[str, Manifest] | None = None
    found = {}
    for position, (resource, (kind, manifest)) in enumerate(zip(names, rendered, strict=True)):
        stored = state.children.get((type_token(kind.api_version, kind.kind), resource.removeprefix(name)))
        if stored is not None and not begun:
            continue
        object_name = manifest["metadata"]["name"]
        if position == 0:
            live = launch.observed.job_object
        elif kind is POD:
            if pods is None:
                selector = backend_of(plan.options).pod_selector(run.job_name)
                pods = {pod["metadata"]["name"]: pod for pod in cluster.list(POD, run.namespace, selector)}
            live = pods.get(object_name)
        else:
            live = cluster.get(kind, run.namespace, object_name)
        if live is None or not _is_of_run(live, run.hash, owners):
            continue
        metadata = plain((stored or {}).get("metadata")) or {}
        if metadata.get("uid") == live["metadata"].get("uid"):
            continue
        if (metadata.get("namespace"), metadata.get("name")) == (run.namespace, object_name):
            raise DeployError(
                f"job {name!r}: the deployment that replaced {kind.kind} {run.namespace}/{object_name} was killed. The "
                f"state still has the replaced object, so Pulumi would create the new one a second time. It runs, and "
                f"nothing was changed. Remove the old one from the state: `pulumi state delete --target-dependents "
                f"'URN of {resource}'` (`pulumi stack --show-urns` lists it); the next `pulumi up` imports the new one"
            )
        found[resource] = f"{run.namespace}/{object_name}"
    return found


def import_advice(name: str, launch: Launch, state: StackState) -> str | None:
    """Return what to do about a job object that may be there while no cluster can be read.

    None: its creation was not interrupted.
    """
    if not (launch.launching and state.interrupted and state.intent is not None and state.job is None):
        return None
    if state.intent.hash != launch.run.hash:
        return None
    kind, run = variant_of(launch.plan.options).job_object, launch.run
    token = type_token(kind.api_version, kind.kind)
    return (
        f"the launch of {kind.kind} {run.namespace}/{run.job_name} was interrupted, and the cluster cannot be looked "
        f"at. If it exists, set kubeconfig or kube_context as in your provider: `up` then imports it. Or import it "
        f"yourself: `pulumi import {token} {name} {run.namespace}/{run.job_name} --parent component='{state.urn}' "
        "--provider NAME=URN --protect=false`, with your provider's name and URN"
    )


def _is_of_run(live: Mapping[str, Any], run: str, owners: Sequence[str]) -> bool:
    """Return whether this component created an object for this run. Only job objects have the launch as a label."""
    marks = (text_at(live, "metadata", place, labels.LAUNCH) for place in ("labels", "annotations"))
    return run_hash_of(live) == run and any(mark in owners for mark in marks)
