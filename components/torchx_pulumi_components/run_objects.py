"""The Kubernetes objects that a component registers for a run: their manifests, and which stored fields they keep."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pulumi
from torchx_pulumi.apps.variants import variant_of_run
from torchx_pulumi.kube import PodReader
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError, RelaunchRefusedError
from torchx_pulumi.model.object_fields import at, is_being_deleted
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.runs.decision import Action
from torchx_pulumi.runs.deletion import DeletionNotes
from torchx_pulumi.schedulers import backend_of, variant_of

from torchx_pulumi_components.launch import Launch
from torchx_pulumi_components.places import Marks
from torchx_pulumi_components.resources import (
    STORED_POD_FIELDS,
    ChildOptions,
    KubernetesObject,
    type_token,
    with_annotations,
)
from torchx_pulumi_components.stack_state import StackState, plain

ALL_FIELDS = ("metadata", "spec")

DELETE_TIMEOUT_S = 600
POLL_S = 0.5

Objects = tuple[dict[str, Manifest], ChildOptions]
"""Resource name to manifest, the job object first; and the options of the resources."""


def run_objects(name: str, launch: Launch, marks: Marks, state: StackState, children: ChildOptions) -> Objects:
    """Return the objects of a run and their options.

    Args:
        name: Name of the component.
        launch: The decision.
        marks: What is secret or unknown.
        state: The component in the stack's state.
        children: Options from the component.
    """
    plan, action = launch.plan, launch.decision.action
    variant = variant_of(plan.options)
    if action is Action.IGNORE:
        return _stored_objects(name, launch, state), replace(
            children, kept_fields=ALL_FIELDS, kept_companion_fields=STORED_POD_FIELDS
        )
    if action is Action.DONE_AND_GONE and not _shows_ended_run(launch):
        return {}, children
    rendered = launch.registration.objects()
    job_object, companions = marks.of_object(rendered[0]), [*map(marks.of_companion, rendered[1:])]
    if action is Action.DONE_AND_GONE:
        return {name: job_object}, replace(children, kept_fields=ALL_FIELDS)
    if action is Action.KEEP:
        # The state has no fields of an object that is imported now. The engine finds no field in an unknown `spec`.
        is_open = "spec" in marks.unknown
        kept = () if name in launch.imports else ("spec",) if is_open else variant.kept_fields
        children = replace(children, kept_fields=kept, kept_companion_fields=STORED_POD_FIELDS)
    if launch.run.imported and not variant.makes_pods:
        found, importing = launch.observed.job_object, name in children.imports
        children = replace(children, kept_fields=ALL_FIELDS if importing or found is None else ("spec",))
        if found is not None:
            # Pulumi imports an object as it is; the next `up` adds our labels and annotations to those that it has.
            own = {} if importing else job_object["metadata"]
            kept_keys = ("name", "namespace", "labels", "annotations")
            metadata = {key: found["metadata"][key] for key in kept_keys if key in found["metadata"]}
            metadata |= {key: _with(metadata.get(key), own[key]) for key in kept_keys[2:] if key in own}
            if "annotations" in metadata:
                # That of `kubectl apply` has the whole object.
                metadata["annotations"] = marks.as_spec(metadata["annotations"])
            job_object = {**job_object, "metadata": metadata, "spec": marks.as_spec(found["spec"])}
    if launch.replaces_job_object:
        children = replace(children, replaces_job_object=True)
    resources, manifests = launch.registration.resource_names(rendered), [job_object, *companions]
    missing = launch.missing_pods()
    objects = {
        resource: manifest
        for resource, manifest, known in zip(resources, manifests, rendered, strict=True)
        if (known["kind"], known["metadata"]["name"]) not in {("Pod", pod) for pod in missing}
    }
    return objects, children


def _with(found: Mapping[str, Any] | None, own: Any) -> Any:
    """Return labels or annotations of an object with our own."""
    kept = {key: text for key, text in (found or {}).items() if not isinstance(own, Mapping) or key not in own}
    return with_annotations(own, kept)


def _shows_ended_run(launch: Launch) -> bool:
    """Return whether a preview registers the object of a finished run that is gone but still in the state.

    The preview then shows no change. Never in `up`: an engine that has refreshed its state would create the object
    again. `up` removes it from the state. A preview that refreshes first has done so already.
    """
    makes_pods = variant_of(launch.plan.options).makes_pods
    return pulumi.runtime.is_dry_run() and launch.stored and not makes_pods and not refreshes_first()


def check_protected(name: str, launch: Launch, *, protected: bool) -> None:
    """Refuse to remove the object of a run that is gone from the state, if the state protects it.

    Raises:
        RelaunchRefusedError: `up` would fail, with a preview that shows no change.
    """
    if launch.decision.action is Action.DONE_AND_GONE and launch.stored and protected and not refreshes_first():
        raise RelaunchRefusedError(
            f"job {name!r}: run {launch.run.job_name} is over and its object is gone, but the state has the "
            "object, and protects it. Nothing was changed. Run `pulumi refresh`, which removes it from the "
            "state, then `pulumi up`"
        )


def refreshes_first() -> bool:
    """Return whether the CLI that runs this program refreshes the state before it runs the program."""
    if os.environ.get("PULUMI_OPTION_REFRESH", "").lower() in ("1", "true") or _project_refreshes():
        return True
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = process.cmdline()
            if words and Path(words[0]).name == "pulumi":
                return any(word in ("-r", "--refresh", "--refresh=true") for word in words)
    return False


def _project_refreshes() -> bool:
    """Return whether the project file says `options: {refresh: always}`."""
    import yaml

    # A program runs in the folder of its project, or below it. Older language hosts do not name that folder.
    for folder in (Path.cwd(), *Path.cwd().parents):
        for file in ("Pulumi.yaml", "Pulumi.yml", "Pulumi.json"):
            with contextlib.suppress(OSError, yaml.YAMLError, UnicodeDecodeError):
                return bool(at(yaml.safe_load((folder / file).read_text()), "options", "refresh") == "always")
    return False


def _stored_objects(name: str, launch: Launch, state: StackState) -> dict[str, Manifest]:
    """Return the objects of a run as the state has them. The engine fills in all fields that are ignored."""
    plan, run = launch.plan, launch.run
    job_object, *companions = variant_of(plan.options).render(plan)
    found = {name: _bare(job_object, run.job_name, run.namespace)}
    resources = launch.registration.resource_names([job_object, *companions])
    for resource, manifest in zip(resources[1:], companions, strict=True):
        child = (type_token(manifest["apiVersion"], manifest["kind"]), resource.removeprefix(name))
        # All of the metadata is secret if an argument is.
        stored = (plain((state.children.get(child) or {}).get("metadata")) or {}).get("name")
        # Else a refresh did not find the pod, or it is of another component, whose name begins with this one's.
        if stored == manifest["metadata"]["name"]:
            found[resource] = _bare(manifest, stored, run.namespace)
    return found


def _bare(manifest: Manifest, name: str, namespace: str) -> Manifest:
    where = {"name": name, "namespace": namespace}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": where, "spec": {}}


async def tell_deletion(
    launch: Launch, cluster: PodReader | None, objects: Sequence[KubernetesObject], say: ProgressCallback
) -> None:
    """Say what the engine waits for while it deletes the last run, until it has created the next job object.

    Args:
        launch: The decision.
        cluster: Cluster of the run. None: it cannot be read, so no line is said.
        objects: The registered objects of the next run, the job object first.
        say: Takes lines of progress, in any thread.
    """
    ended = launch.ended
    if ended is None or not objects or cluster is None or pulumi.runtime.is_dry_run():
        return
    kind = variant_of_run(ended, launch.plan.options).job_object
    created, notes = asyncio.ensure_future(objects[0].urn.future()), None
    while not (await asyncio.wait([created], timeout=POLL_S))[0]:
        # A failed read is tried again. Code that needs the cluster reports the problem.
        with contextlib.suppress(ClusterError):
            found = await asyncio.to_thread(cluster.get, kind, ended.namespace, ended.job_name)
            if found is not None and is_being_deleted(found):
                notes = notes or _notes(launch, ended, cluster, say)
                await asyncio.to_thread(notes.tell, kind, found)
    # The engine reports why it was not created.
    await asyncio.gather(created, return_exceptions=True)


def _notes(launch: Launch, ended: RunRecord, cluster: PodReader, say: ProgressCallback) -> DeletionNotes:
    selector = backend_of(launch.plan.options).pod_selector(ended.job_name)
    return DeletionNotes(cluster, ended.namespace, selector, say)


async def wait_until_gone(launch: Launch, cluster: PodReader | None, say: ProgressCallback) -> None:
    """Wait, after the pods of the last run were deleted, until those that are terminating have ended.

    Args:
        launch: The decision.
        cluster: Cluster of the run. None: it cannot be read, so this does not wait.
        say: Takes lines of progress, in any thread.

    Raises:
        pulumi.RunError: They did not end in time, or the cluster does not answer.
    """
    ended = launch.ended
    if ended is None or cluster is None or pulumi.runtime.is_dry_run():
        return
    end = time.monotonic() + DELETE_TIMEOUT_S
    selector = backend_of(launch.plan.options).pod_selector(ended.job_name)
    notes = _notes(launch, ended, cluster, say)
    while time.monotonic() < end:
        try:
            pods = await asyncio.to_thread(cluster.list, POD, ended.namespace, selector)
        except ClusterError as error:
            raise pulumi.RunError(str(error)) from error
        going = [pod for pod in pods if is_being_deleted(pod)]
        if not going:
            return
        await asyncio.to_thread(notes.tell, POD, going[0])
        await asyncio.sleep(POLL_S)
    raise pulumi.RunError(f"pods of run {ended.job_name} have not ended within {DELETE_TIMEOUT_S} s of their deletion")
