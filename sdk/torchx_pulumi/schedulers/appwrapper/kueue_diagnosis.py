"""Why Kueue holds a job back, or has evicted it: its Workload's conditions in words, with numbers of its queue."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torchx_pulumi.model.object_fields import at, items_at, number_at, text_at, time_at
from torchx_pulumi.model.options import Manifest, Observed
from torchx_pulumi.model.status import Diagnosis, ObjectRef, Reason
from torchx_pulumi.model.text import in_words
from torchx_pulumi.model.timestamps import time_text
from torchx_pulumi.schedulers.appwrapper.kueue import (
    QueueObjects,
    condition_of,
    evictions_of,
    is_true,
    pod_sets_of,
    preemptor_uid,
    queues_in,
    workload_in,
)
from torchx_pulumi.schedulers.appwrapper.objects import LOCAL_QUEUE, WORKLOAD
from torchx_pulumi.schedulers.appwrapper.phases import kueue_queue
from torchx_pulumi.schedulers.appwrapper.quotas import exceeds
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, absent_controller, ref
from torchx_pulumi.schedulers.diagnosis.nodes import bare_amount, written_amount

LASTS: Final = re.compile(
    r"insufficient quota for \S+ in flavor (?P<short>[^\s,]+), previously considered podsets requests "
    r"\((?P<before>\S+)\)"
    r"|untolerated taint [^,;]* in flavor (?P<tainted>[^\s,;]+)"
    r"|[Ff]lavor \"?(?P<unfit>[^\s\"]+)\"? (?:not found|doesn't match node affinity|supports only|does not)"
)
"""What Kueue says about a flavor that no waiting makes fit (`pkg/scheduler/flavorassigner`)."""

NOT_YET: Final = re.compile(r"insufficient unused quota for \S+ in flavor ([^\s,;]+)")
"""What it says about a flavor that fits once others have ended."""

INVALID: Final = ("resources validation failed", "resources didn't satisfy LimitRange constraints")
"""Prefixes of its messages about pods whose requests are not allowed (`pkg/workload/resources.go`)."""

LOST: Final = re.compile(r"ClusterQueue \S+ (?:not found|doesn't exist)")
INACTIVE: Final = re.compile(r"(?:ClusterQueue|LocalQueue) \S+ is inactive")

UNSAID: Final = ("", "Bypassed scheduling evaluation because an equivalent workload recently failed")
"""What it says about a job that it has not tried: another one that asks for the same did not fit."""

POD_SET: Final = "couldn't assign flavors to pod set"
"""Start of its sentence about a pod set."""

SHORT: Final = re.compile(r"insufficient (?:unused )?quota for (?P<resource>\S+) in flavor ")
UNCOVERED: Final = re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")

OPEN_ADVICE: Final = "have it started again (`stopPolicy: None`), or launch with another local_queue"
LESS_ADVICE: Final = "ask for less, launch with another local_queue, or have the quota of its ClusterQueue raised"
QUOTA_ADVICE: Final = (
    "wait until jobs of its queue end, or ask for less; a WorkloadPriorityClass may let it go before others"
)

STOPPED: Final = {
    "ClusterQueueStopped": "its ClusterQueue was stopped",
    "LocalQueueStopped": "its LocalQueue was stopped",
}
"""Reason of an eviction by a stopped queue -> words."""

EVICTED: Final = {
    "PodsReadyTimeout": "its pods were not ready in time",
    "AdmissionCheck": "an admission check took its consent back",
    "NodeFailures": "nodes of its pods failed",
    "Deactivated": "its Workload was deactivated",
    **STOPPED,
}
"""Reason of an eviction -> words."""

KEEPS_OUT: Final = frozenset({Reason.QUEUE_MISSING, Reason.QUEUE_CLOSED, Reason.NEVER_SCHEDULABLE})
"""Reasons that no waiting ends."""


def describe_wait(evidence: Evidence) -> str:
    """Describe the wait of a job for Kueue, as far as its reason is not known."""
    where = f"waiting for Kueue's LocalQueue {kueue_queue(evidence.job_object)!r} to admit the job"
    if WORKLOAD not in evidence.admission:
        return f"{where}; the reason is in its Workload, which was not read (permission: list workloads.kueue.x-k8s.io)"
    return where


def describe_evictions(evidence: Evidence) -> str | None:
    """Return how often Kueue has evicted a job that runs again, or None if it never did, or that is not known."""
    workload = workload_in(evidence.admission, evidence.uid)
    counts = evictions_of(workload)
    if not counts or is_true(workload, "Evicted"):
        return None
    times = _times(sum(counts.values()))
    reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
    again = time_text(time_at(condition_of(workload, "Admitted"), "lastTransitionTime"))
    return f"evicted by Kueue {times} ({reasons}), admitted again at {again}"


def describe_stop(evidence: Evidence) -> str | None:
    """Describe why Kueue stops a job; None if it does not stop it, or its Workload was not read."""
    workload = workload_in(evidence.admission, evidence.uid)
    return _evicted(evidence, workload).summary if workload is not None and is_true(workload, "Evicted") else None


def diagnose_kueue(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield why Kueue holds a job back, or has evicted it. Nothing: it does not, or that may not be read."""
    job_object, objects = evidence.job_object, evidence.admission
    if WORKLOAD not in objects:
        yield from _without_workload(evidence)
        return
    workload = workload_in(objects, evidence.uid)
    if workload is None:
        if (missing := _queue_trouble(evidence, "")) is not None:
            yield missing
        elif evidence.is_old(job_object):
            yield absent_controller("Kueue", ref(job_object, "AppWrapper"))
        return
    if at(workload, "spec", "active") is False:
        yield _deactivated(evidence, workload)
        return
    evicted = _evicted(evidence, workload) if is_true(workload, "Evicted") else None
    reserved = condition_of(workload, "QuotaReserved")
    if reserved.get("status") == "True":
        yield from _checks(workload)
        return
    message = text_at(reserved, "message") or ""
    trouble = _queue_trouble(evidence, message) or _quota(evidence, workload, message)
    # What keeps it out now counts more than why it was stopped, unless it only waits again.
    if evicted is not None and (evicted.reason is Reason.QUEUE_CLOSED or trouble.reason not in KEEPS_OUT):
        yield evicted
    yield trouble


