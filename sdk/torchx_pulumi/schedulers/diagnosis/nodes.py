"""Room for pods on the nodes of a cluster when nothing else runs there.

Labels, taints, cordons, amounts and host ports are judged. Affinity, volumes and topology are left to the scheduler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import MAX_OBJECTS
from torchx_pulumi.schedulers.diagnosis.obstacles import Obstacle

SCALES: Final = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
"""Suffix of a Kubernetes quantity -> its factor."""


NEVER_ADVICE: Final = (
    "ask for less, select other nodes (node_selector, tolerations), or add nodes; an autoscaler may be doing so"
)
LABEL_ADVICE: Final = "correct node_selector (or the resource's capabilities), or label a node so"

CONDITION_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Beginnings of the keys of taints that Kubernetes gives to nodes that are not ready."""

CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room of nodes for pods with equal requests."""

    pods: int
    """Number of these pods."""
    fits: int
    """Number of them that have room at once on empty nodes; at most `pods`."""
    could: tuple[str, ...]
    """Nodes that have room for one of them, by name."""
    why: Obstacle | None
    """Why too few nodes have room. None: enough have."""


def amount(value: object) -> float:
    """Read a quantity; any other value reads as 0.

    >>> amount("1500m"), amount("16G"), amount("2"), amount(None)
    (1.5, 16000000000.0, 2.0, 0.0)
    >>> amount("8."), amount(".5Gi"), amount(".")
    (8.0, 536870912.0, 0.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e30 else 0.0
    match = re.fullmatch(
        r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?)([numkMGTPE]|[KMGTPE]i)?",
        str(value).strip(),
    )
    return float(match[1]) * SCALES[match[2] or ""] if match else 0.0


def written_amount(resource: str, value: float) -> str:
    """Write an amount for people.

    >>> written_amount("cpu", 1.5), written_amount("memory", 16e9), written_amount("nvidia.com/gpu", 8)
    ('1.5 cpu', '16 GB memory', '8 nvidia.com/gpu')
    """
    return f"{bare_amount(resource, value)} {resource}"


def bare_amount(resource: str, value: float) -> str:
    """Write an amount without the name of its resource."""
    return f"{value / 1e9:.3g} GB" if resource in ("memory", "ephemeral-storage") else f"{value:.6g}"


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
            asked = known[id(spec)] = repr(
                [requests_of(spec), spec.get("nodeSelector"), spec.get("tolerations"), host_ports_of(spec)]
            )
        groups.setdefault(asked, []).append(spec)
    return [_room(group[0], len(group), nodes) for group in groups.values()]


def host_ports_of(spec: Observed) -> list[int]:
    """Return the ports of the node that a pod's containers use. Only one pod of a node can have each."""
    on_host = mapping_at(spec).get("hostNetwork") is True
    ports = (port for container in items_at(spec, "containers") for port in items_at(container, "ports"))
    numbers = (number_at(port, "hostPort") or (number_at(port, "containerPort") if on_host else None) for port in ports)
    return sorted({number for number in numbers if number})


def _never(words: str, advice: str) -> Obstacle:
    return Obstacle(words=words, advice=advice, lasts=True, judged=True)


def _room(spec: Observed, pods: int, nodes: Sequence[Observed]) -> Room:
    wanted, ports = requests_of(spec), host_ports_of(spec)
    selector = {str(key): value for key, value in mapping_at(spec, "nodeSelector").items()}
    labelled = [one for one in nodes if selector.items() <= mapping_at(one, "metadata", "labels").items()]
    if not labelled:
        words = ", ".join(f"{key}={value}" for key, value in sorted(selector.items(), key=str))
        missing = _never(f"no node has the label {words}", LABEL_ADVICE)
        why = missing if selector else _never("the cluster has no node", NEVER_ADVICE)
        return Room(pods=pods, fits=0, could=(), why=why)
    open_to = [one for one in labelled if not _closed(one, spec)]
    if not open_to:
        return Room(pods=pods, fits=0, could=(), why=_all_closed(labelled, spec))
    counts = {text_at(one, "metadata", "name") or "?": _times(one, wanted, ports) for one in open_to}
    could = tuple(sorted(name for name, count in counts.items() if count > 0))
    fits = min(pods, sum(counts.values()))
    if fits >= pods:
        return Room(pods=pods, fits=fits, could=could, why=None)
    if could:
        has = [written_amount(resource, value) for resource, value in sorted(wanted.items())]
        each = " and ".join([*has, *(f"host port {port}" for port in ports)])
        words = f"{pods} replicas of {each} each: the cluster has room for {fits} of them, even when it is empty"
        return Room(pods=pods, fits=fits, could=could, why=_never(words, NEVER_ADVICE))
    return Room(pods=pods, fits=0, could=(), why=_never(_too_big(open_to, wanted), NEVER_ADVICE))


