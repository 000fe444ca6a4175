"""Why an AppWrapper does not run: its place in the queue, its requests, and its obstacles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from torchx_pulumi.model.object_fields import is_being_deleted, latest, mapping_at, number_at, text_at, time_at
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import MAX_OBJECTS, STUCK, Diagnosis, JobState, Reason, ReplicaStatus
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.appwrapper.kueue_diagnosis import (
    describe_evictions,
    describe_stop,
    describe_wait,
    diagnose_kueue,
)
from torchx_pulumi.schedulers.appwrapper.phases import AppWrapper, kueue_queue, read_app_wrapper
from torchx_pulumi.schedulers.appwrapper.tasks import pod_templates
from torchx_pulumi.schedulers.diagnosis.evidence import MAX_NEIGHBOURS, Evidence, absent_controller, key_of, ref
from torchx_pulumi.schedulers.diagnosis.placement import diagnose_gang, diagnose_placement, request_of, vagueness
from torchx_pulumi.schedulers.diagnosis.pods import explain_replicas
from torchx_pulumi.schedulers.diagnosis.ranking import diagnose_status

MAX_STATEMENTS: Final = 4
"""Reasons for waiting that a message lists at most."""

GANG_REFUSED: Final = "the pods of the gang cannot all be placed at once"
"""First part of a message about a gang whose coscheduler names no cause."""

SCHEDULING_FAILED: Final = "FailedScheduling"
"""Reason of an event about a pod that a scheduler could not place."""

BEFORE_PLACEMENT: Final = (Reason.WAITING_IN_QUEUE, Reason.UNSCHEDULABLE)
"""Reasons for waiting that end when the pods have nodes."""

HELD: Final = ("Suspended", "Suspending")
"""Phases of an AppWrapper v1beta2 that Kueue may hold."""

WAITING: Final = (JobState.PENDING, JobState.SUBMITTED)


def diagnose_refusal(message: str) -> Diagnosis | None:
    """Return why the operator's webhook refused an AppWrapper v1beta2 for its number of pods.

    The message has all bytes of the AppWrapper before that.

    >>> diagnose_refusal("components contains 9 podspecs; at most 8 are allowed").summary
    'the AppWrapper has 9 Pods or Jobs; the webhook of its operator lets 8 pass'
    """
    many = re.search(r"components contains (\d+) podspecs; at most (\d+) are allowed", message)
    if many is None:
        return None
    return Diagnosis(
        reason=Reason.REFUSED,
        summary=f"the AppWrapper has {many[1]} Pods or Jobs; the webhook of its operator lets {many[2]} pass",
        detail=many[0],
        resolution="set layout to role or auto, in which the replicas of a role share a Job; with too many roles, ask "
        "for fewer, or use api_version v1beta1 (MCAD) or the scheduler volcano",
    )


def describe_mcad(evidence: Evidence) -> str | None:
    """Return an AppWrapper's message about itself in one line, or None if it is only the reason."""
    status, job_object = evidence.status, evidence.job_object
    if job_object is None:
        return None
    wrapper = read_app_wrapper(job_object)
    if status.reason is Reason.RETRIES_EXHAUSTED:
        times = "1 time" if wrapper.restarts == 1 else f"{wrapper.restarts} times"
        exhausted = f"started again {times}, of which {wrapper.limit} were allowed"
        return f"{exhausted}: {_failure(wrapper, status.replicas)}"
    if status.reason is Reason.RESTARTING and wrapper.reason is not Reason.RESTARTING:
        retry = f"to be started again, retry {wrapper.restarts + 1} of {wrapper.limit}"
        failed = any(replica.state is JobState.FAILED for replica in status.replicas)
        return retry if failed else f"{_failure(wrapper, status.replicas)}; {retry}"
    if status.state is JobState.FAILED:
        return _failure(wrapper, status.replicas)
    if status.state in WAITING:
        return _describe_wait(evidence, wrapper)
    if status.reason is Reason.STOPPING and (why := describe_stop(evidence)):
        return f"being stopped: {why}"
    if status.reason is Reason.RUNNING and (evictions := describe_evictions(evidence)):
        return f"running; {evictions}"
    if status.reason is Reason.RUNNING and evidence.pods is None and not wrapper.counts:
        return "running; its pods were not read, and only they show when it ends"
    return "the AppWrapper was deleted" if status.state is JobState.CANCELLED else None


