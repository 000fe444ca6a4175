"""Each rule by which surfaces once decided how a run stands gives a wrong answer in one of the random orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from torchx_pulumi.apps import judge as judging
from torchx_pulumi.apps.look import Look
from torchx_pulumi.model.object_fields import is_being_deleted, items_at, latest, time_at
from torchx_pulumi.model.requested import Requested
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus
from torchx_pulumi.schedulers import Variant
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods import status as pod_status

from tests.unit.apps.test_random_orders import check

Pod = Mapping[str, Any]
Patch = pytest.MonkeyPatch


def counts_pods(patch: Patch, counts: Callable[[Pod, ReplicaStatus], bool]) -> None:
    """Let the end of some pods count that are being deleted."""
    present = pod_status.read_evidence

    def read(replica_id: int, pod: Pod) -> ReplicaStatus:
        found = pod_status.read_replica(replica_id, pod)
        return found if is_being_deleted(pod) and counts(pod, found) else present(replica_id, pod)

    patch.setattr(pod_status, "read_evidence", read)


def by_last_condition(patch: Patch) -> None:
    def precedes(pod: Pod, found: ReplicaStatus) -> bool:
        changed = latest(time_at(one, "lastTransitionTime") for one in items_at(pod, "status", "conditions"))
        deleted = time_at(pod, "metadata", "deletionTimestamp")
        return found.finished_at is None and changed is not None and deleted is not None and changed <= deleted

    counts_pods(patch, precedes)


def by_clock_of_the_node(patch: Patch) -> None:
    def precedes(pod: Pod, found: ReplicaStatus) -> bool:
        deleted = time_at(pod, "metadata", "deletionTimestamp")
        return found.finished_at is not None and deleted is not None and found.finished_at <= deleted

    counts_pods(patch, precedes)


def by_pods_that_are_deleted(patch: Patch) -> None:
    counts_pods(patch, lambda _pod, _found: True)


def any_end_wins_over_a_request(patch: Patch) -> None:
    patch.setattr(judging, "_cancelled", lambda _look, status, _cancel: status)


def vanished_is_failed(patch: Patch) -> None:
    present = judging._gone

    def gone(*args: Any) -> JobStatus:
        return replace(present(*args), state=JobState.FAILED, reason=Reason.FAILED)

    patch.setattr(judging, "_gone", gone)


def requests_are_forgotten_when_the_run_is_gone(patch: Patch) -> None:
    present = judging._gone

    def gone(look: Look, _request: Requested | None, previous: Mapping[str, Any] | None) -> JobStatus:
        return present(look, None, previous)

    patch.setattr(judging, "_gone", gone)


def missing_pods_are_an_end_though_the_pod_group_is_gone(patch: Patch) -> None:
    patch.setattr(Look, "by_absence", lambda _look, _status: False)
    patch.setattr(Look, "_as_gone", lambda _look, before: before)


def a_minute_counts_after_the_job_object_is_gone(patch: Patch) -> None:
    present, late = Variant.read_status, datetime(2100, 1, 1, tzinfo=timezone.utc)

    def read(variant: Variant, observed: ObservedObjects, now: datetime | None = None) -> JobStatus:
        return present(variant, observed, now or late)

    patch.setattr(Variant, "read_status", read)


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        (by_last_condition, 153),
        (any_end_wins_over_a_request, 12),
        (by_pods_that_are_deleted, 61),
        (by_clock_of_the_node, 1133),
        (vanished_is_failed, 2),
        (requests_are_forgotten_when_the_run_is_gone, 3),
        (missing_pods_are_an_end_though_the_pod_group_is_gone, 29),
        (a_minute_counts_after_the_job_object_is_gone, 427),
    ],
)
def test_an_old_rule_fails_in_a_random_order(rule: Callable[[Patch], None], order: int, monkeypatch: Patch) -> None:
    assert check(order) is None
    rule(monkeypatch)
    assert check(order), "the order shows no more that the rule is wrong: look for another one"
