"""The objects of a run as resources: one job object, or PodGroup, Service and Pods. Each way is one function."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pulumi
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.planning import names
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.schedulers import backend_of, variant_of

from torchx_pulumi_components.kubernetes_objects import ChildOptions, KubernetesObject, type_token
from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.marks import Marks
from torchx_pulumi_components.stack_state import plain

ALL_FIELDS = ("metadata", "spec")

STORED_POD_FIELDS = ("metadata.labels", "metadata.annotations", "spec")
"""What a kept Pod or Service keeps. Not the name: through it the engine sees that they go with their PodGroup."""

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""A gang may wait for hours in its queue: the deployment does not wait for its pods."""

DELETE_TIMEOUT_S = 600
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What was registered of a run."""

    head: KubernetesObject
    """The job object, or the PodGroup."""
    pods: Mapping[str, KubernetesObject]
    """Pod name to resource. Empty: a controller makes them."""


def register_gang(
    name: str, launch: Launch, marks: Marks, options: ChildOptions, cluster: Cluster | None
) -> Gang | None:
    """Register the objects of a run. None: the run is over and gone, and nothing is registered."""
    if launch.decision.action is Action.DONE_AND_GONE:
        if pulumi.runtime.is_dry_run() and launch.stored and not variant_of(launch.plan.options).makes_pods:
            _register_gone(name, launch, marks, options)
        return None
    ended, run = launch.ended, launch.run
    same_name = ended is not None and (ended.namespace, ended.job_name) == (run.namespace, run.job_name)
    relaunched = launch.decision.action is Action.RELAUNCH and same_name
    hide = pulumi.runtime.is_dry_run() and relaunched
    options = replace(options, replaces_head=relaunched)
    if variant_of(launch.plan.options).makes_pods:
        return register_pods(name, launch, marks, options, cluster, hide=hide)
    return register_job(name, launch, marks, options, hide=hide)


def register_job(name: str, launch: Launch, marks: Marks, options: ChildOptions, *, hide: bool) -> Gang:
    """Register the job object: a Volcano Job or an AppWrapper.

    Args:
        name: Of the resource.
        launch: What was decided.
        marks: Unknown and secret values in the plan.
        options: Of the component.
        hide: Leave the server's dry run out of the preview: it would judge the new job as a change of the old one.
    """
    variant = variant_of(launch.plan.options)
    (manifest,) = marks.of(variant.render)
    ignored = variant.kept_fields if launch.decision.action is Action.KEEP else ()
    if launch.run.imported:
        ignored = ALL_FIELDS
        if options.import_id is not None and launch.seen.job_object is not None:
            manifest = marks.leaves.mark_texts(_as_it_is(launch.seen.job_object))
    if hide:
        manifest = _with_unknown(manifest)
    return Gang(head=KubernetesObject(variant.job_object, name, manifest, options.of_head(ignored)), pods={})


def _register_gone(name: str, launch: Launch, marks: Marks, options: ChildOptions) -> None:
    """Let a preview show no change for the object of a finished run that is gone, but is still in the state.

    Never in `up`: an engine that has refreshed its state would make the object again. `up` lets the state drop it.
    A preview that refreshes first has dropped it already.
    """
    if refreshes_first():
        return
    variant = variant_of(launch.plan.options)
    (manifest,) = marks.of(variant.render)
    KubernetesObject(variant.job_object, name, manifest, options.of_head(ALL_FIELDS))


def refreshes_first() -> bool:
    """Return whether the CLI that runs this program was told to refresh the state before it runs the program."""
    if os.environ.get("PULUMI_OPTION_REFRESH", "").lower() in ("1", "true"):
        return True
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if words and Path(words[0]).name == "pulumi":
                return any(word in ("-r", "--refresh", "--refresh=true") for word in words)
    return False


def register_pods(
    name: str, launch: Launch, marks: Marks, options: ChildOptions, cluster: Cluster | None, *, hide: bool
) -> Gang:
    """Register PodGroup, Service and Pods; see `register_job`."""
    variant = variant_of(launch.plan.options)
    group, service, *pods = marks.of(variant.render)
    kept = launch.decision.action is Action.KEEP
    if hide:
        group = _with_unknown(group)
    head = KubernetesObject(variant.job_object, name, group, options.of_head(variant.kept_fields if kept else ()))
    # What follows takes its name through the PodGroup, so that the engine deletes it before the PodGroup, and the whole
    # last run before anything of the next one.
    ready = pulumi.Output.unsecret(head.metadata.apply(_until_gone(launch, cluster)))
    own = {labels.LAUNCH: launch.plan.options.labels[labels.LAUNCH]}
    service = _named_after(ready, service, own)
    KubernetesObject(SERVICE, f"{name}-service", service, _follower(options, STORED_POD_FIELDS if kept else ()))
    made = {}
    for manifest, (role, index, task, pod) in zip(pods, _replicas(launch), strict=True):
        if not launch.may_make(role, index, pod):
            pulumi.log.warn(f"pod {pod} of run {launch.run.job_name} is gone; it is not started again", head)
            continue
        opts = _follower(options, STORED_POD_FIELDS if kept else ())
        made[pod] = KubernetesObject(POD, f"{name}-{task}", _named_after(ready, manifest, own), opts)
    return Gang(head=head, pods=made)


def register_as_launched(
    name: str, launch: Launch, children: Mapping[tuple[str, str], Mapping[str, Any]], options: ChildOptions
) -> Gang:
    """Register the objects of a run as the state has them, whatever the arguments say now.

    Args:
        name: Of the component.
        launch: What was decided.
        children: Type and end of the name of each child in the state to its outputs.
        options: Of the component.
    """
    variant, run = variant_of(launch.plan.options), launch.run
    # The engine puts the stored values in the place of all fields that are ignored.
    where = {"name": run.job_name, "namespace": run.namespace}
    head = KubernetesObject(variant.job_object, name, {"metadata": where, "spec": {}}, options.of_head(ALL_FIELDS))
    if not variant.makes_pods:
        return Gang(head=head, pods={})
    ready = head.metadata.apply(lambda _: True)
    found = [(SERVICE, "-service", run.job_name)]
    found += [(POD, f"-{task}", pod) for _, _, task, pod in _replicas(launch)]
    made = {}
    for kind, suffix, item in found:
        # All of the metadata is secret where an argument is.
        stored = (plain((children.get((type_token(kind), suffix)) or {}).get("metadata")) or {}).get("name")
        # A pod that a refresh did not find, or that belongs to another component, whose name begins with this one's.
        if stored != item:
            continue
        manifest = {"metadata": {"name": item, "namespace": run.namespace}, "spec": {}}
        follower = _follower(options, STORED_POD_FIELDS)
        made[suffix] = KubernetesObject(kind, f"{name}{suffix}", _named_after(ready, manifest, {}), follower)
    pods = {pod: made[f"-{task}"] for _, _, task, pod in _replicas(launch) if f"-{task}" in made}
    return Gang(head=head, pods=pods)


def _replicas(launch: Launch) -> Iterator[tuple[str, int, str, str]]:
    """Yield role, index, task and pod name of the replicas, in the order of the manifests."""
    for role in launch.plan.roles:
        for replica in role.replica_plans:
            if not replica.surplus:
                yield role.name, replica.index, replica.name, names.pod_name(launch.plan.job_name, replica.name)


def _follower(options: ChildOptions, ignored: tuple[str, ...]) -> pulumi.ResourceOptions:
    follower = options.of_object(ignored)
    follower.replace_on_changes = ["metadata"]
    return follower


def _until_gone(launch: Launch, cluster: Cluster | None) -> Callable[[Any], bool]:
    """Wait, between the deletion of the last run's pods and the next run, until those that are ending have ended."""

    def wait(_metadata: Any) -> bool:
        ended = launch.ended
        if ended is None or cluster is None or pulumi.runtime.is_dry_run():
            return True
        end = time.monotonic() + DELETE_TIMEOUT_S
        while time.monotonic() < end:
            pods = cluster.list(POD, ended.namespace, backend_of(launch.plan.options).pod_selector(ended.job_name))
            if not any(pod["metadata"].get("deletionTimestamp") for pod in pods):
                return True
            time.sleep(POLL_S)
        raise DeployError(f"pods of run {ended.job_name} have not ended within {DELETE_TIMEOUT_S} s of their deletion")

    return wait


