from __future__ import annotations

from datetime import datetime, timezone

import pytest
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.outputs.building import MAX_REPLICAS_LISTED, build_observed
from torchx_pulumi.runs.observation import MOST_NOTED, status_of, with_replicas


def status(replicas: int, failed: int = 0) -> JobStatus:
    ended = [
        ReplicaStatus(
            id=number,
            pod=f"train-trainer-{number}",
            state=JobState.FAILED if number < failed else JobState.SUCCEEDED,
            reason=Reason.EXIT_CODE if number < failed else Reason.COMPLETED,
        )
        for number in range(replicas)
    ]
    return JobStatus(
        state=JobState.FAILED, reason=Reason.EXIT_CODE, roles=(RoleStatus(name="trainer", replicas=tuple(ended)),)
    )


def noted(seen: JobStatus) -> JobStatus:
    whole = with_replicas(build_observed(seen, observed_at=datetime(2026, 1, 1, tzinfo=timezone.utc)), seen)
    return status_of(whole)


@pytest.mark.parametrize("replicas", [1, MAX_REPLICAS_LISTED + 1, MOST_NOTED])
def test_each_replica_of_a_role_is_noted(replicas: int) -> None:
    seen = status(replicas, failed=2)
    assert noted(seen).roles == seen.roles


@pytest.mark.parametrize(("failed", "count"), [(0, 0), (3, 3), (MOST_NOTED + 1, MOST_NOTED)])
def test_of_a_larger_role_only_failed_replicas_are_noted(failed: int, count: int) -> None:
    (role,) = noted(status(MOST_NOTED + 1, failed)).roles
    assert [replica.id for replica in role.replicas] == list(range(count))


def test_an_observation_without_replicas_gets_none() -> None:
    gone = {"state": "UNKNOWN", "reason": "NotFound", "roles": []}
    assert with_replicas(gone, status(2)) is gone
    assert with_replicas({"state": "RUNNING", "roles": [1]}, None) == {"state": "RUNNING", "roles": [1]}