def _without_workload(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield what the queues say alone."""
    if LOCAL_QUEUE in evidence.admission and (trouble := _queue_trouble(evidence, "")) is not None:
        yield trouble


def _evicted(evidence: Evidence, workload: Manifest) -> Diagnosis:
    condition = condition_of(workload, "Evicted")
    word, when = text_at(condition, "reason") or "?", time_text(time_at(condition, "lastTransitionTime"))
    count = evictions_of(workload).get(word, 1)
    often = f" ({_times(count)} in all)" if count > 1 else ""
    objects = [_ref(workload)]
    if word == "Preempted":
        uid = preemptor_uid(workload)
        by = None if uid is None else workload_in(evidence.admission, uid)
        who = "another job" if by is None else _owner(by)
        objects += [] if by is None else [_ref(by)]
        then = "" if evidence.status.reason is Reason.STOPPING else "; it waits in its queue again"
        return Diagnosis(
            reason=Reason.PREEMPTED,
            summary=f"Kueue stopped it at {when} to make room for {who}{often}{then}",
            detail=text_at(condition_of(workload, "Preempted"), "message") or "",
            resolution="wait until it is admitted again, which starts it from its beginning; or have its "
            "WorkloadPriorityClass raised",
            objects=tuple(objects),
        )
    why = EVICTED.get(word, word)
    return Diagnosis(
        reason=Reason.QUEUE_CLOSED if word in STOPPED else Reason.EVICTED,
        summary=f"Kueue evicted it at {when}{often}: {why}{_next_try(workload)}",
        detail=text_at(condition, "message") or "",
        resolution=OPEN_ADVICE
        if word in STOPPED
        else "wait: it is queued again by itself; see why its pods did not start (`torchx status`, its events)",
        objects=tuple(objects),
    )


def _next_try(workload: Observed) -> str:
    """Return in words when Kueue queues an evicted job again, and how often it has; empty if it does not say."""
    count = number_at(workload, "status", "requeueState", "count")
    at_ = time_text(time_at(workload, "status", "requeueState", "requeueAt"))
    if not count:
        return ""
    return f"; requeued {_times(count)}" + (f", next at {at_}" if at_ and not is_true(workload, "Requeued") else "")


def _deactivated(evidence: Evidence, workload: Manifest) -> Diagnosis:
    condition = condition_of(workload, "Evicted")
    said = text_at(condition, "message") or text_at(condition_of(workload, "QuotaReserved"), "message") or ""
    namespace, name = text_at(workload, "metadata", "namespace"), text_at(workload, "metadata", "name")
    by_limit = "RequeuingLimitExceeded" in (text_at(condition, "reason") or "")
    often = f" {_times(count)}" if (count := _requeues(workload)) else ""
    why = f", as it was requeued{often} without success" if by_limit else ""
    return Diagnosis(
        reason=Reason.SUSPENDED,
        summary=f"its Workload is deactivated in Kueue{why}: it does not run until somebody activates it",
        detail=said,
        resolution=f'kubectl patch workload -n {namespace} {name} --type merge -p \'{{"spec":{{"active":true}}}}\'; or '
        f"delete the job",
        objects=(_ref(workload), ref(evidence.job_object, "AppWrapper")),
    )


def _requeues(workload: Observed) -> int:
    return number_at(workload, "status", "requeueState", "count") or evictions_of(workload).get("PodsReadyTimeout", 0)


def _checks(workload: Manifest) -> Iterator[Diagnosis]:
    """Yield the admission checks that a job with quota waits for."""
    if is_true(workload, "Admitted"):
        return
    waits = [one for one in items_at(workload, "status", "admissionChecks") if one.get("state") != "Ready"]
    if not waits:
        return
    checks = [f"{one.get('name')!r} is {one.get('state')}" for one in waits]
    yield Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"its quota is reserved; it waits for admission check {', '.join(checks)}",
        detail="\n".join(text for one in waits if (text := text_at(one, "message"))),
        resolution="wait; or see the controller of the admission check (`kubectl describe admissionchecks`)",
        objects=(_ref(workload),),
    )


def _queue_trouble(evidence: Evidence, message: str) -> Diagnosis | None:
    """Return why the queue of a job admits nothing, or nothing of its namespace; None if it does."""
    queues, name = queues_in(evidence.admission), kueue_queue(evidence.job_object)
    job, namespace = evidence.job_object, text_at(evidence.job_object, "metadata", "namespace")
    where: list[ObjectRef] = [ref(job, "AppWrapper")]
    if queues.local_queue is None:
        is_known = LOCAL_QUEUE in evidence.admission or re.fullmatch(r"LocalQueue \S+ doesn't exist", message)
        if not is_known:
            return _closed(message, message, where) if INACTIVE.fullmatch(message) else None
        summary = f"there is no LocalQueue {name!r} in namespace {namespace!r}"
        advice = "have the LocalQueue created, or launch with another local_queue"
        return Diagnosis(
            reason=Reason.QUEUE_MISSING, summary=summary, detail=message, resolution=advice, objects=tuple(where)
        )
    where.append(ref(queues.local_queue, LOCAL_QUEUE.kind))
    if message == "workload namespace doesn't match ClusterQueue selector":
        return Diagnosis(
            reason=Reason.QUEUE_CLOSED,
            summary=f"{queues.words} takes no jobs of namespace {namespace!r}",
            detail=message,
            resolution="have the namespace labelled as its namespaceSelector wants, or launch with another local_queue",
            objects=tuple(where),
        )
    active = condition_of(queues.local_queue, "Active")
    word, said = text_at(active, "reason"), text_at(active, "message") or ""
    if active.get("status") != "False":
        # The Workload knows what its LocalQueue does not say, or not yet.
        if INACTIVE.fullmatch(message):
            return _closed(message, message, where)
        if not LOST.fullmatch(message):
            return None
        word, said = "ClusterQueueDoesNotExist", message
    if word == "ClusterQueueDoesNotExist":
        return Diagnosis(
            reason=Reason.QUEUE_MISSING,
            summary=f"LocalQueue {name!r} leads to {queues.words}, which does not exist",
            detail=said,
            resolution="have the ClusterQueue created, or launch with another local_queue",
            objects=tuple(where),
        )
    if word == "Stopped":
        return _closed(f"LocalQueue {name!r} is stopped", message, where)
    own = text_at(condition_of(queues.cluster_queue, "Active"), "message")
    return _closed(f"{queues.words} admits no jobs", own or said, where)


def _closed(summary: str, detail: str, where: Sequence[ObjectRef]) -> Diagnosis:
    return Diagnosis(
        reason=Reason.QUEUE_CLOSED, summary=summary, detail=detail, resolution=OPEN_ADVICE, objects=tuple(where)
    )


def _quota(evidence: Evidence, workload: Manifest, message: str) -> Diagnosis:
    """Return which quota a job lacks, now or for ever, by what Kueue says of it."""
    queues = queues_in(evidence.admission)
    where = (_ref(workload), *([] if queues.local_queue is None else [ref(queues.local_queue, LOCAL_QUEUE.kind)]))
    asked = _asked(workload)
    if message.startswith(INVALID):
        advice = "correct the requests and limits of its pods (`kubectl describe limitranges`), and launch it again"
        return Diagnosis(reason=Reason.NEVER_SCHEDULABLE, summary=message, detail="", resolution=advice, objects=where)
    if uncovered := [match["resource"] for match in UNCOVERED.finditer(message)]:
        summary = f"asks for {_all_of(uncovered)}, for which {queues.words} has no quota"
        return Diagnosis(
            reason=Reason.NEVER_SCHEDULABLE, summary=summary, detail=message, resolution=LESS_ADVICE, objects=where
        )
    resources = [*dict.fromkeys(match["resource"] for match in SHORT.finditer(message))]
    if message in UNSAID:
        resources = _taken(queues, asked)
    wants = _all_of([written_amount(one, asked.get(one, 0.0)) for one in resources])
    # Kueue judges pod sets one by one, by what is unused.
    if _is_for_ever(message) or any(exceeds(asked.get(one, 0.0), _amounts(queues, one)[1]) for one in resources):
        most = _most(queues, resources)
        summary = f"asks for {wants}; {queues.words} can have at most {most}" if resources and most else message
        return Diagnosis(
            reason=Reason.NEVER_SCHEDULABLE, summary=summary, detail=message, resolution=LESS_ADVICE, objects=where
        )
    if resources:
        free = _free(queues, resources)
        return Diagnosis(
            reason=Reason.OVER_QUOTA,
            summary=f"asks for {wants}; {free or 'not so much is free'} in {queues.words}",
            detail=message,
            resolution=QUOTA_ADVICE,
            objects=where,
        )
    pending = number_at(queues.cluster_queue or queues.local_queue, "status", "pendingWorkloads")
    behind = f", which has {pending} waiting jobs" if pending and pending > 1 else ""
    return Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"waits for its turn in {queues.words}{behind}" if message in UNSAID else message,
        detail="",
        resolution=QUOTA_ADVICE,
        objects=where,
    )


def _is_for_ever(message: str) -> bool:
    """Return whether a pod set fits into no flavor, however long it waits; Kueue says one sentence for each pod set.

    >>> short = "insufficient quota for gpu in flavor b, previously considered podsets requests (6) + current"
    >>> _is_for_ever(short), _is_for_ever(f"flavor a doesn't match node affinity, {short}")
    (True, False)
    """
    flavors = {*map(_flavor, LASTS.finditer(message)), *NOT_YET.findall(message)}
    for sentence in message.split(POD_SET):
        lasting: set[str] = set()
        waiting = {*NOT_YET.findall(sentence)}
        for found in LASTS.finditer(sentence):
            # What other pod sets have taken of it they may take of another flavor.
            depends = found["before"] not in (None, "0") and len(flavors) > 1
            (waiting if depends else lasting).add(_flavor(found))
        if lasting and waiting <= lasting:
            return True
    return False


def _flavor(found: re.Match[str]) -> str:
    return found["short"] or found["tainted"] or found["unfit"]


def _asked(workload: Observed) -> dict[str, float]:
    """Return the sum of the requests of a Workload, by resource."""
    total: dict[str, float] = {}
    for pod_set in pod_sets_of(workload):
        for resource, value in pod_set.requests.items():
            total[resource] = total.get(resource, 0.0) + value
    return total


def _taken(queues: QueueObjects, asked: Mapping[str, float]) -> list[str]:
    """Return the resources whose free quota is too small for a job. Unknown quota counts as large enough."""
    free = {resource: _amounts(queues, resource)[0] for resource in asked}
    return [one for one, most in free.items() if most is not None and exceeds(asked[one], most)]


def _amounts(queues: QueueObjects, resource: str) -> tuple[float | None, float]:
    """Return how much of a resource is free, and the most that jobs can have. None and infinite: not known.

    Quotas of several flavors are added up.
    """
    quotas = [quota for (_, name), quota in queues.quotas.items() if name == resource]
    free = [quota.free for quota in quotas if quota.free is not None]
    if not quotas:
        return None, math.inf
    return sum(free) if len(free) == len(quotas) else None, sum(quota.most for quota in quotas)


def _free(queues: QueueObjects, resources: Sequence[str]) -> str:
    """Describe the free quota for some resources, by flavor; empty if it is unknown."""
    found = []
    for resource in resources:
        quotas = {flavor: quota for (flavor, name), quota in queues.quotas.items() if name == resource}
        for flavor, quota in quotas.items():
            if quota.free is None:
                return ""
            known = f" of {bare_amount(resource, quota.most)}" if math.isfinite(quota.most) else ""
            where = f" in flavor {flavor!r}" if len(quotas) > 1 else ""
            found.append(f"{bare_amount(resource, quota.free)}{known} {resource}{where}")
    return f"{_all_of(found)} are free" if found else ""


def _most(queues: QueueObjects, resources: Sequence[str]) -> str:
    """Return the most that jobs can have of some resources, by flavor; empty if that is not known."""
    quotas = {key: quota.most for key, quota in queues.quotas.items() if key[1] in resources}
    if not quotas or not all(map(math.isfinite, quotas.values())):
        return ""
    return _all_of(
        [f"{written_amount(resource, most)} in flavor {flavor!r}" for (flavor, resource), most in quotas.items()]
    )


def _all_of(texts: Sequence[str]) -> str:
    return in_words(texts, "and") if len(texts) > 1 else "".join(texts)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _owner(workload: Observed) -> str:
    """Return the job of a Workload in words: `AppWrapper team/other`."""
    owner = next(iter(items_at(workload, "metadata", "ownerReferences")), {})
    namespace = text_at(workload, "metadata", "namespace")
    return f"{text_at(owner, 'kind') or 'Workload'} {namespace}/{text_at(owner, 'name') or '?'}"


def _ref(workload: Observed) -> ObjectRef:
    return ref(workload, WORKLOAD.kind)