def _named_after(ready: pulumi.Output[bool], manifest: Manifest, own: Mapping[str, str]) -> Manifest:
    metadata = manifest["metadata"]
    name = metadata["name"]
    annotations = _with(metadata.get("annotations", {}), {**SKIP_AWAIT, **own})
    # The name may be unknown itself.
    named = pulumi.Output.all(name, ready).apply(lambda found: found[0])
    return {**manifest, "metadata": {**metadata, "name": named, "annotations": annotations}}


def _with(annotations: Any, more: Mapping[str, Any]) -> Any:
    """Return annotations with more of them, also where all of them are secret or not known."""
    if isinstance(annotations, Mapping):
        return {**annotations, **more}
    return pulumi.Output.all(annotations, more).apply(lambda found: {**(found[0] or {}), **found[1]})


def _as_it_is(head: Manifest) -> Manifest:
    """Return an object as inputs that change nothing about it."""
    metadata = {
        key: head["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in head["metadata"]
    }
    return {"metadata": metadata, "spec": head["spec"]}


def _with_unknown(manifest: Manifest) -> Manifest:
    annotations = _with(manifest["metadata"].get("annotations", {}), {labels.RUN: unknown()})
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def unknown() -> pulumi.Output[Any]:
    """Return an Output that is not known."""
    return pulumi.Output.from_input(pulumi.output.UNKNOWN)
