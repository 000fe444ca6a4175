"""Objects of an app that no state knows of: a launch was killed between creating an object and writing that down."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from torchx_pulumi import labels
from torchx_pulumi.cluster import LiveCluster
from torchx_pulumi.driver import Tell
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.forms import FORMS, Form
from torchx_pulumi.kinds import POD, Kind
from torchx_pulumi.manifest_objects import objects_of
from torchx_pulumi.runs.entry import RunEntry

from torchx_pulumi_stacks.automation.state_file import Checkpoint, is_object

GONE_TIMEOUT_S = 300.0
POLL_S = 0.2


def delete_unrecorded(checkpoint: Checkpoint, entry: RunEntry, connect: Callable[[], LiveCluster], tell: Tell) -> None:
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
            _delete(cluster, objects_of(inputs)[0][0], namespace, str(metadata.get("name")), wanted, tell)


def delete_head(entry: RunEntry, connect: Callable[[], LiveCluster], tell: Tell) -> None:
    """Delete the object that stands for an app whose state is gone, where it is there and ours.

    Raises:
        ClusterError: The cluster cannot be reached, or the object does not go.
    """
    form = _form(entry)
    if form is not None and entry.launch:
        _delete(connect(), form.head, entry.namespace, entry.job_name, {labels.LAUNCH: entry.launch}, tell)


def wait_for_pods(entry: RunEntry, connect: Callable[[], LiveCluster]) -> None:
    """Wait until pods that the engine itself deleted have ended: it is told not to wait for pods, as a gang may queue.

    Raises:
        ClusterError: The cluster cannot be reached, or a pod does not end.
    """
    form = _form(entry)
    if form is None or not form.makes_pods:
        return
    cluster, end = connect(), time.monotonic() + GONE_TIMEOUT_S
    while pods := cluster.list(POD, entry.namespace, {labels.VOLCANO_JOB_NAME: entry.job_name}):
        if time.monotonic() > end:
            raise ClusterError(
                f"pod {entry.namespace}/{pods[0]['metadata']['name']} was deleted and is still there after "
                f"{GONE_TIMEOUT_S:.0f} s; look at its finalizers and its node",
                retryable=True,
            )
        time.sleep(POLL_S)


def _form(entry: RunEntry) -> Form | None:
    forms = FORMS[entry.scheduler][1]
    return next((form for choice, form in forms.items() if choice.value == entry.choice), None)


def _delete(cluster: LiveCluster, kind: Kind, namespace: str, name: str, wanted: Mapping[str, Any], tell: Tell) -> None:
    found = cluster.get(kind, namespace, name)
    if found is None:
        return
    present = found["metadata"].get("labels") or {}
    if any(present.get(key) != value for key, value in wanted.items()):
        # Somebody else's object of that name.
        return
    uid = found["metadata"]["uid"]
    tell(f"deleting {kind.kind} {namespace}/{name}")
    cluster.delete(kind, namespace, name, uid=uid)
    end = time.monotonic() + GONE_TIMEOUT_S
    while ((cluster.get(kind, namespace, name) or {}).get("metadata") or {}).get("uid") == uid:
        if time.monotonic() > end:
            raise ClusterError(
                f"{kind.kind} {namespace}/{name} was asked to go and is still there after {GONE_TIMEOUT_S:.0f} s; "
                "look at its finalizers and pods",
                retryable=True,
            )
        time.sleep(POLL_S)
