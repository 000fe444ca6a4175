"""Wait until a run has reached a goal. Without a cluster, an engine or a thread: `read` returns the status.

`Wait` maps one observation after the other to progress or an outcome; `wait_until` drives it from a plain loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError, JobFailedError
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.status import JobState, JobStatus, Reason

POLL_S = 1.0
"""Time between two observations, in seconds."""

REFUSED_S = 60.0
"""Seconds for which a wait continues while the access is refused: 401, 403, or no usable kubeconfig."""

UNREACHABLE_S = 600.0
"""Seconds for which a wait continues while the cluster does not answer."""

GONE_S = 5.0
"""Seconds for which a wait continues after a job's objects are gone and its end is not known."""

LONGEST_STEP_S = 60.0
"""Longest time between two observations that counts as failed; longer gaps do not count."""


class Clock(Protocol):
    """A clock. The module `time` is one."""

    def monotonic(self) -> float:
        """Return seconds that never decrease."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStep:
    """Outcome of one observation for `wait_for`."""

    done: bool = False
    """The run has reached the goal."""
    failure: str | None = None
    """Why it does not reach the goal, or not in time. None: it may."""
    line: str | None = None
    """Progress that was not reported yet. None: nothing changed."""


def reached(status: JobStatus, goal: WaitFor) -> bool:
    """Return whether a run has reached the goal."""
    if goal is WaitFor.COMPLETED:
        return status.state is JobState.SUCCEEDED
    if status.state is JobState.RUNNING and goal is WaitFor.RUNNING:
        # Of a gang that has lost pods some run, and no controller creates the others again.
        return not any(item.type == "PodsScheduled" and item.status == "False" for item in status.conditions)
    if status.state in (JobState.RUNNING, JobState.SUCCEEDED):
        return True
    admitted = any(item.type == "Admitted" and item.status == "True" for item in status.conditions)
    return goal is WaitFor.CREATED or (goal is WaitFor.ADMITTED and admitted)


def progress_line(status: JobStatus) -> str:
    """Return a status in one line: state, reason, message, and how many replicas are ready.

    >>> progress_line(JobStatus(state=JobState.RUNNING, reason=Reason.RUNNING, message="running"))
    'RUNNING: running'
    """
    replicas = status.replicas
    ready = sum(replica.state in (JobState.RUNNING, JobState.SUCCEEDED) for replica in replicas)
    why = f" ({status.reason.value})" if status.reason.value.upper() != status.state.value else ""
    count = f"; {ready} of {len(replicas)} replicas ready" if replicas else ""
    return f"{status.state.value}{why}: {status.message}{count}"


class Patience:
    """Measures for how long observations have failed in a row. The caller passes the time."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._unreachable_s = 0.0
        self._refused_s = 0.0
        self._gone_s = 0.0
        self._refused = False

    def answered(self) -> None:
        """Record that an observation had the state."""
        self._last = None
        self._unreachable_s = self._refused_s = self._gone_s = 0.0
        self._refused = False

    def failed(self, error: ClusterError, now_s: float) -> bool:
        """Record a failed observation; return whether the wait is over.

        Args:
            error: Why it failed.
            now_s: The time, in seconds that never decrease.
        """
        step = self._step(now_s)
        self._unreachable_s += step
        # The first responses of an API server that starts may be refusals: the time before them is not counted.
        self._refused_s = self._refused_s + step if self._refused and not error.retryable else 0.0
        self._refused = not error.retryable
        return self._refused_s >= REFUSED_S or self._unreachable_s >= UNREACHABLE_S

    def gone(self, now_s: float) -> bool:
        """Record that the job's objects are gone and its end is not known; return whether the wait is over."""
        step = self._step(now_s)
        self._unreachable_s = self._refused_s = 0.0
        self._refused = False
        # Failed observations do not reset it: the end of the job cannot become known any more.
        self._gone_s += step
        return self._gone_s >= GONE_S

    def _step(self, now_s: float) -> float:
        step = 0.0 if self._last is None else min(now_s - self._last, LONGEST_STEP_S)
        self._last = now_s
        return step