def lost_replicas(wrapper: AppWrapper, replicas: Sequence[ReplicaStatus]) -> list[ReplicaStatus]:
    """Return the replicas whose pods were deleted, which ended the AppWrapper; empty if it ended otherwise.

    Later its controller deletes the other pods as well, and these replicas are not known any more.
    """
    gone = [replica for replica in replicas if replica.reason in (Reason.POD_GONE, Reason.STOPPING)]
    return gone if 0 < len(gone) <= wrapper.lost else []


def _failure(wrapper: AppWrapper, replicas: Sequence[ReplicaStatus]) -> str:
    if lost := lost_replicas(wrapper, replicas):
        pods = listed([replica.pod or "?" for replica in lost], MAX_NEIGHBOURS)
        return f"{pods} {'was' if len(lost) == 1 else 'were'} deleted before the end of the job; {wrapper.said}"
    failed = [replica for replica in replicas if replica.state is JobState.FAILED]
    if failed:
        return explain_replicas(failed, replicas)
    count = wrapper.counts.get(JobState.FAILED, 0)
    if count and (wrapper.state is not JobState.FAILED or wrapper.limit):
        return f"{count} of {len(replicas)} replicas failed; their pods are gone"
    return wrapper.said or _reported(wrapper)


def _reported(wrapper: AppWrapper) -> str:
    """Return the controller's report in one line."""
    if wrapper.phase is None:
        return f"submitted; {wrapper.controller} has not taken it up yet"
    return f"{wrapper.controller} reports {wrapper.phase!r}"


def _describe_wait(evidence: Evidence, wrapper: AppWrapper) -> str:
    own = (wrapper.phase and wrapper.said) or _reported(wrapper)
    if wrapper.phase == "Suspended":
        start = "suspended; set suspend to false to run it" if wrapper.reason is Reason.SUSPENDED else "about to start"
        own = start if kueue_queue(evidence.job_object) is None else describe_wait(evidence)
    replicas = evidence.status.replicas
    if evidence.status.reason is Reason.STARTING:
        # MCAD looks every 5 s: its phase may be older than its pods.
        own = f"its pods have nodes; {_reported(wrapper)}"
    statements: list[str] = []
    for _, text in find_waits(wrapper, evidence.status.reason, replicas, evidence.pod_groups, evidence.events):
        if not any(text in other or other in text for other in statements):
            statements.append(text)
    if evidence.status.reason is Reason.SUSPENDED:
        return "; ".join([own, *statements[: MAX_STATEMENTS - 1]])
    lead = [GANG_REFUSED] if statements and vagueness(statements[0]) > 1 else []
    return "; ".join([*lead, *statements[:MAX_STATEMENTS]]) or own


def find_waits(
    wrapper: AppWrapper,
    otherwise: Reason,
    replicas: Sequence[ReplicaStatus],
    pod_groups: Sequence[Observed],
    events: Sequence[Observed],
) -> list[tuple[Reason, str]]:
    """Return the reasons of a wait from all objects of a job, the most specific first.

    A warning of an unknown kind has the reason `otherwise`.
    """
    found: list[tuple[Reason, str]] = []
    for reasons in (STUCK, (Reason.UNSCHEDULABLE,), (Reason.STARTING,)):
        waiting = [replica for replica in replicas if replica.reason in reasons]
        if waiting:
            found.append((waiting[0].reason, explain_replicas(waiting, replicas)))
    placement = list(wrapper.waits)
    for pod_group in pod_groups:
        phase = text_at(pod_group, "status", "phase")
        if phase in ("Pending", "PreScheduling", "Unknown", "Failed"):
            text = f"PodGroup {text_at(pod_group, 'metadata', 'name') or '?'} is {phase}"
            placement.append((Reason.UNSCHEDULABLE, text))
    are_placed = all_placed(replicas)
    # What MCAD and its coscheduler said before the pods had a node stays in their objects for a while.
    found += [wait for wait in placement if not (are_placed and wait[0] in BEFORE_PLACEMENT)]
    for word, message in _warnings(events, replicas):
        found.append((Reason.UNSCHEDULABLE if word == SCHEDULING_FAILED else otherwise, f"{word}: {message}"))
    found.sort(key=lambda wait: vagueness(wait[1]))
    waiting = [replica for replica in replicas if replica.reason is Reason.WAITING_FOR_PODS]
    if not found and waiting:
        found = [(Reason.WAITING_FOR_PODS, explain_replicas(waiting, replicas))]
    return found


def placed_pods(replicas: Sequence[ReplicaStatus]) -> set[str | None]:
    """Return the pods that have a node and go on: these wait neither in a queue nor for a node."""
    goes_on = (JobState.PENDING, JobState.RUNNING)
    return {one.pod for one in replicas if one.node and one.state in goes_on and one.reason is not Reason.STOPPING}


