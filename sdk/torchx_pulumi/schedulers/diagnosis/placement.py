"""Why the pods of a run have no node: now or never, which resource is short, and which nodes could take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import Diagnosis, ObjectRef, Reason
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.diagnosis.evidence import MAX_NEIGHBOURS, MAX_OBJECTS, Evidence, ref
from torchx_pulumi.schedulers.diagnosis.nodes import find_room

MAX_STATEMENTS: Final = 3
"""Statements of schedulers that a diagnosis quotes at most."""

MAX_DETAIL: Final = 1000
"""Characters of them."""

POSSIBLE: Final = "can possibly be assigned"
"""Part of Volcano's message about a pod that has a node and waits for its gang; it names the node, which changes."""

NOW_ADVICE: Final = "wait until there is room, stop what runs there, or ask for less"
NEVER_ADVICE: Final = (
    "ask for less, select other nodes (node_selector, tolerations), or add nodes; an autoscaler may be doing so"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The pods that a run requests."""

    specs: Sequence[Observed]
    """The spec of every pod."""
    needed: int | None
    """Pods that the job needs to start. None: all."""
    gang_size: int
    """Pods that its largest gang starts together. 0: it has no gang."""


def request_of(evidence: Evidence, specs: Sequence[Observed], needed: int | None) -> Request:
    """Return the request of a run, by the specs of its job object or else of its pods.

    `needed` is the number of pods that the job needs to start, or None for all.
    """
    gangs = [*evidence.pod_groups, evidence.job_object]
    return Request(
        specs=specs or [mapping_at(pod, "spec") for pod in evidence.pods or ()],
        needed=needed,
        gang_size=max(number_at(group, "spec", "minMember") or 0 for group in gangs),
    )


def never_fits(evidence: Evidence, request: Request) -> str:
    """Return why the run can never be placed; empty if it can, or if nodes were not read."""
    if evidence.nodes is None:
        return ""
    spare = max(len(request.specs) - (request.needed or len(request.specs)), 0)
    rooms = find_room(request.specs, evidence.nodes)
    return "; ".join(dict.fromkeys(room.why for room in rooms if room.why and room.pods - room.fits > spare))


def diagnose_gang(
    evidence: Evidence,
    request: Request,
    refused: Sequence[tuple[str, Observed]] = (),
    events: Sequence[str] = (),
) -> Iterator[Diagnosis]:
    """Yield why pods have no node, and why the gang waits for them.

    Args:
        evidence: The observed objects.
        request: The pods that the run requests.
        refused: Statements of the scheduler about gangs that it cannot place, with their PodGroups.
        events: Messages of the scheduler's events, for pods whose own messages hide the cause.
    """
    texts, objects = _unplaced(evidence)
    if not objects and not refused:
        return
    messages = sorted((*texts, *(text for text, _ in refused)), key=vagueness)
    if messages and vagueness(messages[0]):
        messages = sorted((*events, *messages), key=vagueness)
    where = [*(ref(group, "PodGroup") for _, group in refused), *objects]
    if messages:
        yield diagnose_placement(evidence, request, messages, where)
    pods, needed = evidence.pod_count, request.gang_size
    could = max(evidence.placed_count, _schedulable(messages))
    if needed > 1 and 0 < could < needed:
        yield _gang_waits(f"room for {could} of the {needed} replicas that it needs at once", where[:1])
    elif 0 < pods < needed:
        yield _gang_waits(f"{pods} of the {needed} replicas that it needs at once exist", where[:1])


def _gang_waits(why: str, where: Sequence[ObjectRef]) -> Diagnosis:
    return Diagnosis(
        reason=Reason.GANG_WAITING,
        summary=f"the gang waits as a whole: {why}",
        detail="",
        resolution="wait for the missing nodes; or set min_replicas, so that it starts with fewer replicas",
        objects=tuple(where),
    )


def _schedulable(messages: Iterable[str]) -> int:
    """Return how many pods Volcano could place, by its messages.

    >>> _schedulable(["2/3 tasks in gang unschedulable: ...; Pending: 2 Unschedulable, 1 Schedulable. Origin ..."])
    1
    """
    found = [int(number) for text in messages for number in re.findall(r"\b(\d{1,9}) Schedulable\b", text)]
    return max(found, default=0)


def vagueness(text: str) -> int:
    """Return how little a message explains, from 0: a scheduler that refuses the whole gang hides the first cause."""
    if "rejection in" in text:
        return 2
    return 1 if "sibling pods" in text else 0


def diagnose_placement(
    evidence: Evidence, request: Request, messages: Iterable[str], objects: Iterable[ObjectRef]
) -> Diagnosis:
    """Return why pods have no node.

    Args:
        evidence: The observed objects.
        request: The pods that the run requests.
        messages: Statements of schedulers about it, the most specific first.
        objects: Objects that these were read from.
    """
    never = never_fits(evidence, request)
    causes = dict.fromkeys(_cause(text) for text in messages if text)
    # Which nodes a scheduler counts to which of two causes changes from one observation to the next.
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
    could = sorted({name for room in find_room(request.specs, evidence.nodes or ()) for name in room.could})
    where = f"; {listed(could, MAX_NEIGHBOURS)} could take it when free" if could else ""
    return Diagnosis(
        reason=Reason.UNSCHEDULABLE,
        summary=f"no node for it now{_shortage(detail)}{where}",
        detail=detail,
        resolution=_advice(detail, NOW_ADVICE),
        objects=named,
    )


def _shortage(said: str) -> str:
    """Return what schedulers found short.

    >>> _shortage("0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.")
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
        (r"volume|persistentvolumeclaim", "its volumes are not available on the nodes"),
    ):
        if re.search(pattern, said):
            return f": {words}"
    return ""


def _cause(said: str) -> str:
    """Return the cause of one pod without what Volcano writes about the gang before it; the pod is not always the same.

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
        return "add tolerations for the taints of the nodes that the job should use"
    return otherwise


def _unplaced(evidence: Evidence) -> tuple[list[str], list[ObjectRef]]:
    """Return statements of schedulers about pods without a node, and these pods."""
    said: dict[str, None] = {}
    objects = []
    for pod in evidence.pods or ():
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
