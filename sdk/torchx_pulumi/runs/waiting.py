"""Waiting until a run has come as far as was asked for. No cluster, no engine and no thread here: `read` brings news.

`Wait` judges one look after the other and can be driven by anybody; `wait_until` drives it from a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, JobFailedError
from torchx_pulumi.model.status import JobState, JobStatus, Reason

POLL_S = 1.0
"""Time between two looks."""

REFUSED_S = 60.0
"""How long a wait goes on while the access is refused: 401, 403, or no usable kubeconfig."""

UNREACHABLE_S = 600.0
"""How long a wait goes on while the cluster does not answer."""

GONE_S = 5.0
"""How long a wait goes on after a job's objects are gone and how it ended is not known."""

LONGEST_STEP_S = 60.0
"""What the time between two looks counts at most: between looks that lie further apart nothing is known."""


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
    """Return whether a run has come as far as the goal."""
    if goal is WaitGoal.COMPLETED:
        return status.state is JobState.SUCCEEDED
    if status.state is JobState.RUNNING and goal is WaitGoal.RUNNING:
        # Of a gang that has lost pods some run, and the others never will again.
        return not any(item.type == "PodsScheduled" and item.status == "False" for item in status.conditions)
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


class Patience:
    """Measures for how long looks have failed in a row. No clock here: the caller passes the time in."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._unreachable_s = 0.0
        self._refused_s = 0.0
        self._gone_s = 0.0
        self._refused = False

    def answered(self) -> None:
        """Note that a look told the state."""
        self._last = None
        self._unreachable_s = self._refused_s = self._gone_s = 0.0
        self._refused = False

    def failed(self, error: ClusterError, now_s: float) -> bool:
        """Note a look that failed; return whether the wait is over.

        Args:
            error: Why it failed.
            now_s: The time, in seconds that only grow.
        """
        step = self._step(now_s)
        self._unreachable_s += step
        # Of an API server that comes back the first answers may be refusals: what was before them is not counted.
        self._refused_s = self._refused_s + step if self._refused and not error.retryable else 0.0
        self._refused = not error.retryable
        return self._refused_s >= REFUSED_S or self._unreachable_s >= UNREACHABLE_S

    def gone(self, now_s: float) -> bool:
        """Note that the job's objects are gone and its end is not known; return whether the wait is over."""
        step = self._step(now_s)
        self._unreachable_s = self._refused_s = 0.0
        self._refused = False
        # Not set back by looks that fail in between: how the job ended is not told any more.
        self._gone_s += step
        return self._gone_s >= GONE_S

    def _step(self, now_s: float) -> float:
        step = 0.0 if self._last is None else min(now_s - self._last, LONGEST_STEP_S)
        self._last = now_s
        return step


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
        self._last: JobStatus | None = None
        self._patience = Patience()
        self._silent = False

    def unanswered(self, error: ClusterError, waited_s: float) -> Turn:
        """Judge a look that failed: the wait goes on for a while.

        Args:
            error: Why it failed.
            waited_s: How long the wait has lasted.

        Raises:
            ClusterError: The cluster refused before it ever answered, refused for `REFUSED_S`, did not answer for
                `UNREACHABLE_S`, or the wait has lasted as long as it may; with the last known state.
        """
        hopeless = not error.retryable and (self._last is None or error.reason == DIFFERENT_CLUSTER)
        if hopeless or self.late(waited_s):
            raise self._given_up(error) if self._last is not None else error
        if self._patience.failed(error, waited_s):
            raise self._given_up(error)
        if self._silent:
            return Turn()
        self._silent = True
        does = "does not answer" if error.retryable else "refuses the access"
        return Turn(line=f"waiting until {self.job} is {self.goal.value}: the cluster {does} ({error})")

    def _given_up(self, error: ClusterError) -> ClusterError:
        last = "its state was never seen" if self._last is None else f"it was last seen {progress_line(self._last)}"
        return ClusterError(
            f"{self.job}: {last}. Waiting until it is {self.goal.value} ended, and it is left as it is: {error}. "
            f"A wait goes on for {REFUSED_S:g} s where the access is refused, and for {UNREACHABLE_S:g} s without an "
            "answer",
            retryable=error.retryable,
            reason=error.reason,
        )

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
        self._patience.answered()
        self._silent = False
        where = f"{self.job} is {status.state.value} ({status.reason.value}: {status.message})"
        if status.reason is Reason.NOT_FOUND and self._last is not None:
            where += f", last seen {progress_line(self._last)}"
        else:
            self._last = status
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
        read: Brings the status of the run. None: nobody knows it. A ClusterError is waited out, see `Wait.unanswered`.
        goal: How far the run is to come.
        timeout_s: Longest wait. None: as long as the run takes and the cluster answers.
        tell: Takes lines of progress: state, reason, and how many replicas are ready.
        clock: What time it is.
        poll_s: Time between two looks.
        job: What messages call the run.

    Returns:
        The status as last seen.

    Raises:
        JobFailedError: It ended before the goal, is gone, or did not get there in time; `status` is what was seen.
        ClusterError: See `Wait.unanswered`.
    """
    begun, wait = clock.monotonic(), Wait(goal, job=job, timeout_s=timeout_s)
    status: JobStatus | None = None
    try:
        while True:
            try:
                status = read()
            except ClusterError as error:
                turn = wait.unanswered(error, clock.monotonic() - begun)
            else:
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