def all_placed(replicas: Sequence[ReplicaStatus]) -> bool:
    """Return whether each replica has a pod that has a node and goes on."""
    return bool(replicas) and len(placed_pods(replicas)) == len(replicas)


def _warnings(events: Sequence[Observed], replicas: Sequence[ReplicaStatus]) -> Iterable[tuple[str, str]]:
    """Return the most specific warning of each kind among the events, the newest kind first.

    Failures to place a pod that has a node now are left out.
    """
    placed, are_placed = placed_pods(replicas), all_placed(replicas)
    warnings = [
        event
        for event in events
        if text_at(event, "type") == "Warning" and text_at(event, "message")
        if not (
            text_at(event, "reason") == SCHEDULING_FAILED
            and (are_placed or text_at(event, "involvedObject", "name") in placed)
        )
    ]
    best: dict[str, str] = {}
    for event in sorted(warnings, key=_age, reverse=True):
        word, message = text_at(event, "reason") or "event", text_at(event, "message") or ""
        if word not in best or vagueness(message) < vagueness(best[word]):
            best[word] = message
    return best.items()


def _age(event: Observed) -> str:
    time = latest(time_at(event, key) for key in ("lastTimestamp", "eventTime"))
    return "" if time is None else time.isoformat()


def diagnose_mcad(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield why an AppWrapper waits, or that a deleted pod ended it, without the problems of its pods."""
    job_object, status = evidence.job_object, evidence.status
    if status.state is JobState.FAILED and status.reason is Reason.POD_GONE and (lost := diagnose_status(evidence)):
        # Before the failures of other pods, which miss it.
        yield lost
    if status.phase in HELD and kueue_queue(job_object) is not None:
        yield from diagnose_kueue(evidence)
    if job_object is None or status.state not in WAITING:
        return
    if status.phase is None:
        if evidence.is_old(job_object):
            yield absent_controller(read_app_wrapper(job_object).controller, ref(job_object, "AppWrapper"))
        return
    needed = number_at(job_object, "spec", "schedulingSpec", "minAvailable")
    request = request_of(evidence, [mapping_at(pod, "spec") for _, pod in pod_templates(job_object)], needed)
    events = [text for word, text in _warnings(evidence.events, status.replicas) if word == SCHEDULING_FAILED]
    gang = list(diagnose_gang(evidence, request, events=events))
    yield from gang
    if status.reason is Reason.UNSCHEDULABLE and not gang:
        yield diagnose_placement(evidence, request, [status.message], [ref(job_object, "AppWrapper")])
    if text_at(job_object, "status", "state") == "Pending" and not placed_pods(status.replicas):
        yield _place_in_queue(evidence, job_object)


def _place_in_queue(evidence: Evidence, job_object: Observed) -> Diagnosis:
    """Return the place of an AppWrapper in MCAD's line, and the AppWrappers before it."""
    others = [one for one in evidence.neighbours if key_of(one) != key_of(job_object) and not is_being_deleted(one)]
    queued = [one for one in others if text_at(one, "status", "state") in ("Pending", None)]
    before = sorted((one for one in queued if _order(one) < _order(job_object)), key=_order)
    running = [one for one in others if text_at(one, "status", "state") in ("Running", "RunningHoldCompletion")]
    parts = [f"before it: {_names(before)}"] if before else []
    if running:
        parts.append(f"running: {_names(sorted(running, key=_order))}")
    place = f"number {len(before) + 1} of {len(queued) + 1}" if evidence.neighbours else "its place is not known"
    return Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"waiting in MCAD's line: {place}",
        detail="\n".join([*parts, evidence.status.message]),
        resolution="wait; MCAD takes one after the other, and one that cannot be placed blocks the rest: delete that "
        "one, or give this job a higher priority",
        objects=tuple(ref(one, "AppWrapper") for one in (job_object, *before, *running))[:MAX_OBJECTS],
    )


def _order(found: Observed) -> tuple[int, str, str]:
    priority = number_at(found, "status", "systempriority") or number_at(found, "spec", "priority") or 0
    return -priority, text_at(found, "metadata", "creationTimestamp") or "", text_at(found, "metadata", "name") or ""


def _names(found: Sequence[Observed]) -> str:
    return listed([f"{namespace or 'default'}/{name}" for namespace, name in map(key_of, found)], MAX_NEIGHBOURS)
