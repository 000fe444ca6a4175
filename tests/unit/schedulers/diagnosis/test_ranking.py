"""Causes come in their order, agree with the status, and are read fast; refusals are read by their words."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from torchx_pulumi.model.status import Reason
from torchx_pulumi.outputs.building import build_observed
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.diagnosis.nodes import amount
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal

from tests.unit.schedulers.diagnosis.objects import (
    JOB,
    NOW,
    ended,
    first,
    found,
    group,
    job,
    pod,
)


def test_retries_that_are_used_up_come_first_and_their_cause_next() -> None:
    pods = [pod(phase="Failed", containerStatuses=ended(4))]
    head = job("Failed", 1, spec={"maxRetry": 2}, status={"retryCount": 2})
    reasons = [one.reason for one in found(head=head, pods=pods)]
    assert reasons == [Reason.RETRIES_EXHAUSTED, Reason.EXIT_CODE]


@pytest.mark.parametrize(
    ("times", "said", "advice"),
    [
        ({}, "started again 2 times, of which 2 were allowed", "see why it fails"),
        ({"Aborting": 5, "Aborted": 7, "Running": 9}, "Volcano counts each resume after a cancellation", "see why it"),
        ({"Running": 4, "Aborting": 5, "Failed": 6}, "a resume ended it, nothing of it failed: started", "launch it a"),
        ({"Running": 4, "Aborted": 5, "Failed": 6}, "a resume ended it, nothing of it failed: started", "launch it a"),
        ({"Aborting": 5, "Failed": 6}, "a resume ended it, nothing of it failed: started", "launch it again"),
    ],
)
def test_retries_that_resumes_used_up_are_told_so(times: dict[str, int], said: str, advice: str) -> None:
    conditions = [{"status": phase, "lastTransitionTime": f"2026-03-01T10:00:0{at}Z"} for phase, at in times.items()]
    head = job("Failed", 1, spec={"maxRetry": 2}, status={"retryCount": 2, "conditions": conditions})
    one = first(head=head, pods=[])
    assert one.reason is Reason.RETRIES_EXHAUSTED
    assert said in one.summary
    assert one.resolution.startswith(advice)


def test_a_job_that_is_well_or_over_has_no_diagnosis() -> None:
    well = [pod(index, "Running", node="n", containerStatuses=[{"state": {"running": {}}}]) for index in range(2)]
    assert found(head=job("Running"), pods=well, pod_groups=[group("Running")]) == ()
    assert found(head=job("Completed"), pods=[]) == ()
    assert [one.reason for one in found(head=job("Aborted"), pods=[])] == [Reason.CANCELLED]


def test_a_job_that_is_gone_or_unreadable_says_what_to_do() -> None:
    assert first(head=None).reason is Reason.NOT_FOUND
    assert first(head=job("Dancing"), pods=[]).reason is Reason.UNREADABLE


def test_conditions_follow_the_first_diagnosis() -> None:
    pods = [pod(phase="Failed", reason="Evicted")]
    status = JOB.read_status(ObservedObjects(job_object=job("Failed", 1), pods=pods), NOW)
    (finished,) = [one for one in status.conditions if one.type == "Finished"]
    assert (finished.reason, finished.message) == (status.reason, status.message)


@pytest.mark.parametrize(
    ("text", "reason", "name"),
    [
        (
            'admission webhook "validatejob.volcano.sh" denied the request: unable to find job queue: '
            'queue.scheduling.volcano.sh "nosuch" not found;',
            Reason.QUEUE_MISSING,
            "nosuch",
        ),
        (
            "can only submit job to queue with state `Open`, queue `qclosed` status is `Closed`;",
            Reason.QUEUE_CLOSED,
            "qclosed",
        ),
        ('pods "a" is forbidden: exceeded quota: team-quota, requested: cpu=2', Reason.OVER_QUOTA, "team-quota"),
        ('namespaces "x" not found', Reason.REFUSED, "x"),
        ("no PriorityClass with name high was found", Reason.REFUSED, "high"),
        ('serviceaccount "bot" not found', Reason.REFUSED, "bot"),
        ('no matches for kind "PodGroup" in version "scheduling.sigs.k8s.io/v1alpha1"', Reason.REFUSED, None),
        ('admission webhook "w" denied the request: because', Reason.REFUSED, None),
        ('failed calling webhook "w": connection refused', Reason.REFUSED, None),
        ('jobs is forbidden: User "u" cannot create', Reason.REFUSED, None),
    ],
)
def test_a_refusal_is_read_by_its_words(text: str, reason: Reason, name: str | None) -> None:
    one = diagnose_refusal(f"error: update failed:\n  {text}")
    assert one is not None
    assert one.reason is reason
    assert one.resolution
    assert [thing.name for thing in one.objects] == ([] if name is None else [name])


def test_other_words_are_no_refusal() -> None:
    assert diagnose_refusal("the cluster cannot be reached") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("100m", 0.1), ("1Gi", 2.0**30), (3, 3.0), ("1e3", 1000.0), ("x", 0.0), (True, 0.0), (10**400, 0.0)],
)
def test_quantities_are_read_and_nonsense_is_nothing(text: Any, value: float) -> None:
    assert amount(text) == pytest.approx(value)


def test_the_time_of_a_read_grows_no_faster_than_the_number_of_replicas() -> None:
    few, many = [failed_replicas(count) for count in (100, 1000)]
    # Both on the same machine under the same load; only the time of this thread counts.
    assert min(read_s(many) for _ in range(2)) < 3 * 10 * min(read_s(few) for _ in range(2))


def test_the_status_of_a_thousand_failed_replicas_is_small() -> None:
    status = JOB.read_status(failed_replicas(1000), NOW)
    assert len(json.dumps(build_observed(status, observed_at=NOW))) < 64 * 1024
    assert "(1000 of 1000 replicas; pod " in status.diagnoses[0].summary


def failed_replicas(count: int) -> ObservedObjects:
    pods = [
        pod(index, "Failed", node="n", containerStatuses=ended(1, message="x" * 500, at=f"10:{index % 60:02}:00"))
        for index in range(count)
    ]
    return ObservedObjects(job_object=job("Failed", count), pods=pods)


def read_s(seen: ObservedObjects) -> float:
    begun = time.thread_time()
    build_observed(JOB.read_status(seen, NOW), observed_at=NOW)
    return time.thread_time() - begun
