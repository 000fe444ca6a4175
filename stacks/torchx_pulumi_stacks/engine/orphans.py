"""Objects of an app that no state knows of: a launch was killed between creating an object and writing that down."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from torchx_pulumi.kube import LiveCluster
from torchx_pulumi.kube.kinds import POD, SERVICE, Kind
from torchx_pulumi.kube.kubeconfig import api_server, find_access, identity_of
from torchx_pulumi.model import labels
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.object_fields import time_at
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.progress import ProgressCallback
from torchx_pulumi.schedulers import Variant, find_backend
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi.stack_state.checkpoint import Checkpoint, is_object
from torchx_pulumi.stack_state.owner import CheckOwner, unowned

GONE_TIMEOUT_S = 300.0
POLL_S = 0.2

CLOCK_SKEW = timedelta(minutes=5)
"""By how much the cluster's clock may be behind that of the machine that launched."""


def delete_unrecorded(
    checkpoint: Checkpoint,
    entry: RunEntry,
    connect: Callable[[], LiveCluster],
    tell: ProgressCallback,
    check: CheckOwner = unowned,
) -> None:
    """Delete the objects whose creation was begun and not recorded, where they are there and ours.

    Raises:
        ClusterError: The cluster cannot be reached, or an object does not go.
    """
    begun = [
        operation["resource"].get("inputs") or {}
        for operation in checkpoint.pending
        if operation.get("type") == "creating" and is_object(operation.get("resource") or {})
    ]
    if not begun:
        return
    cluster = connect()
    for inputs in begun:
        metadata = inputs.get("metadata") or {}
        wanted = metadata.get("labels") or {}
        if wanted and inputs.get("kind"):
            namespace = metadata.get("namespace") or entry.namespace
            _delete(cluster, objects_of(inputs)[0][0], namespace, str(metadata.get("name")), wanted, tell, check)


def engine_reaches(checkpoint: Checkpoint, entry: RunEntry, cluster: LiveCluster) -> bool:
    """Return whether the providers in a state lead to a cluster.

    They name a kubeconfig or a context of the launcher's machine, which is another one for a colleague.

    Args:
        checkpoint: The state.
        entry: The app, with an access that can be used here.
        cluster: What that access leads to.
    """
    own = entry.kubeconfig or entry.ambient_kubeconfig
    for given in checkpoint.provider_inputs():
        kubeconfig, context = given.get("kubeconfig"), given.get("context")
        if isinstance(kubeconfig, Mapping) or isinstance(context, Mapping):
            # A secret, which the engine alone can read.
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
    connect: Callable[[], LiveCluster],
    tell: ProgressCallback,
    check: CheckOwner = unowned,
) -> None:
    """Delete the objects that a state has, the last one first, each only where it is that very object.

    Raises:
        ClusterError: The cluster cannot be reached, or an object does not go.
        InvalidJobError: The state has objects of a kind that this package does not make; nothing was deleted.
    """
    recorded = [{**(item.get("inputs") or {}), **(item.get("outputs") or {})} for item in checkpoint.objects()]
    items = [objects_of(item)[0] for item in reversed(recorded)]
    cluster, doomed = connect(), []
    for kind, item in items:
        namespace, name = item["metadata"].get("namespace") or entry.namespace, item["metadata"]["name"]
        found = cluster.get(kind, namespace, name)
        if found is None or found["metadata"]["uid"] != item["metadata"].get("uid"):
            continue
        check()
        tell(f"deleting {kind.kind} {namespace}/{name}")
        cluster.delete(kind, namespace, name, uid=found["metadata"]["uid"])
        doomed.append((kind, namespace, found))
    for kind, namespace, found in doomed:
        _wait_gone(cluster, kind, namespace, found, check)


def delete_objects(
    entry: RunEntry, connect: Callable[[], LiveCluster], tell: ProgressCallback, check: CheckOwner = unowned
) -> None:
    """Delete the objects of an app whose state is gone, where they are there and ours.

    The object that stands for the app goes last. It proves that the pods are ours, so that the next call finishes a
    deletion that was interrupted.

    Raises:
        ClusterError: The cluster cannot be reached, or an object does not go.
    """
    variant = _variant(entry)
    if variant is None or not entry.launch:
        return
    cluster = connect()
    if variant.makes_pods:
        _delete_followers(cluster, variant.job_object, entry, tell, check)
    _delete(cluster, variant.job_object, entry.namespace, entry.job_name, {labels.LAUNCH: entry.launch}, tell, check)


def refuse_others(checkpoint: Checkpoint | None, entry: RunEntry) -> None:
    """Refuse to forget a stack in which a program has put resources of its own: they would stay without a state.

    Raises:
        DeployError: There are such resources.
    """
    others = [] if checkpoint is None else list(checkpoint.others())
    if not others:
        return
    place = entry.place
    names = [f"{item.get('type')} {str(item.get('urn')).rpartition('::')[2]!r}" for item in others]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    raise DeployError(
        f"app {entry.app_id} cannot be forgotten: its stack {place.project}/{place.stack} also holds "
        f"{', '.join(names[:5])}{more}, which would stay without a state. In the folder of the program that made "
        "them, run `pulumi destroy`; if the cluster is gone for good, set PULUMI_K8S_DELETE_UNREACHABLE=true and "
        "run `pulumi refresh` first"
    )