def _all_closed(nodes: Sequence[Observed], spec: Observed) -> Obstacle:
    """Return why none of these nodes takes a pod: taints by name, or cordons."""
    taints = {taint for one in nodes for taint in _untolerated(one, spec)}
    broken = {taint for taint in taints if taint.startswith(CONDITION_TAINTS)}
    causes: list[tuple[str, str]] = []
    if any(_is_cordoned(one, spec) for one in nodes):
        causes.append(("cordoned", "have a node uncordoned (`kubectl uncordon NODE`) or added"))
    if own := sorted(taints - broken):
        words = f"closed by taints that it does not tolerate ({', '.join(own[:MAX_OBJECTS])})"
        causes.append((words, "add tolerations for the taints of the nodes that the job should use"))
    # A node that is not ready may become so without anybody's help.
    lasts = bool(causes)
    if broken:
        causes.append(("not ready", "see why nodes are not ready (`kubectl describe nodes`)"))
    which = f"all {len(nodes)} nodes" if len(nodes) > 1 else "the only node"
    words = f"{which} that it may use: {' or '.join(words for words, _ in causes)}"
    return Obstacle(words=words, advice="; ".join(advice for _, advice in causes), lasts=lasts, judged=True)


def _too_big(nodes: Sequence[Observed], wanted: Mapping[str, float]) -> str:
    short = []
    for resource, value in sorted(wanted.items()):
        most = max(amount(mapping_at(one, "status", "allocatable").get(resource)) for one in nodes)
        if most < value:
            has = f"at most {written_amount(resource, most)}" if most else f"no {resource}"
            short.append(f"a replica asks for {written_amount(resource, value)}, the nodes that it may use have {has}")
    return "; ".join(short) or "no single node has all that a replica asks for"


def _times(node: Observed, wanted: Mapping[str, float], ports: Sequence[int]) -> int:
    has = mapping_at(node, "status", "allocatable")
    # A float's last bit must not decide.
    times = [math.floor(amount(has.get(resource)) / value + 1e-9) for resource, value in wanted.items()]
    slots = 1 if ports else int(min(amount(has.get("pods", 110)), 1e6))
    return max(min([*times, slots]), 0)


def _closed(node: Observed, spec: Observed) -> bool:
    return _is_cordoned(node, spec) or bool(_untolerated(node, spec))


def _is_cordoned(node: Observed, spec: Observed) -> bool:
    cordon = {"key": CORDON_TAINT, "effect": "NoSchedule"}
    is_tolerated = any(_tolerates(one, cordon) for one in items_at(spec, "tolerations"))
    return mapping_at(node, "spec").get("unschedulable") is True and not is_tolerated


def _untolerated(node: Observed, spec: Observed) -> list[str]:
    """Return the taints that keep a pod from a node, without those of a cordon."""
    taints = [taint for taint in items_at(node, "spec", "taints") if taint.get("key") != CORDON_TAINT]
    return untolerated(taints, items_at(spec, "tolerations"))


def untolerated(taints: Sequence[Observed], tolerations: Sequence[Observed]) -> list[str]:
    """Return the taints that keep pods with these tolerations away, as kubectl writes them."""
    return [
        f"{taint.get('key')}{f'={value}' if (value := taint.get('value')) else ''}:{taint.get('effect')}"
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        if not any(_tolerates(one, taint) for one in tolerations)
    ]


def _tolerates(toleration: Observed, taint: Observed) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") in (None, ""):
        return toleration.get("operator") == "Exists"
    if toleration.get("key") != taint.get("key"):
        return False
    if toleration.get("operator") in ("Gt", "Lt"):
        # Which of the numbers is larger is left to the scheduler.
        return True
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
