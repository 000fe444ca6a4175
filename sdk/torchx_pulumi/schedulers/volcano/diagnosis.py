"""Why a job on Volcano does not run: its controller, its queue, its scheduler, its retries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime

from torchx_pulumi.model.object_fields import (
    is_being_deleted,
    items_at,
    latest,
    mapping_at,
    number_at,
    text_at,
    time_at,
)
from torchx_pulumi.model.options import Observed
from torchx_pulumi.model.status import MAX_OBJECTS, Diagnosis, JobState, ObjectRef, Reason
from torchx_pulumi.model.text import listed
from torchx_pulumi.schedulers.diagnosis.evidence import (
    MAX_NEIGHBOURS,
    PATIENCE,
    Evidence,
    ObservedObjects,
    absent_controller,
    key_of,
    quote,
    ref,
)
from torchx_pulumi.schedulers.diagnosis.nodes import amount, requests_of, written_amount
from torchx_pulumi.schedulers.diagnosis.placement import (
    Request,
    diagnose_gang,
    diagnose_placement,
    find_misfits,
    request_of,
)
from torchx_pulumi.schedulers.diagnosis.refusal_rules import diagnose_message
from torchx_pulumi.schedulers.pods.status import UNREADABLE, has_been_over
from torchx_pulumi.schedulers.volcano.status import (
    ADMITTED_PHASES,
    PHASES,
    missing_pods,
    pod_counts,
    unschedulable,
)
from torchx_pulumi.schedulers.volcano.tasks import awaited_roles, ending_roles, restarts_left, tasks_of

CONTROLLER = "Volcano's job controller"

FAILED_CREATE = "FailedCreate"
"""Reason of the event of a job whose pods cannot be made."""

AGAIN = "Volcano gives the job up after about three minutes: then launch it again"
"""Volcano's controller ends a job as terminated after `--max-requeue-num` (15) attempts, each later than the last."""


def describe_volcano(evidence: Evidence) -> str | None:
    """Return the message of Volcano's objects about a run in one line, or None if it is only the reason."""
    status, job_object = evidence.status, evidence.job_object
    if status.reason is Reason.WAITING_IN_QUEUE:
        return f"waiting for queue {queue_of(evidence)!r} to admit the gang"
    if status.reason is Reason.UNSCHEDULABLE:
        return next((text for group in _groups(evidence) if (text := unschedulable(group))), None)
    if not _is_job(evidence):
        return _describe_pods(evidence)
    if status.state is JobState.SUCCEEDED and is_queue_gone(evidence):
        return f"completed, as its pods show; Volcano does not look at it, as queue {queue_of(evidence)!r} is gone"
    if status.state is JobState.SUCCEEDED and _is_left(evidence):
        return f"completed, as its pods show; {CONTROLLER} has not looked at it for a minute"
    if status.state is JobState.SUCCEEDED and status.phase == "Terminated":
        return f"completed, as its pods show; {CONTROLLER} could not act on it and gave it up"
    if status.reason is Reason.SUBMITTED:
        return "submitted; Volcano's controller has not taken it up yet"
    if ended := _describe_end(evidence):
        return ended
    if status.reason is Reason.RUNNING and (waits := _describe_waiting(evidence)):
        return waits
    said = text_at(job_object, "status", "state", "message") or text_at(job_object, "status", "state", "reason")
    failed = number_at(job_object, "status", "failed") or 0
    if said or status.state is not JobState.SUCCEEDED or not failed:
        return said
    if any(replica.state is JobState.FAILED for replica in status.replicas):
        return None
    return f"completed, and Volcano counts {failed} failed pods"


def _describe_end(evidence: Evidence) -> str | None:
    """Describe the end of a job by a role, or return None if it did not end so."""
    status = evidence.status
    ended = ending_roles(evidence.job_object, status.roles)
    if not ended or status.phase not in ("Running", "Completing", "Completed"):
        return None
    has = f"role {listed(ended, MAX_NEIGHBOURS)} has succeeded, which completes the job"
    if status.state is JobState.RUNNING:
        return f"{has}; the other replicas are being stopped"
    failed = sum(one.state is JobState.FAILED for one in status.replicas)
    stopped = sum(one.reason is Reason.ROLE_ENDED for one in status.replicas)
    others = {"stopped": stopped, "failed before": failed}
    counts = ", ".join(f"{count} {what}" for what, count in others.items() if count)
    return f"{has}; other replicas: {counts}" if counts else has


