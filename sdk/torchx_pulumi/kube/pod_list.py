"""Pods of one job in a list: the first ones as objects and, if there are more, every pod as a row of a table.

A row has what `kubectl get pods -o wide` prints, in a hundredth of the bytes of the pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.object_fields import is_being_deleted, items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Manifest, Observed

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""Media type of rows."""

ABSENT: Final = "<none>"
"""Text of a table in place of a missing value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """One pod in short."""

    name: str
    status: str
    """The column STATUS of kubectl: a phase, why a container waits or ended, or `Terminating`."""
    phase: str | None = None
    """None: not known, `status` alone is."""
    ready: int
    """Containers that are ready."""
    containers: int
    """Containers, without init containers."""
    restarts: int
    address: str | None
    """IP address, if it has one."""
    node: str | None
    """None: not placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """The pods that match a selector."""

    pods: Sequence[Manifest]
    """The pods, or the first ones, by name; trimmed (`kube.trimming`)."""
    rows: Sequence[PodRow] | None = None
    """All of them in short, by name. None: `pods` has all."""
    version: str | None = None
    """`metadata.resourceVersion` of the list, if known."""


def read_rows(table: Observed, phase: str | None) -> Iterator[PodRow]:
    """Yield the rows of a table that an API server sent, of pods in one phase, or for None in any phase."""
    columns = [text_at(column, "name") for column in items_at(table, "columnDefinitions")]
    for row in items_at(table, "rows"):
        cells = row.get("cells")
        pairs = zip(columns, cells, strict=False) if isinstance(cells, list) else ()
        shown = {column: str(cell) for column, cell in pairs if cell not in ("", None, ABSENT)}
        if "Name" not in shown:
            continue
        ready = re.fullmatch(r"(\d+)/(\d+)", shown.get("Ready", ""))
        restarts = re.match(r"\d+", shown.get("Restarts", ""))
        yield PodRow(
            name=shown["Name"],
            status=shown.get("Status", ""),
            phase=phase,
            ready=int(ready[1]) if ready else 0,
            containers=int(ready[2]) if ready else 0,
            restarts=int(restarts[0]) if restarts else 0,
            address=shown.get("IP"),
            node=shown.get("Node"),
        )


def row_of(pod: Observed, phase: str | None) -> PodRow:
    """Return the row of a pod in memory, as an API server makes it.

    The row has the given phase. None: not known, as in a table of pods of any phase.
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


def _status(pod: Observed, running: int) -> str:
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


def _told(status: Observed) -> str | None:
    """Return why a container waits or ended, or None if it runs."""
    ended = mapping_at(status, "state", "terminated")
    return text_at(status, "state", "waiting", "reason") or (text_at(ended, "reason") or "Error" if ended else None)
