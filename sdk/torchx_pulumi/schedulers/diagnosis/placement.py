"""Why the pods of a run have no node: now or never, which resource is short, and which nodes could take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.object_fields import items_at, mapping_at, number_at, text_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import MAX_OBJECTS, Diagnosis, ObjectRef, Reason
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.diagnosis.claims import CLAIM, find_unbound
from torchx_pulumi.schedulers.diagnosis.evidence import MAX_NEIGHBOURS, Evidence, ref
from torchx_pulumi.schedulers.diagnosis.nodes import find_room
from torchx_pulumi.schedulers.diagnosis.obstacles import NOW_ADVICE, Obstacle, find_obstacles

MAX_STATEMENTS: Final = 3
"""Statements of schedulers that a diagnosis quotes at most."""

MAX_DETAIL: Final = 1000
"""Characters of them."""

POSSIBLE: Final = "can possibly be assigned"
"""Part of Volcano's message about a pod that has a node and waits for its gang; it names the node, which changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The pods that a run requests."""

    specs: Sequence[Observed]
    """The spec of every pod."""
    needed: int | None
    """Pods that the job needs to start. None: all."""
    gang_size: int
    """Pods that its largest gang starts together. 0: it has no gang."""

    @property
    def spare(self) -> int:
        """Return how many pods the job does not need to start."""
        return max(len(self.specs) - (self.needed or len(self.specs)), 0)


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


def find_misfits(evidence: Evidence, request: Request) -> tuple[Obstacle, ...]:
    """Return why empty nodes could not take the run; empty if they could, or if nodes were not read."""
    if evidence.nodes is None:
        return ()
    rooms = find_room(request.specs, evidence.nodes)
    return tuple(dict.fromkeys(room.why for room in rooms if room.why and room.pods - room.fits > request.spare))


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
    by_nodes = find_misfits(evidence, request)
    causes = tuple(dict.fromkeys(_cause(text) for text in messages if text))
    found = [find_obstacles(text) for text in causes if not vagueness(text)]
    named = list(dict.fromkeys(objects))
    is_told = any(found)
    lacks_volume = not is_told or any(one.unbound for obstacles in found for one in obstacles)
    if lacks_volume and (unbound := find_unbound(evidence.pods or (), evidence, unplaced=not is_told)):
        known = tuple(obstacle for obstacle, _ in unbound)
        found = [
            tuple(dict.fromkeys(new for one in obstacles for new in (known if one.unbound else (one,))))
            for obstacles in (found if is_told else [known])
        ]
        causes = (*causes, *(text_at(event, "message") or "" for _, event in unbound))
        named = [*(_claim_of(event) for _, event in unbound), *named]
    never = _what_lasts(by_nodes, [obstacles for obstacles in found if obstacles], request)
    # Which nodes a scheduler counts to which of two causes changes from one observation to the next.
    only_nodes = bool(never) and never == by_nodes
    quoted = [text for text in causes if not (only_nodes and re.match(r"\d+/\d+ nodes are ", text))]
    detail = "\n".join(quoted[:MAX_STATEMENTS])[:MAX_DETAIL]
    if never:
        return Diagnosis(
            reason=Reason.NEVER_SCHEDULABLE,
            summary=f"it can never be placed: {'; '.join(one.words for one in never)}",
            detail=detail,
            resolution="; ".join(dict.fromkeys(one.advice for one in never)),
            objects=tuple(named[:MAX_OBJECTS]),
        )
    every = tuple(dict.fromkeys(one for obstacles in (by_nodes, *found) for one in obstacles))
    ending = [one for one in every if not one.lasts]
    words = f": {'; '.join(one.words for one in ending)}" if ending else ""
    could = _nodes_that_could(evidence, request) if all(one.judged for one in every) else []
    where = f"; {listed(could, MAX_NEIGHBOURS)} could take it when free" if could else ""
    return Diagnosis(
        reason=Reason.UNSCHEDULABLE,
        summary=f"no node for it now{words}{where}",
        detail=detail,
        resolution="; ".join(dict.fromkeys(one.advice for one in ending)) or NOW_ADVICE,
        objects=tuple(named[:MAX_OBJECTS]),
    )


def _claim_of(event: Observed) -> ObjectRef:
    about = mapping_at(event, "involvedObject")
    return ObjectRef(kind=CLAIM, name=text_at(about, "name") or "?", namespace=text_at(about, "namespace"))


def _what_lasts(
    by_nodes: tuple[Obstacle, ...], found: Sequence[tuple[Obstacle, ...]], request: Request
) -> tuple[Obstacle, ...]:
    """Return the obstacles that no room removes; empty if room could place as many pods as the job needs to start.

    Args:
        by_nodes: What keeps them from empty nodes.
        found: What keeps pods from nodes, by each message of a scheduler.
        request: The pods that the run requests.
    """
    # A node that lacks only room may take the pods of a message later. A job that starts whole needs every pod.
    lasting = [obstacles for obstacles in found if all(one.lasts for one in obstacles)]
    if len(lasting) < len(found) and request.spare:
        lasting = []
    told = (one for obstacles in lasting for one in obstacles if not (by_nodes and one.judged))
    return tuple(dict.fromkeys((*(one for one in by_nodes if one.lasts), *told)))


def _nodes_that_could(evidence: Evidence, request: Request) -> list[str]:
    """Return the nodes that have room for one of the pods when they are empty; none if more than room decides."""
    if any({"affinity", "topologySpreadConstraints"} & spec.keys() for spec in request.specs):
        return []
    return sorted({name for room in find_room(request.specs, evidence.nodes or ()) for name in room.could})


def _cause(said: str) -> str:
    """Return the cause of one pod without what Volcano writes about the gang before it; the pod is not always the same.

    >>> _cause("1/3 tasks in gang unschedulable. Origin reason is a-0: 0/5 nodes are unavailable")
    '0/5 nodes are unavailable'
    """
    return re.sub(r"^.*\bOrigin reason is(?: \S+)?: ", "", said, flags=re.DOTALL).strip()


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
