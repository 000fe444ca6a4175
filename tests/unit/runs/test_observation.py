from __future__ import annotations

import pytest
from torchx_pulumi.model.status import JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.runs.observation import MOST_NOTED, observed, remembered


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


def test_each_replica_of_a_role_is_noted() -> None:
    seen = status(MOST_NOTED, failed=2)
    assert remembered(observed(seen, "2026-01-01T00:00:00Z")).roles == seen.roles


@pytest.mark.parametrize(("failed", "noted"), [(0, 0), (3, 3), (MOST_NOTED + 1, MOST_NOTED)])
def test_of_a_larger_role_only_failed_replicas_are_noted(failed: int, noted: int) -> None:
    (role,) = remembered(observed(status(MOST_NOTED + 1, failed), "2026-01-01T00:00:00Z")).roles
    assert [replica.id for replica in role.replicas] == list(range(noted))
