"""Room for pods on the nodes of a cluster when nothing else runs there.

Labels, taints, cordons and amounts are judged. Affinity, volumes and topology are left to the scheduler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, text_at
from torchx_pulumi.model.options import Observed

SCALES: Final = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
"""Suffix of a Kubernetes quantity -> its factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room of nodes for pods with equal requests."""

    pods: int
    """Number of these pods."""
    fits: int
    """Number of them that have room at once on empty nodes; at most `pods`."""
    could: tuple[str, ...]
    """Nodes that have room for one of them, by name."""
    why: str
    """Why too few nodes have room. Empty: enough have."""


def amount(value: object) -> float:
    """Read a quantity; any other value reads as 0.

    >>> amount("1500m"), amount("16G"), amount("2"), amount(None)
    (1.5, 16000000000.0, 2.0, 0.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e30 else 0.0
    match = re.fullmatch(
        r"([+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?)([numkMGTPE]|[KMGTPE]i)?", str(value).strip()
    )
    return float(match[1]) * SCALES[match[2] or ""] if match else 0.0


def written_amount(resource: str, value: float) -> str:
    """Write an amount for people.

    >>> written_amount("cpu", 1.5), written_amount("memory", 16e9), written_amount("nvidia.com/gpu", 8)
    ('1.5 cpu', '16 GB memory', '8 nvidia.com/gpu')
    """
    if resource in ("memory", "ephemeral-storage"):
        return f"{value / 1e9:.3g} GB {resource}"
    return f"{value:.6g} {resource}"


def requests_of(spec: Observed) -> dict[str, float]:
    """Return the sum of the requests of a pod's containers; a limit without a request counts as one."""
    total: dict[str, float] = {}
    for container in items_at(spec, "containers"):
        asked = {**mapping_at(container, "resources", "limits"), **mapping_at(container, "resources", "requests")}
        for resource, value in asked.items():
            total[str(resource)] = total.get(str(resource), 0.0) + amount(value)
    return {resource: value for resource, value in total.items() if value > 0}


def find_room(specs: Sequence[Observed], nodes: Sequence[Observed]) -> list[Room]:
    """Judge pods by their specs, those that ask for the same together."""
    groups: dict[str, list[Observed]] = {}
    known: dict[int, str] = {}
    for spec in specs:
        # The pods of one template have one spec.
        asked = known.get(id(spec))
        if asked is None:
            asked = known[id(spec)] = repr([requests_of(spec), spec.get("nodeSelector"), spec.get("tolerations")])
        groups.setdefault(asked, []).append(spec)
    return [_room(group[0], len(group), nodes) for group in groups.values()]


def _room(spec: Observed, pods: int, nodes: Sequence[Observed]) -> Room:
    wanted = requests_of(spec)
    selector = {str(key): value for key, value in mapping_at(spec, "nodeSelector").items()}
    labelled = [one for one in nodes if selector.items() <= mapping_at(one, "metadata", "labels").items()]
    if not labelled:
        words = ", ".join(f"{key}={value}" for key, value in sorted(selector.items(), key=str))
        why = f"no node has the label {words}" if selector else "the cluster has no node"
        return Room(pods=pods, fits=0, could=(), why=why)
    open_to = [one for one in labelled if not _closed(one, spec)]
    if not open_to:
        which = f"all {len(labelled)} nodes that it may use are"
        return Room(pods=pods, fits=0, could=(), why=f"{which} cordoned, or have taints that it does not tolerate")
    counts = {text_at(one, "metadata", "name") or "?": _times(one, wanted) for one in open_to}
    could = tuple(sorted(name for name, count in counts.items() if count > 0))
    fits = min(pods, sum(counts.values()))
    if fits >= pods:
        return Room(pods=pods, fits=fits, could=could, why="")
    if could:
        each = " and ".join(written_amount(resource, value) for resource, value in sorted(wanted.items()))
        why = f"{pods} replicas of {each} each: the cluster has room for {fits} of them, even when it is empty"
        return Room(pods=pods, fits=fits, could=could, why=why)
    return Room(pods=pods, fits=0, could=(), why=_too_big(open_to, wanted))


def _too_big(nodes: Sequence[Observed], wanted: Mapping[str, float]) -> str:
    short = []
    for resource, value in sorted(wanted.items()):
        most = max(amount(mapping_at(one, "status", "allocatable").get(resource)) for one in nodes)
        if most < value:
            has = f"at most {written_amount(resource, most)}" if most else f"no {resource}"
            short.append(f"a replica asks for {written_amount(resource, value)}, the nodes that it may use have {has}")
    return "; ".join(short) or "no single node has all that a replica asks for"


def _times(node: Observed, wanted: Mapping[str, float]) -> int:
    has = mapping_at(node, "status", "allocatable")
    # A float's last bit must not decide.
    times = [math.floor(amount(has.get(resource)) / value + 1e-9) for resource, value in wanted.items()]
    slots = int(min(amount(has.get("pods", 110)), 1e6))
    return max(min([*times, slots]), 0)


def _closed(node: Observed, spec: Observed) -> bool:
    if mapping_at(node, "spec").get("unschedulable") is True:
        return True
    tolerations = items_at(spec, "tolerations")
    hard = [taint for taint in items_at(node, "spec", "taints") if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return any(not any(_tolerates(one, taint) for one in tolerations) for taint in hard)


def _tolerates(toleration: Observed, taint: Observed) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") in (None, ""):
        return toleration.get("operator") == "Exists"
    if toleration.get("key") != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