def _describe_waiting(evidence: Evidence) -> str | None:
    """Describe the roles that wait for others, or return None if none does."""
    roles = {role.name: role for role in evidence.status.roles}
    found = []
    for name, awaited in awaited_roles(evidence.job_object).items():
        if name in roles and any(one.reason is Reason.WAITING_FOR_ROLE for one in roles[name].replicas):
            others = [roles[other] for other in awaited if other in roles]
            counts = [
                f"{one.name} ({one.counts.get(JobState.RUNNING, 0)} of {len(one.replicas)} run)" for one in others
            ]
            found.append(f"role {name} starts after {', '.join(counts)}")
    return "; ".join(found) or None


def _describe_pods(evidence: Evidence) -> str | None:
    """Describe a run whose PodGroup and pods are created without Volcano's job controller."""
    status, pods = evidence.status, evidence.pods
    if pods is None:
        running, succeeded, failed = pod_counts(evidence.job_object)
        counts = f"{running} pods run, {succeeded} have succeeded, {failed} have failed"
        return f"{counts if running or succeeded or failed else 'no pod has started yet'}; its pods were not read"
    missing, _ = missing_pods(evidence.job_object, pods, evidence.expected)
    count = len(pods) + missing
    if status.reason is Reason.POD_GONE:
        lost = f"{missing} of {count} pods were deleted before their end was seen"
        succeeded = sum(replica.state is JobState.SUCCEEDED for replica in status.replicas)
        return f"{lost}; {succeeded} succeeded" if succeeded and status.state.terminal else lost
    if status.reason is Reason.WAITING_FOR_PODS:
        started = sum(replica.state is not JobState.PENDING for replica in status.replicas)
        members = number_at(evidence.job_object, "spec", "minMember") or 0
        if 0 < started < members and not missing:
            return f"{started} of the {members} replicas that it needs at once have started"
        return f"{len(pods)} of {count} pods are created" if missing else None
    return "no pod is created yet" if status.reason is Reason.SUBMITTED else None


