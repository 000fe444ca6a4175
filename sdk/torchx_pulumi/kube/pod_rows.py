"""Rows of pods that are in memory, as an API server makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_pulumi.kube.pod_list import PodRow
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, number_at, text_at


def row_of(pod: Mapping[str, Any], phase: str | None) -> PodRow:
    """Return the row of a pod.

    Args:
        pod: The pod.
        phase: The phase that the row has. None: not known, as in a table of pods of any phase.
    """
    statuses = items_at(pod, "status", "containerStatuses")
    running = [one for one in statuses if mapping_at(one, "state").get("running") is not None]
    return PodRow(
        name=text_at(pod, "metadata", "name") or "",
        status=_status(pod, len(running)),
        phase=phase,
        ready=sum(bool(one.get("ready")) for one in running),
        containers=len(items_at(pod, "spec", "containers")),
        restarts=sum(number_at(one, "restartCount") or 0 for one in statuses),
        address=text_at(pod, "status", "podIP"),
        node=text_at(pod, "spec", "nodeName"),
    )


def _status(pod: Mapping[str, Any], running: int) -> str:
    """Return the column STATUS (Kubernetes: `pkg/printers/internalversion/printers.go`, `printPod`)."""
    phase = text_at(pod, "status", "phase") or "Pending"
    if is_being_deleted(pod) and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    word = text_at(pod, "status", "reason") or phase
    conditions = items_at(pod, "status", "conditions")
    if any(text_at(one, "reason") == "SchedulingGated" for one in conditions):
        word = "SchedulingGated"
    wanted = items_at(pod, "spec", "initContainers")
    sidecars = {text_at(one, "name") for one in wanted if text_at(one, "restartPolicy") == "Always"}
    for place, one in enumerate(items_at(pod, "status", "initContainerStatuses")):
        told = _told(one)
        if told == "Completed" or (one.get("started") is True and text_at(one, "name") in sidecars):
            continue
        word = f"Init:{told or f'{place}/{len(wanted)}'}"
        if not any(text_at(one, "type") == "Initialized" and text_at(one, "status") == "True" for one in conditions):
            return word
        break
    # The first container is the last one that is looked at.
    for one in reversed(items_at(pod, "status", "containerStatuses")):
        word = _told(one) or word
    return "Running" if word == "Completed" and running else word


def _told(status: Mapping[str, Any]) -> str | None:
    """Return why a container waits or ended. None: it runs."""
    ended = mapping_at(status, "state", "terminated")
    return text_at(status, "state", "waiting", "reason") or (text_at(ended, "reason") or "Error" if ended else None)
