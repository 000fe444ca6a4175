"""Waiting until a run has come as far as was asked for. No cluster, no engine and no thread here: `read` brings news.

`Wait` judges one look after the other and can be driven by anybody; `wait_until` drives it from a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from torchx_pulumi.errors import ClusterError, JobFailedError
from torchx_pulumi.status.model import JobState, JobStatus, Reason

POLL_S = 1.0
"""Time between two looks."""


class WaitGoal(str, Enum):
    """How far a run is waited for."""

    CREATED = "created"
    """The job object is there."""
    ADMITTED = "admitted"
    """The queue has let the gang in."""
    RUNNING = "running"
    """Its replicas run, or have run."""
    COMPLETED = "completed"
    """It ended, and succeeded."""


class Clock(Protocol):
    """What is needed of a clock; the module `time` is one."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let so many seconds pass."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one look at a run means for who waits for it."""

    done: bool = False
    """It has come as far as the goal."""
    failure: str | None = None
    """Why it will not get there, or not in time. None: it may."""
    line: str | None = None
    """Progress that has not been told yet. None: nothing is new."""


def reached(status: JobStatus, goal: WaitGoal) -> bool:
    """Say whether a run has come as far as the goal."""
    if goal is WaitGoal.COMPLETED:
        return status.state is JobState.SUCCEEDED
    if status.state in (JobState.RUNNING, JobState.SUCCEEDED):
        return True
    admitted = any(item.type == "Admitted" and item.status == "True" for item in status.conditions)
    return goal is WaitGoal.CREATED or (goal is WaitGoal.ADMITTED and admitted)


def progress_line(status: JobStatus) -> str:
    """Write a status in one line: state, reason and why, and how many replicas are ready.

    >>> progress_line(JobStatus(state=JobState.RUNNING, reason=Reason.RUNNING, message="running"))
    'RUNNING: running'
    """
    replicas = [replica for role in status.roles for replica in role.replicas]
    ready = sum(replica.state in (JobState.RUNNING, JobState.SUCCEEDED) for replica in replicas)
    why = f" ({status.reason.value})" if status.reason.value.upper() != status.state.value else ""
    count = f"; {ready} of {len(replicas)} replicas ready" if replicas else ""
    return f"{status.state.value}{why}: {status.message}{count}"


class Wait:
    """One wait for one run: judges what was seen, and remembers what it told."""

    def __init__(self, goal: WaitGoal, *, job: str = "the job", timeout_s: float | None = None) -> None:
        """Begin a wait.

        Args:
            goal: How far the run is to come.
            job: What messages call the run.
            timeout_s: Longest wait. None: as long as it takes.
        """
        self.goal = goal
        self.job = job
        self.timeout_s = timeout_s
        self._told: tuple[Any, ...] | None = None

    def look(self, status: JobStatus | None, waited_s: float) -> Turn:
        """Judge a run.

        Args:
            status: The run as seen. None: nobody knows it.
            waited_s: How long the wait has lasted.
        """
        if status is None:
            return Turn(failure=f"{self.job} is not known here; it will not be {self.goal.value}")
        if reached(status, self.goal):
            return Turn(done=True)
        where = f"{self.job} is {status.state.value} ({status.reason.value}: {status.message})"
        if status.state.terminal or status.reason is Reason.NOT_FOUND:
            return Turn(failure=f"{where}; it will not be {self.goal.value}{self._advice(status)}")
        if self.late(waited_s):
            missed = f"not {self.goal.value} within {self.timeout_s:g} s; it is left as it is"
            return Turn(failure=f"{where}, {missed}{self._advice(status)}")
        line = progress_line(status)
        news = (status.state, status.reason, line.rpartition("; ")[2])
        if news == self._told:
            return Turn()
        self._told = news
        return Turn(line=f"waiting until {self.job} is {self.goal.value}: {line}")

    def late(self, waited_s: float) -> bool:
        """Say whether the wait has lasted as long as it may."""
        return self.timeout_s is not None and waited_s >= self.timeout_s

    def _advice(self, status: JobStatus) -> str:
        """Say what to do next, by the first diagnosis."""
        first = next(iter(status.diagnoses), None)
        return f"\n  what to do: {first.resolution}" if first is not None and first.resolution else ""


def wait_until(
    read: Callable[[], JobStatus | None],
    goal: WaitGoal,
    *,
    timeout_s: float | None,
    tell: Callable[[str], None],
    clock: Clock = time,
    poll_s: float = POLL_S,
    job: str = "the job",
) -> JobStatus:
    """Wait until a run has come as far as the goal. An interrupt leaves the run as it is and says so.

    Args:
        read: Brings the status of the run. None: nobody knows it. A retryable ClusterError is waited out.
        goal: How far the run is to come.
        timeout_s: Longest wait. None: as long as it takes.
        tell: Takes lines of progress: state, reason, and how many replicas are ready.
        clock: What time it is.
        poll_s: Time between two looks.
        job: What messages call the run.

    Returns:
        The status as last seen.

    Raises:
        JobFailedError: It ended before the goal, is gone, or did not get there in time; `status` is what was seen.
        ClusterError: The cluster does not answer and will not, or did not until the time was over.
    """
    begun, wait, silent = clock.monotonic(), Wait(goal, job=job, timeout_s=timeout_s), False
    try:
        while True:
            try:
                status = read()
            except ClusterError as error:
                if not error.retryable or wait.late(clock.monotonic() - begun):
                    raise
                if not silent:
                    tell(f"waiting until {job} is {goal.value}: the cluster does not answer ({error})")
                silent = True
                clock.sleep(poll_s)
                continue
            silent = False
            turn = wait.look(status, clock.monotonic() - begun)
            if turn.failure is not None:
                raise JobFailedError(turn.failure, status=status)
            if turn.done and status is not None:
                return status
            if turn.line:
                tell(turn.line)
            clock.sleep(poll_s)
    except KeyboardInterrupt:
        tell(f"no longer waiting; {job} is left as it is and goes on")
        raise