class Wait:
    """One wait for one run. Keeps the last status and the last progress."""

    def __init__(
        self, goal: WaitFor, *, job: str = "the job", timeout_s: float | None = None, run_again: str = ""
    ) -> None:
        """Start a wait.

        Args:
            goal: The state until which to wait.
            job: Name of the run in messages.
            timeout_s: Longest wait in seconds. None: no limit.
            run_again: How a run is started again that ended before the goal; a line of the failure. Empty: no line.
        """
        self.goal = goal
        self.job = job
        self.timeout_s = timeout_s
        self.run_again = f"\n  {run_again}" if run_again else ""
        self._reported: tuple[Any, ...] | None = None
        self._last: JobStatus | None = None
        self._patience = Patience()
        self._silent = False

    def failed(self, error: ClusterError, waited_s: float) -> WaitStep:
        """Interpret a failed observation: the wait continues for a while.

        Args:
            error: Why it failed.
            waited_s: Seconds for which the wait has lasted.

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
            return WaitStep()
        self._silent = True
        does = "does not answer" if error.retryable else "refuses the access"
        return WaitStep(line=f"waiting until {self.job} is {self.goal.value}: the cluster {does} ({error})")

    def _given_up(self, error: ClusterError) -> ClusterError:
        last = "its state was never seen" if self._last is None else f"it was last seen {progress_line(self._last)}"
        return ClusterError(
            f"{self.job}: {last}. Waiting until it is {self.goal.value} ended, and it is left as it is: {error}. "
            f"A wait goes on for {REFUSED_S:g} s if the access is refused, and for {UNREACHABLE_S:g} s without an "
            "answer",
            retryable=error.retryable,
            reason=error.reason,
        )

    def observed(self, status: JobStatus | None, waited_s: float) -> WaitStep:
        """Interpret a status for the wait.

        Args:
            status: The observed status. None: the run is not known.
            waited_s: Seconds for which the wait has lasted.
        """
        if status is None:
            return WaitStep(failure=f"{self.job} is not known here; it will not be {self.goal.value}")
        if reached(status, self.goal):
            return WaitStep(done=True)
        self._patience.answered()
        self._silent = False
        advice = f"\n  what to do: {status.advice}" if status.advice else ""
        where = f"{self.job} is {status.state.value} ({status.reason.value}: {status.message})"
        if status.reason is Reason.NOT_FOUND and self._last is not None:
            where += f", last seen {progress_line(self._last)}"
        else:
            self._last = status
        if status.state.terminal or status.reason is Reason.NOT_FOUND:
            missed = f"it will not be {self.goal.value}{advice}{self.run_again}"
            return WaitStep(failure=f"{where}; {missed}")
        if self.late(waited_s):
            missed = f"not {self.goal.value} within {self.timeout_s:g} s; it is left as it is"
            return WaitStep(failure=f"{where}, {missed}{advice}")
        line = progress_line(status)
        change = (status.state, status.reason, line.rpartition("; ")[2])
        if change == self._reported:
            return WaitStep()
        self._reported = change
        return WaitStep(line=f"waiting until {self.job} is {self.goal.value}: {line}")

    def late(self, waited_s: float) -> bool:
        """Return whether the wait has lasted as long as it may."""
        return self.timeout_s is not None and waited_s >= self.timeout_s


def wait_until(
    read: Callable[[], JobStatus | None],
    goal: WaitFor,
    *,
    timeout_s: float | None,
    progress: Callable[[str], None],
    clock: Clock = time,
    poll_s: float = POLL_S,
    job: str = "the job",
) -> JobStatus:
    """Wait until a run has reached the goal. An interrupt leaves the run unchanged and reports that.

    Args:
        read: Returns the status of the run. None: it is not known. A ClusterError is retried, see `Wait.failed`.
        goal: The state until which to wait.
        timeout_s: Longest wait in seconds. None: while the run lasts and the cluster answers.
        progress: Takes lines of progress: state, reason, and how many replicas are ready.
        clock: The clock.
        poll_s: Time between two observations, in seconds.
        job: Name of the run in messages.

    Returns:
        The last observed status.

    Raises:
        JobFailedError: It ended before the goal, is gone, or did not reach it in time; `status` is the last status.
        ClusterError: See `Wait.failed`.
    """
    begun, wait = clock.monotonic(), Wait(goal, job=job, timeout_s=timeout_s)
    status: JobStatus | None = None
    try:
        while True:
            try:
                status = read()
            except ClusterError as error:
                step = wait.failed(error, clock.monotonic() - begun)
            else:
                step = wait.observed(status, clock.monotonic() - begun)
            if step.failure is not None:
                raise JobFailedError(step.failure, status=status)
            if step.done and status is not None:
                return status
            if step.line:
                progress(step.line)
            clock.sleep(poll_s)
    except KeyboardInterrupt:
        progress(f"no longer waiting; {job} is left as it is and goes on")
        raise
