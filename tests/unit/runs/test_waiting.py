"""A wait ends at its goal, tells what changes and nothing twice, and leaves the job as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, JobFailedError
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.status import Condition, Diagnosis, JobState, JobStatus, Reason, ReplicaStatus, RoleStatus
from torchx_pulumi.runs.waiting import REFUSED_S, UNREACHABLE_S, Patience, progress_line, wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


def status(state: JobState, reason: Reason = Reason.RUNNING, message: str = "so", **more: Any) -> JobStatus:
    return JobStatus(state=state, reason=reason, message=message, **more)


PENDING = status(JobState.PENDING, Reason.WAITING_IN_QUEUE, "number 2 of 3")
RUNNING = status(JobState.RUNNING)
DONE = status(JobState.SUCCEEDED, Reason.COMPLETED)
AWAY = ClusterError("no answer", retryable=True)


def reads(*given: Any) -> Callable[[], JobStatus | None]:
    left = list(given)

    def read() -> JobStatus | None:
        item = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(item, BaseException):
            raise item
        return item  # type: ignore[no-any-return]

    return read


def wait(*given: Any, goal: WaitFor = WaitFor.COMPLETED, timeout_s: float | None = None) -> tuple[Any, Sequence[str]]:
    lines: list[str] = []
    try:
        found: Any = wait_until(
            reads(*given), goal, timeout_s=timeout_s, progress=lines.append, clock=Clock(), job="job a/b"
        )
    except (JobFailedError, ClusterError, KeyboardInterrupt) as error:
        found = error
    return found, lines


@pytest.mark.parametrize(
    ("goal", "given"),
    [
        (WaitFor.CREATED, PENDING),
        (
            WaitFor.ADMITTED,
            status(JobState.PENDING, conditions=(Condition(type="Admitted", status="True", reason=Reason.STARTING),)),
        ),
        (WaitFor.RUNNING, RUNNING),
        (WaitFor.RUNNING, DONE),
        (WaitFor.COMPLETED, DONE),
    ],
)
def test_it_ends_at_its_goal(goal: WaitFor, given: JobStatus) -> None:
    assert wait(given, goal=goal) == (given, [])


def test_it_tells_each_change_once() -> None:
    found, lines = wait(PENDING, PENDING, RUNNING, RUNNING, DONE)
    assert found is DONE
    assert lines == [
        "waiting until job a/b is completed: PENDING (WaitingInQueue): number 2 of 3",
        "waiting until job a/b is completed: RUNNING: so",
    ]


def test_a_line_counts_replicas() -> None:
    replicas = tuple(
        ReplicaStatus(id=index, pod=None, state=state, reason=Reason.RUNNING, message="")
        for index, state in enumerate([JobState.RUNNING, JobState.SUCCEEDED, JobState.PENDING])
    )
    line = progress_line(status(JobState.RUNNING, roles=(RoleStatus(name="r", replicas=replicas),)))
    assert line.endswith("; 2 of 3 replicas ready")


def test_a_failure_has_diagnosis_and_status() -> None:
    why = Diagnosis(reason=Reason.EXIT_CODE, summary="exited", detail="", resolution="read the log")
    failed = status(JobState.FAILED, Reason.EXIT_CODE, "exited", diagnoses=(why,))
    error, _ = wait(PENDING, failed)
    assert isinstance(error, JobFailedError)
    assert str(error) == "job a/b is FAILED (ExitCode: exited); it will not be completed\n  what to do: read the log"
    assert error.status is failed


def test_a_timeout_leaves_the_job_as_it_is() -> None:
    error, _ = wait(PENDING, timeout_s=3)
    assert "not completed within 3 s; it is left as it is" in str(error)


@pytest.mark.parametrize("given", [None, status(JobState.UNKNOWN, Reason.NOT_FOUND, "gone")])
def test_a_job_that_is_gone_is_not_waited_for(given: JobStatus | None) -> None:
    error, _ = wait(given)
    assert "it will not be completed" in str(error)


def test_a_cluster_that_is_away_is_waited_for_and_said_once() -> None:
    away = ClusterError("no answer", retryable=True)
    found, lines = wait(away, away, DONE)
    assert found is DONE
    assert lines == ["waiting until job a/b is completed: the cluster does not answer (no answer)"]


def test_a_cluster_that_stays_away_or_refuses_is_an_error() -> None:
    away = ClusterError("no answer", retryable=True)
    assert wait(away, timeout_s=2)[0] is away
    refused = ClusterError("forbidden")
    assert wait(refused)[0] is refused


def test_an_interrupt_says_that_the_job_goes_on() -> None:
    error, lines = wait(RUNNING, KeyboardInterrupt())
    assert isinstance(error, KeyboardInterrupt)
    assert lines[-1] == "no longer waiting; job a/b is left as it is and goes on"


@pytest.mark.parametrize(("error", "bound"), [(ClusterError("401"), REFUSED_S), (AWAY, UNREACHABLE_S)])
def test_a_wait_that_was_answered_ends_within_the_bound_with_the_last_state(error: ClusterError, bound: float) -> None:
    clock = Clock()
    with pytest.raises(ClusterError, match=f"it was last seen RUNNING: so.*{error}") as caught:
        wait_until(
            reads(RUNNING, error),
            WaitFor.COMPLETED,
            timeout_s=None,
            progress=lambda _: None,
            clock=clock,
            job="job a/b",
        )
    assert bound <= clock.now <= bound + 2
    assert caught.value.retryable is error.retryable


def test_a_cluster_that_never_answers_is_waited_for_within_the_bound() -> None:
    error, lines = wait(AWAY)
    assert "its state was never seen" in str(error)
    assert len(lines) == 1


def test_what_fails_now_and_then_is_waited_out() -> None:
    found, lines = wait(*[RUNNING, AWAY, AWAY, ClusterError("401")] * 300, DONE)
    assert found is DONE
    assert len([line for line in lines if "does not answer" in line]) == 300


def test_of_a_job_that_is_gone_the_last_state_is_told() -> None:
    error, _ = wait(RUNNING, status(JobState.UNKNOWN, Reason.NOT_FOUND, "gone"))
    assert "job a/b is UNKNOWN (NotFound: gone), last seen RUNNING: so; it will not be completed" in str(error)


def test_another_cluster_ends_a_wait_at_once() -> None:
    error, lines = wait(RUNNING, ClusterError("elsewhere", reason=DIFFERENT_CLUSTER))
    assert "it was last seen RUNNING: so" in str(error)
    assert len(lines) == 1


def test_the_time_before_the_first_refusal_is_not_counted_as_refused() -> None:
    patience = Patience()
    assert not patience.failed(AWAY, 0)
    assert not patience.failed(ClusterError("403"), 60)
    assert patience.failed(ClusterError("403"), 60 + REFUSED_S)


def test_a_job_that_is_gone_ends_a_wait_although_every_other_look_fails() -> None:
    patience = Patience()
    assert any(patience.failed(AWAY, at) if at % 2 else patience.gone(at) for at in range(20))
