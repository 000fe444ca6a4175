"""Find the objects of a run that exist in the cluster and are absent from the stack's state.

A deployment that is killed between the creation of an object and the write of the state leaves such objects. The
provider refuses to create them a second time, so the next deployment imports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx_pulumi.apps.ownership import is_of_launch, run_hash_of
from torchx_pulumi.apps.variants import variant_of_run
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model.errors import DeployError, RelaunchRefusedError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.text import listed
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.schedulers import backend_of, variant_of
from torchx_pulumi.schedulers.manifest_objects import objects_of

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.resources import type_token
from torchx_pulumi_components.stack_state import StackState, plain


def find_unrecorded(
    name: str, launch: Launch, state: StackState, cluster: PodReader | None, owners: Sequence[str]
) -> dict[str, str]:
    """Return the objects to import: resource name -> import id, which is `namespace/name`.

    Args:
        name: Name of the component.
        launch: The decision.
        state: The component in the stack's state.
        cluster: The cluster that is read. None: no cluster is, and no object is imported.
        owners: Launch labels of the component under its URNs.

    Raises:
        RelaunchRefusedError: Objects of the run that ends now are absent from the state, so that they would stay.
        DeployError: An object cannot be imported: it is being deleted, is of another run, or the state has another one
            under the same id.
        ClusterError: The cluster does not answer.
    """
    if cluster is None:
        return {}
    if launch.ended is not None and state.interrupted:
        _check_ended(name, launch.ended, launch, state, cluster, owners)
    run, variant = launch.run, variant_of(launch.plan.options)
    begun = _is_begun(launch, state)
    kept = launch.decision.action is Action.KEEP
    if not (kept or (launch.launching and begun)):
        return {}
    if kept and not begun and not variant.makes_pods and state.job is not None:
        return {}
    pods: Mapping[str, Manifest] | None = None
    found = {}
    for resource, kind, manifest, stored in _objects(name, launch, state):
        is_job_object = resource == name
        if (stored is not None and not begun) or (is_job_object and run.imported):
            continue
        object_name = manifest["metadata"]["name"]
        if is_job_object:
            live = launch.observed.job_object
        elif kind is POD:
            if pods is None:
                pods = {pod["metadata"]["name"]: pod for pod in _pods(launch, cluster, run)}
            live = pods.get(object_name)
        else:
            live = cluster.get(kind, run.namespace, object_name)
        if live is None or not is_of_launch(owners, live):
            continue
        what = f"{kind.kind} {run.namespace}/{object_name}"
        if run_hash_of(live) != run.hash:
            # Other names contain the hash of their run.
            if is_job_object and launch.named and stored is None and state.record is None:
                raise DeployError(
                    f"job {name!r}: {what} is another run of this component, which the state lacks. Nothing was "
                    "changed. Undo the change and run `pulumi up`, which imports it; or delete it"
                )
            continue
        metadata = plain((stored or {}).get("metadata")) or {}
        if metadata.get("uid") == live["metadata"].get("uid"):
            continue
        if live["metadata"].get("deletionTimestamp"):
            raise DeployError(
                f"job {name!r}: {what} is being deleted, and the state lacks it. Nothing was changed. Run `pulumi up` "
                "again once it is gone"
            )
        if (metadata.get("namespace"), metadata.get("name")) == (run.namespace, object_name):
            # The component has the same name, and all that is known of the run.
            urn = f"{state.urn.rpartition('::')[0]}${type_token(kind.api_version, kind.kind)}::{resource}"
            raise DeployError(
                f"job {name!r}: the deployment that replaced {what} was killed. The state still has the replaced "
                f"object, so Pulumi would create the new one a second time. It runs, and nothing was changed. Remove "
                f"the old one from the state: `pulumi state delete --target-dependents '{urn}'`; the next `pulumi up` "
                "imports the new one"
            )
        found[resource] = f"{run.namespace}/{object_name}"
    return found


def import_advice(name: str, launch: Launch, state: StackState) -> str | None:
    """Return the advice about objects that may exist while no cluster can be read.

    None: the launch was not interrupted, or the state has all objects.
    """
    if not _is_begun(launch, state):
        return None
    missing = [
        f"`pulumi import {type_token(kind.api_version, kind.kind)} {resource} {launch.run.namespace}/"
        f"{manifest['metadata']['name']} --parent component='{state.urn}' --provider NAME=URN --protect=false "
        "--generate-code=false`"
        for resource, kind, manifest, stored in _objects(name, launch, state)
        if stored is None
    ]
    if not missing:
        return None
    return (
        f"the launch of {launch.run.namespace}/{launch.run.job_name} was interrupted, and the cluster cannot be looked "
        "at. If its objects exist, set kubeconfig or kube_context as in your provider: `up` then imports them. Or "
        f"import those that exist yourself, with your provider's name and URN: {listed(missing, 4)}"
    )


def _check_ended(
    name: str, ended: RunRecord, launch: Launch, state: StackState, cluster: PodReader, owners: Sequence[str]
) -> None:
    """Check that the engine can delete the run that a new one replaces: the state has its objects."""
    variant = variant_of_run(ended, launch.plan.options)
    kinds = [variant.job_object, *(kind for kind in variant.companions if kind is not POD)]
    live = [cluster.get(kind, ended.namespace, ended.job_name) for kind in kinds]
    live += _pods(launch, cluster, ended) if variant.makes_pods else []
    recorded = {(plain(child.get("metadata")) or {}).get("uid") for child in state.children.values()}
    missing = [
        f"{item['kind']} {item['metadata']['name']}"
        for item in live
        if item is not None and is_of_launch(owners, item) and item["metadata"].get("uid") not in recorded
    ]
    if missing:
        raise RelaunchRefusedError(
            f"job {name!r}: the deployment that launched run {ended.job_name} was interrupted, and the state lacks "
            f"{listed(missing, 4)}, so Pulumi cannot delete them. Nothing was changed. Undo the change and run `pulumi "
            "up` once, which imports them; then make the change again"
        )


def _is_begun(launch: Launch, state: StackState) -> bool:
    """Return whether an earlier deployment began to launch this run, and did not confirm it."""
    intent = state.intent
    return state.interrupted and intent is not None and intent.hash == launch.run.hash


def _objects(
    name: str, launch: Launch, state: StackState
) -> Iterator[tuple[str, Kind, Manifest, Mapping[str, Any] | None]]:
    """Yield resource name, kind and manifest of a run's objects, the job object first, and what the state has."""
    plan = launch.plan
    rendered = objects_of({"kind": "List", "items": variant_of(plan.options).render(plan)})
    names = launch.registration.resource_names([manifest for _, manifest in rendered])
    for resource, (kind, manifest) in zip(names, rendered, strict=True):
        child = (type_token(kind.api_version, kind.kind), resource.removeprefix(name))
        yield resource, kind, manifest, state.children.get(child)


def _pods(launch: Launch, cluster: PodReader, run: RunRecord) -> Sequence[Manifest]:
    return cluster.list(POD, run.namespace, backend_of(launch.plan.options).pod_selector(run.job_name))
