"""What is remembered of a run's objects, and for how long it is evidence of the run's end."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Look, Remembered
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

from tests.unit.apps.simulated_cluster import UID, VARIANTS
from tests.unit.apps.test_judge import job_object, pod, request_of

NOW = datetime(2026, 3, 1, 10, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("pods_are_late", [True, False])
@pytest.mark.parametrize(("requested", "answer"), [("", "UNKNOWN"), ("cancel", "CANCELLED")])
def test_pods_of_an_attempt_before_are_no_end_of_an_app_wrapper_that_is_gone(
    requested: str, answer: str, pods_are_late: bool
) -> None:
    before = Remembered().with_job_object(job_object("v1beta1", "Running again=1 limit=2 v=40"))
    jobs = [job_object("v1beta1", text) for text in ("Pending again=2 limit=2 v=60", "Running again=2 limit=2 v=70")]
    # Two watches. No pod was seen of the attempt that has begun.
    for watch in ("jobs", "pods") if pods_are_late else ("pods", "jobs"):
        for job in jobs if watch == "jobs" else ():
            before = before.with_job_object(job)
        for index, word in enumerate(("ok", "bad") if watch == "pods" else ()):
            before = before.with_pod(pod("v1beta1", index, word))
    gone = ObservedObjects(job_object=None, pods=(), at=NOW)
    look = Look(variant=VARIANTS["v1beta1"], at=NOW, uid=UID, objects=gone, remembered=before)
    found = judge(look, request_of(requested), None)
    assert found is not None
    assert found["state"] == answer


def test_pods_that_ended_after_an_app_wrapper_was_started_again_are_its_end() -> None:
    before = Remembered().with_job_object(job_object("v1beta1", "Pending again=1 limit=2 v=30"))
    for text in ("Pending again=2 limit=2 v=40", "Running again=2 limit=2 v=45"):
        before = before.with_job_object(job_object("v1beta1", text))
    for index, word in enumerate(("ok", "bad")):
        before = before.with_pod(pod("v1beta1", index, word))
    before = before.with_job_object(job_object("v1beta1", "Running again=2 limit=2 v=80"))
    gone = ObservedObjects(job_object=None, pods=(), at=NOW)
    look = Look(variant=VARIANTS["v1beta1"], at=NOW, uid=UID, objects=gone, remembered=before)
    found = judge(look, None, None)
    assert found is not None
    assert found["state"] == "FAILED"
