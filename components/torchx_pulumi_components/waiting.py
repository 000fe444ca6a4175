"""Waiting until a run has come as far as was asked for, and what is said when it does not.

A constructor waits in the program, never by the `pulumi.com/waitFor` annotation: a list of conditions there means all
of them, and a failed job would hang it. The stack is locked meanwhile; an interrupt leaves the run as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pulumi
from torchx_pulumi.cluster import Cluster
from torchx_pulumi.errors import ClusterError, JobFailedError
from torchx_pulumi.forms import Seen, form_of
from torchx_pulumi.plan import JobPlan
from torchx_pulumi.status.model import JobState, JobStatus, Reason

from torchx_pulumi_components.args import WaitFor
from torchx_pulumi_components.gangs import Gang
from torchx_pulumi_components.leaves import wait_for

POLL_S = 1.0

_deferred: ContextVar[list[str] | None] = ContextVar("deferred", default=None)


@contextmanager
def failures_deferred() -> Iterator[list[str]]:
    """Collect the failures of waits inside instead of raising them.

    A program that exports its outputs first and then raises `pulumi.RunError` with what was collected fails with its
    outputs written.
    """
    collected: list[str] = []
    token = _deferred.set(collected)
    try:
        yield collected
    finally:
        _deferred.reset(token)


def fail(message: str) -> None:
    """Raise the failure of a wait, or keep it for the program.

    Raises:
        JobFailedError: Nobody collects failures.
    """
    collected = _deferred.get()
    if collected is None:
        raise JobFailedError(message)
    collected.append(message)


def reached(status: JobStatus, goal: WaitFor) -> bool:
    """Say whether a run has come as far as the goal."""
    if goal is WaitFor.COMPLETED:
        return status.state is JobState.SUCCEEDED
    if status.state in (JobState.RUNNING, JobState.SUCCEEDED):
        return True
    admitted = any(item.type == "Admitted" and item.status == "True" for item in status.conditions)
    return goal is WaitFor.CREATED or (goal is WaitFor.ADMITTED and admitted)


def wait_until(
    plan: JobPlan[Any], gang: Gang, cluster: Cluster, goal: WaitFor, timeout_s: int | None
) -> tuple[Seen, JobStatus, str | None]:
    """Wait until a run has come as far as the goal.

    Returns:
        Its objects and its status as last seen, and why it will not get there. None: it did.

    Raises:
        ClusterError: The cluster does not answer and will not.
    """
    for resource in (gang.head, *gang.pods.values()):
        wait_for(resource.urn.future())
    found: tuple[Seen, JobStatus, str | None] = wait_for(_poll(plan, gang, cluster, goal, timeout_s))
    return found


async def _poll(
    plan: JobPlan[Any], gang: Gang, cluster: Cluster, goal: WaitFor, timeout_s: int | None
) -> tuple[Seen, JobStatus, str | None]:
    end = None if timeout_s is None else time.monotonic() + timeout_s
    said: tuple[JobState, Reason] | None = None
    form = form_of(plan.options)
    while True:
        try:
            seen = await asyncio.to_thread(form.look, cluster, plan.namespace, plan.job_name)
        except ClusterError as error:
            if not error.retryable or (end is not None and time.monotonic() >= end):
                raise
            await asyncio.sleep(POLL_S)
            continue
        status = form.read_status(seen)
        if reached(status, goal):
            return seen, status, None
        where = (
            f"job {plan.namespace}/{plan.job_name} is {status.state.value} ({status.reason.value}: {status.message})"
        )
        if status.state.terminal or seen.head is None:
            return seen, status, f"{where}; it will not be {goal.value}"
        if end is not None and time.monotonic() >= end:
            return seen, status, f"{where}, not {goal.value} within {timeout_s} s; it is left as it is"
        if said != (status.state, status.reason):
            said = (status.state, status.reason)
            pulumi.log.info(f"waiting until {goal.value}: {where}", gang.head)
        await asyncio.sleep(POLL_S)
