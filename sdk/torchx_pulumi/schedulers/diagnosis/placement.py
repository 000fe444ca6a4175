"""Why the pods of a run have no node: now or never, for want of what, and which nodes could take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, ObjectRef, Observed, ref
from torchx_pulumi.schedulers.diagnosis.nodes import find_room
from torchx_pulumi.schedulers.diagnosis.pods import MAX_OBJECTS

MAX_STATEMENTS: Final = 3
"""Statements of schedulers that a diagnosis quotes at most."""

MAX_DETAIL: Final = 1000
"""Characters of them."""

POSSIBLE: Final = "can possibly be assigned"
"""Volcano's words for a pod that has a place and waits for the gang; they name the place, which changes."""

MAX_NODES: Final = 5
"""Nodes that a sentence names at most."""

NOW_ADVICE: Final = "wait until there is room, stop what runs there, or ask for less"
NEVER_ADVICE: Final = (
    "ask for less, select other nodes (node_selector, tolerations), or add nodes; an autoscaler may be doing so"
)


def wanted_specs(evidence: Evidence) -> list[Observed]:
    """Return the spec of every pod that the run asks for, from its head or else from its pods."""
    head, found = evidence.head, []
    for task in items_at(head, "spec", "tasks"):
        found += [mapping_at(task, "template", "spec")] * min(max(number_at(task, "replicas") or 0, 0), 10_000)
    for item in items_at(head, "spec", "resources", "GenericItems"):
        if text_at(item, "generictemplate", "kind") == "Pod":
            found.append(mapping_at(item, "generictemplate", "spec"))
    for item in items_at(head, "spec", "components"):
        if text_at(item, "template", "kind") == "Pod":
            found.append(mapping_at(item, "template", "spec"))
    return found or [mapping_at(pod, "spec") for pod in evidence.pods]


def never_fits(evidence: Evidence) -> str:
    """Say why the run can never be placed. Empty: it can, or nodes were not looked at."""
    if evidence.nodes is None:
        return ""
    rooms = find_room(wanted_specs(evidence), evidence.nodes)
    spare = max(len(wanted_specs(evidence)) - (_needed(evidence) or len(wanted_specs(evidence))), 0)
    bad = [room for room in rooms if room.why and room.pods - room.fits > spare]
    return "; ".join(dict.fromkeys(room.why for room in bad))


def diagnose_placement(evidence: Evidence, said: Sequence[str], objects: Iterable[ObjectRef]) -> Diagnosis:
    """Judge pods that have no node.

    Args:
        evidence: What was seen.
        said: What schedulers said of it, the most telling first.
        objects: Where they said it.
    """
    never = never_fits(evidence)
    causes = dict.fromkeys(_cause(text) for text in said if text)
    # Which nodes a scheduler counts to which of two causes changes from look to look, and we know better here.
    quoted = [text for text in causes if not (never and re.match(r"\d+/\d+ nodes are ", text))]
    detail = "\n".join(quoted[:MAX_STATEMENTS])[:MAX_DETAIL]
    named = tuple(dict.fromkeys(objects))[:MAX_OBJECTS]
    if never:
        return Diagnosis(
            reason=Reason.NEVER_SCHEDULABLE,
            summary=f"it can never be placed: {never}",
            detail=detail,
            resolution=_advice(never, NEVER_ADVICE),
            objects=named,
        )
    could = sorted({name for room in find_room(wanted_specs(evidence), evidence.nodes or ()) for name in room.could})
    shown = ", ".join(could[:MAX_NODES]) + (f" and {len(could) - MAX_NODES} more" if len(could) > MAX_NODES else "")
    where = f"; {shown} could take it when free" if could else ""
    return Diagnosis(
        reason=Reason.UNSCHEDULABLE,
        summary=f"no node for it now{_for_want_of(detail)}{where}",
        detail=detail,
        resolution=_advice(detail, NOW_ADVICE),
        objects=named,
    )


def _needed(evidence: Evidence) -> int | None:
    head = evidence.head
    return (
        number_at(head, "spec", "minAvailable")
        or number_at(head, "spec", "minMember")
        or number_at(head, "spec", "schedulingSpec", "minAvailable")
    )


def _for_want_of(said: str) -> str:
    """Name what schedulers found short.

    >>> _for_want_of("0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.")
    ': not enough cpu, memory'
    """
    short = re.findall(r"Insufficient ([a-z0-9][\w./-]*\w)", said)
    short += re.findall(r"overused ([a-z0-9][\w./-]*\w)", said)
    if short:
        return f": not enough {', '.join(dict.fromkeys(short))}"
    for pattern, words in (
        (r"node affinity/selector", "no node matches its selector"),
        (r"taint", "the nodes have taints that it does not tolerate"),
        (r"unschedulable", "the nodes are cordoned"),
        (r"volume|persistentvolumeclaim", "its volumes are not where the nodes are"),
    ):
        if re.search(pattern, said):
            return f": {words}"
    return ""


def _cause(said: str) -> str:
    """Leave out what Volcano says of the gang before the reason of one of its pods, which is not always the same pod.

    >>> _cause("1/3 tasks in gang unschedulable. Origin reason is a-0: 0/5 nodes are unavailable")
    '0/5 nodes are unavailable'
    """
    return re.sub(r"^.*\bOrigin reason is \S+: ", "", said, flags=re.DOTALL).strip()


def _advice(said: str, otherwise: str) -> str:
    if "Insufficient" in said:
        return otherwise
    if "affinity/selector" in said or "has the label" in said:
        return "correct node_selector (or the resource's capabilities), or label a node so"
    if "taint" in said:
        return "add tolerations for the taints of the nodes that the job is meant for"
    return otherwise


def unplaced(evidence: Evidence) -> tuple[list[str], list[ObjectRef]]:
    """Return what was said of pods that have no node, and which pods those are."""
    said: dict[str, None] = {}
    objects = []
    for pod in evidence.pods:
        for condition in items_at(pod, "status", "conditions"):
            if (
                text_at(condition, "type") == "PodScheduled"
                and text_at(condition, "status") == "False"
                and text_at(condition, "reason") != "SchedulingGated"
                and not text_at(pod, "spec", "nodeName")
            ):
                text = text_at(condition, "message") or "no node was found"
                if POSSIBLE not in text:
                    said[text] = None
                objects.append(ref(pod, "Pod"))
    return list(said), objects