def diagnose_volcano(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield why a run waits or failed, without the problems of its pods."""
    job_object, state = evidence.job_object, evidence.status.state
    if state is JobState.FAILED:
        yield from _exhausted(job_object)
        yield from _given_up(evidence)
    if job_object is None:
        return
    if is_being_deleted(evidence.namespace):
        yield _going_namespace(evidence)
        return
    if is_queue_gone(evidence):
        missing = unusable_queue(queue_of(evidence), None)
        yield replace(missing, resolution=f"{missing.resolution}; {AGAIN}") if state is JobState.RUNNING else missing
        return
    refused = _refused_pods(evidence)
    if refused is not None:
        yield refused
        return
    if _is_left(evidence):
        yield absent_controller(CONTROLLER, ref(job_object, "Job"), "all of its pods have ended")
    elif evidence.status.phase == "Running" and _is_left_running(evidence):
        detail = "a role has succeeded and ends the job, and the others run on; `torchx-pulumi cancel` stops them"
        yield absent_controller(CONTROLLER, ref(job_object, "Job"), detail)
    if state not in (JobState.PENDING, JobState.SUBMITTED):
        return
    is_job, groups = _is_job(evidence), _groups(evidence)
    if is_job and not text_at(job_object, "status", "state", "phase") and evidence.is_old(job_object):
        yield absent_controller(CONTROLLER, ref(job_object, "Job"))
    elif is_job and not groups and not evidence.pod_count and evidence.is_old(job_object):
        yield absent_controller(CONTROLLER, ref(job_object, "Job"), "it has created neither PodGroup nor pods")
    elif is_job and evidence.lacks_group and evidence.is_old(job_object):
        yield Diagnosis(
            reason=Reason.CONTROLLER_ABSENT,
            summary="its PodGroup is gone: Volcano's scheduler looks at no pod without one, and nobody makes it again",
            detail="",
            resolution="cancel it and resume it (`torchx-pulumi resume HANDLE`): Volcano makes the PodGroup again, and "
            "counts a retry; or launch it again",
            objects=(ref(job_object, "Job"),),
        )
    elif any(text_at(group, "status", "phase") in ADMITTED_PHASES for group in groups):
        yield from _diagnose_gang(evidence, _request(evidence))
    elif groups:
        yield from _not_admitted(evidence)


def _is_left_running(evidence: Evidence) -> bool:
    """Return whether the controller has missed the end of a role that ends the job, as it does if it restarts then."""
    roles = evidence.status.roles
    ended = ending_roles(evidence.job_object, roles)
    ends = [one.finished_at for role in roles if role.name in ended for one in role.replicas if one.finished_at]
    return evidence.at is not None and bool(ends) and evidence.at - max(ends) > PATIENCE


def _going_namespace(evidence: Evidence) -> Diagnosis:
    """Return the diagnosis of a job whose namespace is being deleted."""
    waits = [
        message
        for one in items_at(evidence.namespace, "status", "conditions")
        if text_at(one, "status") == "True" and (message := text_at(one, "message"))
    ]
    where = ObjectRef(kind="Namespace", name=text_at(evidence.namespace, "metadata", "name") or "?")
    return Diagnosis(
        reason=Reason.REFUSED,
        summary=f"namespace {where.name!r} is being deleted, and the job with it: no pod can be made in it",
        detail="\n".join(waits),
        resolution="launch it in another namespace, or in this one when it has been created again",
        objects=(where,),
    )


def _refused_pods(evidence: Evidence) -> Diagnosis | None:
    """Return why Volcano cannot make the pods that a job lacks, by its events. None: they do not say."""
    if not _is_job(evidence) or evidence.pod_count >= len(evidence.status.replicas):
        return None
    texts = [text_at(event, "message") or "" for event in evidence.events if text_at(event, "reason") == FAILED_CREATE]
    if not texts:
        return None
    said = re.search(r'Message:"((?:[^"\\]|\\.)*)', texts[-1])
    text = said[1].replace("\\", "") if said else texts[-1]
    found = diagnose_message(text) or Diagnosis(
        reason=Reason.REFUSED, summary="its pods cannot be made", detail=text, resolution="correct what it names"
    )
    objects = (*found.objects, ref(evidence.job_object, "Job"))
    return replace(found, resolution=f"{found.resolution}; {AGAIN}", objects=objects)


def _is_left(evidence: Evidence) -> bool:
    """Return whether all pods of a job ended a while ago, and its controller has not said how the job stands."""
    status = evidence.status
    is_over = PHASES.get(status.phase or "", UNREADABLE)[0].terminal
    return _is_job(evidence) and not is_over and has_been_over(status.replicas, evidence.pods or (), evidence.at)


def _exhausted(job_object: Observed | None) -> Iterator[Diagnosis]:
    """Yield whether a job failed because it may not be started again, by failures or by resumes."""
    if job_object is None or restarts_left(job_object) >= 0:
        return
    done = number_at(job_object, "status", "retryCount") or 0
    most = done + 1 + restarts_left(job_object)
    summary = f"started again {'once' if done == 1 else f'{done} times'}, of which {most} were allowed"
    resolution = "see why it fails (below), fix it, and launch again; or raise max_retries"
    aborted, ran = (_reached(job_object, phases) for phases in (("Aborting", "Aborted"), ("Running",)))
    if aborted is not None:
        summary += "; Volcano counts each resume after a cancellation too"
        if ran is None or aborted >= ran:
            summary = f"a resume ended it, nothing of it failed: {summary}"
            resolution = "launch it again, with a higher max_retries if it is to be resumed"
    where = (ref(job_object, "Job"),)
    yield Diagnosis(reason=Reason.RETRIES_EXHAUSTED, summary=summary, detail="", resolution=resolution, objects=where)


def _given_up(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield whether Volcano ended a job because it could not act on it."""
    if any("retry limit reached" in (text_at(event, "message") or "") for event in evidence.events):
        yield Diagnosis(
            reason=Reason.RETRIES_EXHAUSTED,
            summary=f"{CONTROLLER} gave it up: it could not act on it for some minutes",
            detail="",
            resolution="correct what kept it from doing so (below, or in its log), and launch again",
            objects=(ref(evidence.job_object, "Job"),),
        )


def _reached(job_object: Observed | None, phases: Collection[str]) -> datetime | None:
    """Return when a job last came into one of some phases. None: never."""
    conditions = items_at(job_object, "status", "conditions")
    return latest(time_at(one, "lastTransitionTime") for one in conditions if text_at(one, "status") in phases)


def _is_job(evidence: Evidence) -> bool:
    """Return whether the run is a Volcano Job; else it is a PodGroup with pods."""
    return text_at(evidence.job_object, "kind") != "PodGroup" and (evidence.job_object is not None or not evidence.pods)


def _groups(evidence: Evidence) -> list[Observed]:
    return list(evidence.pod_groups) if _is_job(evidence) else [evidence.job_object or {}]


def _request(evidence: Evidence) -> Request:
    job_object = evidence.job_object
    specs: list[Observed] = []
    for task in tasks_of(job_object):
        specs += [mapping_at(task.template, "spec")] * task.count
    return request_of(
        evidence, specs, number_at(job_object, "spec", "minAvailable") or number_at(job_object, "spec", "minMember")
    )


def _diagnose_gang(evidence: Evidence, request: Request) -> Iterator[Diagnosis]:
    refused = [(text, group) for group in _groups(evidence) if (text := unschedulable(group))]
    return diagnose_gang(evidence, request, refused)


def _not_admitted(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield why a gang's queue has not admitted it."""
    request = _request(evidence)
    found = list(diagnose_queue(evidence, request))
    yield from found
    group = next(iter(evidence.pod_groups), evidence.job_object)
    where = ref(group, "PodGroup")
    messages = [
        text
        for event in evidence.events
        if text_at(event, "involvedObject", "kind") == "PodGroup" and (text := text_at(event, "message"))
    ]
    gang = list(_diagnose_gang(evidence, request))
    yield from gang
    if gang:
        return
    overused = [text for text in messages if "overused" in text]
    if find_misfits(evidence, request) or (overused and not found):
        yield diagnose_placement(evidence, request, overused or messages, [where])
        return
    if found:
        return
    queue, running = queue_of(evidence), what_runs(evidence)
    if evidence.queues is not None and not messages and not running and evidence.is_old(group):
        yield Diagnosis(
            reason=Reason.SCHEDULER_ABSENT,
            summary="Volcano's scheduler has not looked at the gang for a minute",
            detail="",
            resolution="check that volcano-scheduler runs in the cluster (`torchx-pulumi doctor` checks it)",
            objects=(where,),
        )
        return
    told = (*dict.fromkeys(messages), running)
    if not messages and evidence.is_new(group):
        # What runs in the queue need not be what it waits for.
        told = ("Volcano's scheduler has not looked at it yet",)
    yield Diagnosis(
        reason=Reason.WAITING_IN_QUEUE,
        summary=f"waiting for queue {queue!r} to admit the gang",
        detail="\n".join(text for text in told if text),
        resolution="wait, or see what else the queue holds (`kubectl describe queue NAME`); priority_class goes before",
        objects=(where, ObjectRef(kind="Queue", name=queue)),
    )


def diagnose_refusal(message: str) -> Diagnosis | None:
    """Return why Volcano's webhook refused a job because of its queue (Volcano: `webhooks/admission/jobs/validate`).

    >>> diagnose_refusal("can only submit job to queue with state `Open`, queue `q` status is `Closed`").reason.value
    'QueueClosed'
    """
    if closed := re.search(r"queue `([^`]+)` status is `(\w+)`", message):
        return unusable_queue(closed[1], closed[2], quote(closed))
    absent = re.search(r'unable to find (?:job )?queue:? .*?"([^"]+)" not found', message)
    return unusable_queue(absent[1], None, quote(absent)) if absent else None


def is_queue_gone(observed: ObservedObjects) -> bool:
    """Return whether the queue of a run was read and does not exist."""
    return observed.queues is not None and all(
        text_at(one, "metadata", "name") != queue_of(observed) for one in observed.queues
    )


def queue_of(observed: ObservedObjects) -> str:
    """Return the name of the run's queue."""
    names = (text_at(found, "spec", "queue") for found in (observed.job_object, *observed.pod_groups))
    return next((name for name in names if name), "default")


def what_runs(evidence: Evidence) -> str:
    """Return the other jobs that run in the queue, the oldest first; empty if none are known."""
    names = [_job_name(group) for group in _running(evidence)]
    return f"in it: {listed(names, MAX_NEIGHBOURS)}" if names else ""


def _running(evidence: Evidence) -> list[Observed]:
    """Return the PodGroups of other jobs that the queue has admitted, the oldest first."""
    own = {key_of(one) for one in (evidence.job_object, *evidence.pod_groups)}
    others = [
        one
        for one in evidence.neighbours
        if key_of(one) not in own
        and text_at(one, "status", "phase") in ("Running", "Inqueue", "Unknown")
        and text_at(one, "spec", "queue") in (queue_of(evidence), None)
    ]
    return sorted(others, key=lambda one: (text_at(one, "metadata", "creationTimestamp") or "", _job_name(one)))


def _job_name(pod_group: Observed) -> str:
    """Return namespace and name of the job that owns a PodGroup."""
    owner = next(iter(items_at(pod_group, "metadata", "ownerReferences")), None)
    namespace, name = key_of(pod_group)
    return f"{namespace or 'default'}/{text_at(owner, 'name') or name or '?'}"


def diagnose_queue(evidence: Evidence, request: Request) -> Iterator[Diagnosis]:
    """Yield why the queue has not admitted a run: it is absent, closed or full."""
    name = queue_of(evidence)
    queue = next((one for one in evidence.queues or () if text_at(one, "metadata", "name") == name), None)
    if queue is None:
        return
    state = text_at(queue, "status", "state") or text_at(queue, "spec", "state")
    if state in ("Closed", "Closing"):
        yield unusable_queue(name, state)
    elif over := _over_capability(request, queue):
        groups = (ref(one, "PodGroup") for one in _running(evidence))
        yield Diagnosis(
            reason=Reason.OVER_QUOTA,
            summary=f"queue {name!r} has no room for it: {over}",
            detail=what_runs(evidence),
            resolution="wait until something in the queue ends, stop it, ask for less, or use another queue",
            objects=(ObjectRef(kind="Queue", name=name), *groups)[:MAX_OBJECTS],
        )


def unusable_queue(name: str, state: str | None, detail: str = "") -> Diagnosis:
    """Return the diagnosis of a queue that is closed, or in no state because it does not exist."""
    reason, summary = Reason.QUEUE_MISSING, f"queue {name!r} does not exist"
    resolution = "correct the option queue (`kubectl get queues` lists them), or have the queue created"
    if state is not None:
        reason, summary = Reason.QUEUE_CLOSED, f"queue {name!r} is {state.lower()}: it takes no jobs"
        resolution = "use another queue, or have it opened (`vcctl queue operate -a open -n NAME`)"
    objects = (ObjectRef(kind="Queue", name=name),)
    return Diagnosis(reason=reason, summary=summary, detail=detail, resolution=resolution, objects=objects)


def _over_capability(request: Request, queue: Observed) -> str:
    """Return the bounds of its queue that a run would exceed; empty if there are none."""
    wanted: Counter[str] = Counter()
    for spec in request.specs:
        wanted.update(requests_of(spec))
    bound, used = mapping_at(queue, "spec", "capability"), mapping_at(queue, "status", "allocated")
    exceeded = []
    for resource, value in sorted(wanted.items()):
        most, taken = amount(bound.get(resource)), amount(used.get(resource))
        if resource in bound and taken + value > most + 1e-9:
            may, has = written_amount(resource, most), written_amount(resource, taken)
            exceeded.append(f"it asks for {written_amount(resource, value)}, the queue may use {may} and uses {has}")
    return "; ".join(exceeded)