def wait_for_pods(entry: RunEntry, connect: Callable[[], LiveCluster], check: CheckOwner = unowned) -> None:
    """Wait until pods that the engine itself deleted have ended: it is told not to wait for pods, as a gang may queue.

    Raises:
        ClusterError: The cluster cannot be reached, or a pod does not end.
    """
    variant = _variant(entry)
    if variant is None or not variant.makes_pods:
        return
    cluster, end = connect(), time.monotonic() + GONE_TIMEOUT_S
    selector = find_backend(entry.scheduler).pod_selector(entry.job_name)
    while pods := cluster.list(POD, entry.namespace, selector):
        if time.monotonic() > end:
            raise ClusterError(
                f"pod {entry.namespace}/{pods[0]['metadata']['name']} was deleted and is still there after "
                f"{GONE_TIMEOUT_S:.0f} s; look at its finalizers and its node",
                retryable=True,
            )
        check()
        time.sleep(POLL_S)


def _delete_followers(
    cluster: LiveCluster, head: Kind, entry: RunEntry, tell: ProgressCallback, check: CheckOwner
) -> None:
    """Delete the pods and the Service of a gang of pods, and wait until they are gone."""
    group = cluster.get(head, entry.namespace, entry.job_name)
    selector = find_backend(entry.scheduler).pod_selector(entry.job_name)
    found = [(POD, pod) for pod in cluster.list(POD, entry.namespace, selector)]
    service = cluster.get(SERVICE, entry.namespace, entry.job_name)
    found += [] if service is None else [(SERVICE, service)]
    doomed = [(kind, item) for kind, item in found if _is_follower(entry, item, group)]
    for kind, item in doomed:
        name = item["metadata"]["name"]
        tell(f"deleting {kind.kind} {entry.namespace}/{name}")
        cluster.delete(kind, entry.namespace, name, uid=item["metadata"]["uid"])
    for kind, item in doomed:
        _wait_gone(cluster, kind, entry.namespace, item, check)


def _is_follower(entry: RunEntry, found: Manifest, group: Manifest | None) -> bool:
    """Return whether a pod or Service that has the names of an app's is the app's, and not of another run.

    Args:
        entry: The app.
        found: The pod or Service.
        group: The PodGroup of that name. None: it is gone.
    """
    metadata = found["metadata"]
    mark = (metadata.get("annotations") or {}).get(labels.LAUNCH) or (metadata.get("labels") or {}).get(labels.LAUNCH)
    if mark is not None:
        return bool(mark == entry.launch)
    # Release 0.1.0 marked the PodGroup only.
    if metadata.get("ownerReferences") or not _is_named(entry, found):
        return False
    if group is not None:
        return bool((group["metadata"].get("labels") or {}).get(labels.LAUNCH) == entry.launch)
    created, launched = time_at(metadata, "creationTimestamp"), time_at({"at": entry.launched_at}, "at")
    return (
        created is not None and launched is not None and created >= launched - CLOCK_SKEW and _has_image(entry, found)
    )


def _is_named(entry: RunEntry, found: Manifest) -> bool:
    """Return whether a pod or Service is one that the app has by its names."""
    if found.get("kind") == SERVICE.kind:
        selector = (found.get("spec") or {}).get("selector") or {}
        return bool(selector.items() >= find_backend(entry.scheduler).pod_selector(entry.job_name).items())
    metadata = found["metadata"]
    group = (metadata.get("annotations") or {}).get(labels.GROUP_NAME)
    return group == entry.job_name and any(metadata["name"] in pods for pods in entry.pods.values())


def _has_image(entry: RunEntry, found: Manifest) -> bool:
    """Return whether a pod runs the image that its role was launched with; a Service has none."""
    if found.get("kind") == SERVICE.kind:
        return True
    images = {role.get("name"): role.get("image") for role in entry.declared.get("roles") or ()}
    role = next(role for role, pods in entry.pods.items() if found["metadata"]["name"] in pods)
    containers = (found.get("spec") or {}).get("containers") or ()
    return any(container.get("image") == images.get(role) for container in containers)


def _variant(entry: RunEntry) -> Variant | None:
    return find_backend(entry.scheduler).variants.get(entry.choice)


def _delete(
    cluster: LiveCluster,
    kind: Kind,
    namespace: str,
    name: str,
    wanted: Mapping[str, Any],
    tell: ProgressCallback,
    check: CheckOwner,
) -> None:
    found = cluster.get(kind, namespace, name)
    if found is None:
        return
    present = found["metadata"].get("labels") or {}
    if any(present.get(key) != value for key, value in wanted.items()):
        # Somebody else's object of that name.
        return
    tell(f"deleting {kind.kind} {namespace}/{name}")
    cluster.delete(kind, namespace, name, uid=found["metadata"]["uid"])
    _wait_gone(cluster, kind, namespace, found, check)


def _wait_gone(cluster: LiveCluster, kind: Kind, namespace: str, found: Manifest, check: CheckOwner) -> None:
    name, uid, end = found["metadata"]["name"], found["metadata"]["uid"], time.monotonic() + GONE_TIMEOUT_S
    while ((cluster.get(kind, namespace, name) or {}).get("metadata") or {}).get("uid") == uid:
        if time.monotonic() > end:
            raise ClusterError(
                f"{kind.kind} {namespace}/{name} was asked to go and is still there after {GONE_TIMEOUT_S:.0f} s; "
                "look at its finalizers and pods",
                retryable=True,
            )
        check()
        time.sleep(POLL_S)
