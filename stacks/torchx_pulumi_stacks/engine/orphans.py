"""Deletion of objects without the engine.

These are objects that no state records, as a launch leaves them that is killed between the creation of an object and
the write of the state; objects whose state cannot be used here; and job objects, whose deletion waits for their pods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.ownership import Run, is_of_launch, owns
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD, SERVICE, Kind
from torchx_pulumi.kube.kubeconfig import api_server, find_access, identity_of
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.object_fields import text_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.model.registration_plan import INTENT_SUFFIX, RegistrationPlan
from torchx_pulumi.model.text import listed
from torchx_pulumi.runs.deletion import DeletionNotes
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.stack_state.checkpoint import Checkpoint, is_object, titled
from torchx_pulumi.storage.owners import CheckOwner, unowned

GONE_TIMEOUT_S = 600.0
"""Longest wait for the end of a deletion, as long as that of the Kubernetes provider."""

POLL_S = 0.2

IN_FLIGHT_S = 5.0
"""Time that an API server under load takes to store an object whose client was killed after its request."""


def unrecorded(checkpoint: Checkpoint, interrupted: RegistrationPlan | None = None) -> list[Manifest]:
    """Return the manifests of the objects whose creation has started and that the state does not record.

    Args:
        checkpoint: The state.
        interrupted: The launch, if its engine was interrupted. The engine then removes a creation that it cancels from
            the state, and the API server may create the object all the same. None: only pending creations are returned.
    """
    begun = [
        operation["resource"].get("inputs") or {}
        for operation in checkpoint.pending
        if operation.get("type") == "creating" and is_object(operation.get("resource") or {})
    ]
    begun = [inputs for inputs in begun if inputs.get("kind")]
    # The engine records the intent before it creates an object.
    if interrupted is None or checkpoint.stash(INTENT_SUFFIX) is None:
        return begun
    known = {_named(item.get("inputs") or {}) for item in checkpoint.objects()}
    return [*begun, *(manifest for manifest in interrupted.objects if _named(manifest) not in known)]


def delete_late(
    manifests: Sequence[Manifest],
    entry: RunEntry,
    connect: Callable[[], Cluster],
    progress: ProgressCallback,
    check: CheckOwner = unowned,
) -> None:
    """Delete the app's objects that `unrecorded` returned, and wait up to 5 s for those that do not exist yet.

    Raises:
        ClusterError: The cluster cannot be reached, or an object is not deleted in time.
    """
    # The uid of the entry, if it has one, is that of an earlier run.
    cluster, run = connect(), replace(App.of(entry).run, uid=None)
    wanted = [(objects_of(manifest)[0][0], _named(manifest)[1]) for manifest in reversed(manifests)]

    def look() -> list[tuple[Kind, str, Manifest]]:
        return [(kind, run.namespace, item) for kind, name in wanted for item in _get_own(cluster, kind, run, name)]

    found, end = look(), time.monotonic() + IN_FLIGHT_S
    if len(found) < len(wanted):
        names = listed([f"{kind.kind} {name}" for kind, name in wanted], 3)
        progress(f"{entry.app_id}: waiting up to {IN_FLIGHT_S:g} s for {names}, whose creation was interrupted")
    while len(found) < len(wanted) and time.monotonic() < end:
        check()
        time.sleep(POLL_S)
        found = look()
    _delete(cluster, entry, found, progress, check)


def engine_reaches(checkpoint: Checkpoint, entry: RunEntry, cluster: Cluster) -> bool:
    """Return whether the providers in a state lead to a cluster.

    They name a kubeconfig or a context of the launching machine, which may not exist on another user's machine.

    Args:
        checkpoint: The state.
        entry: The app, with cluster access that works here.
        cluster: The cluster of that access.
    """
    own = entry.access[0]
    for given in checkpoint.provider_inputs():
        kubeconfig, context = given.get("kubeconfig"), given.get("context")
        if isinstance(kubeconfig, Mapping) or isinstance(context, Mapping):
            # A secret, which only the engine can decrypt.
            continue
        try:
            address = api_server(find_access(kubeconfig or own, context))
        except ClusterError:
            return False
        if identity_of(address) != cluster.identity:
            return False
    return True


def delete_recorded(
    checkpoint: Checkpoint,
    entry: RunEntry,
    connect: Callable[[], Cluster],
    progress: ProgressCallback,
    check: CheckOwner = unowned,
) -> None:
    """Delete the objects in a state, in reverse order, if the cluster has them with the recorded uid.

    Raises:
        ClusterError: The cluster cannot be reached, or an object is not deleted in time.
        InvalidJobError: The state has objects of a kind that this package does not create; nothing was deleted.
    """
    recorded = [{**(item.get("inputs") or {}), **(item.get("outputs") or {})} for item in checkpoint.objects()]
    items = [objects_of(item)[0] for item in reversed(recorded)]
    cluster, same = connect(), []
    for kind, item in items:
        namespace, name = item["metadata"].get("namespace") or entry.namespace, item["metadata"]["name"]
        found = cluster.get(kind, namespace, name)
        if found is not None and found["metadata"]["uid"] == item["metadata"].get("uid"):
            same.append((kind, namespace, found))
    _delete(cluster, entry, same, progress, check)


def delete_awaited(
    checkpoint: Checkpoint,
    entry: RunEntry,
    connect: Callable[[], Cluster],
    progress: ProgressCallback,
    check: CheckOwner = unowned,
) -> None:
    """Delete the job object of a state before the engine does, which would wait for the end of its pods in a slot.

    Nothing is deleted if the state has several objects, as the engine does not wait for those; if the state has no uid,
    or a user protects the object from the engine; and without permission, as the engine may have it.

    Raises:
        ClusterError: The cluster cannot be reached, or the object is not deleted in time.
    """
    objects = list(checkpoint.objects())
    if len(objects) != 1 or objects[0].get("protect") or objects[0].get("retainOnDelete"):
        return
    if not ((objects[0].get("outputs") or {}).get("metadata") or {}).get("uid"):
        return
    try:
        delete_recorded(checkpoint, entry, connect, progress, check)
    except ClusterError as error:
        if error.reason != "Forbidden":
            raise


def delete_objects(
    entry: RunEntry, connect: Callable[[], Cluster], progress: ProgressCallback, check: CheckOwner = unowned
) -> None:
    """Delete the objects of an app whose state is lost.

    The job object goes last, so that the next call can finish an interrupted deletion.

    Raises:
        ClusterError: The cluster cannot be reached, or an object is not deleted in time.
        DeployError: This release does not have the scheduler or the variant of the app.
    """
    if not entry.launch:
        return
    cluster, namespace, name, run = connect(), entry.namespace, entry.job_name, App.of(entry).run
    variant = run.variant
    if variant.makes_pods:
        pods = cluster.list(POD, namespace, run.pod_selector)
        followers = [(POD, namespace, pod) for pod in pods if _is_own(run, pod)]
        followers += [(SERVICE, namespace, item) for item in _get_own(cluster, SERVICE, run, name)]
        _delete(cluster, entry, followers, progress, check)
    job = _get_own(cluster, variant.job_object, run, name)
    _delete(cluster, entry, [(variant.job_object, namespace, item) for item in job], progress, check)


def refuse_others(checkpoint: Checkpoint | None, entry: RunEntry) -> None:
    """Check that a stack holds no resources of the user's own program, which would lose their state.

    Raises:
        DeployError: The stack holds such resources.
    """
    others = [] if checkpoint is None else list(checkpoint.others())
    if not others:
        return
    place, names = entry.place, [titled(item) for item in others]
    raise DeployError(
        f"app {entry.app_id} cannot be forgotten: its stack {place.project}/{place.stack} also holds "
        f"{listed(names, 5)}, which would stay without a state. In the folder of the program that made "
        "them, run `pulumi destroy`; if the cluster is gone for good, set PULUMI_K8S_DELETE_UNREACHABLE=true and "
        "run `pulumi refresh` first"
    )


def wait_for_pods(
    entry: RunEntry, connect: Callable[[], Cluster], progress: ProgressCallback, check: CheckOwner = unowned
) -> None:
    """Wait until pods that the engine deleted are gone: the engine does not wait for pods, as a gang may be queued.

    Raises:
        ClusterError: The cluster cannot be reached, or a pod is not deleted in time.
        DeployError: This release does not have the scheduler or the variant of the app.
    """
    run = App.of(entry).run
    if not run.variant.makes_pods:
        return
    cluster, end = connect(), time.monotonic() + GONE_TIMEOUT_S
    notes = _notes(cluster, entry, progress)
    while pods := cluster.list(POD, entry.namespace, run.pod_selector):
        if time.monotonic() > end:
            raise ClusterError(
                f"pod {entry.namespace}/{pods[0]['metadata']['name']} was deleted and is still there after "
                f"{GONE_TIMEOUT_S:.0f} s; look at its finalizers and its node",
                retryable=True,
            )
        check()
        notes.tell(POD, pods[0])
        time.sleep(POLL_S)


def _get_own(cluster: Cluster, kind: Kind, run: Run, name: str) -> list[Manifest]:
    """Return the object of a name, if a run owns it and its launch created it."""
    found = cluster.get(kind, run.namespace, name)
    return [] if found is None or not _is_own(run, found) else [found]


def _named(manifest: Manifest) -> tuple[str, str]:
    return str(manifest.get("kind")), text_at(manifest, "metadata", "name") or ""


def _is_own(run: Run, found: Manifest) -> bool:
    # The uid alone proves the run, and not who created its job object: another program may have.
    return owns(run, found) and is_of_launch(run.launches, found)


def _delete(
    cluster: Cluster,
    entry: RunEntry,
    objects: Sequence[tuple[Kind, str, Manifest]],
    progress: ProgressCallback,
    check: CheckOwner,
) -> None:
    """Delete objects of an app, each with its kind and namespace, and wait until all are gone."""
    for kind, namespace, found in objects:
        check()
        progress(f"deleting {kind.kind} {namespace}/{found['metadata']['name']}")
        cluster.delete(kind, namespace, found["metadata"]["name"], uid=found["metadata"]["uid"])
    notes = _notes(cluster, entry, progress)
    for kind, namespace, found in objects:
        name, uid, end = found["metadata"]["name"], found["metadata"]["uid"], time.monotonic() + GONE_TIMEOUT_S
        while text_at(left := cluster.get(kind, namespace, name), "metadata", "uid") == uid:
            if time.monotonic() > end:
                raise ClusterError(
                    f"{kind.kind} {namespace}/{name} was asked to go and is still there after {GONE_TIMEOUT_S:.0f} s; "
                    "look at its finalizers and pods",
                    retryable=True,
                )
            check()
            notes.tell(kind, left or found)
            time.sleep(POLL_S)


def _notes(cluster: Cluster, entry: RunEntry, progress: ProgressCallback) -> DeletionNotes:
    return DeletionNotes(cluster, entry.namespace, App.of(entry).run.pod_selector, progress)
