"""Waiting in a constructor until a run has come as far as was asked for; what a look means is in the sdk's `waiting`.

A constructor waits in the program, never by the `pulumi.com/waitFor` annotation: a list of conditions there means all
of them, and a failed job would hang it. The stack is locked meanwhile; an interrupt leaves the run as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

import pulumi
from torchx_pulumi.kube import Cluster
from torchx_pulumi.model.errors import ClusterError, JobFailedError
from torchx_pulumi.model.job_plan import JobPlan
from torchx_pulumi.model.status import JobStatus
from torchx_pulumi.runs.waiting import POLL_S, Wait, WaitGoal
from torchx_pulumi.schedulers import ObservedObjects, asked, variant_of

from torchx_pulumi_components.args import WaitFor
from torchx_pulumi_components.input_resolution import wait_for
from torchx_pulumi_components.resources import Gang

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


def wait_until(
    plan: JobPlan[Any], gang: Gang, cluster: Cluster, goal: WaitFor, timeout_s: int | None, hide: Callable[[str], str]
) -> tuple[ObservedObjects, JobStatus, str | None]:
    """Wait until a run has come as far as the goal.

    Args:
        plan: Of the run.
        gang: What was registered of it.
        cluster: Where it is.
        goal: How far it must come.
        timeout_s: How long to wait. None: without limit.
        hide: Takes the secrets of the arguments out of a line of progress.

    Returns:
        Its objects and its status as last seen, and why it will not get there. None: it did.

    Raises:
        ClusterError: The cluster refuses, or does not answer, from the beginning; see `Wait.unanswered`.
    """
    for resource in (gang.head, *gang.pods.values()):
        wait_for(resource.urn.future())
    found: tuple[ObservedObjects, JobStatus, str | None] = wait_for(_poll(plan, gang, cluster, goal, timeout_s, hide))
    return found


async def _poll(
    plan: JobPlan[Any], gang: Gang, cluster: Cluster, goal: WaitFor, timeout_s: int | None, hide: Callable[[str], str]
) -> tuple[ObservedObjects, JobStatus, str | None]:
    begun, variant, note = (
        time.monotonic(),
        variant_of(plan.options),
        "; an interrupt ends the wait and leaves the job running",
    )
    expected = {role.name: [variant.pod_name(plan, item) for item in asked(role)] for role in plan.roles}
    wait = Wait(WaitGoal(goal.value), job=f"job {plan.namespace}/{plan.job_name}", timeout_s=timeout_s)
    found: tuple[ObservedObjects, JobStatus] | None = None
    while True:
        try:
            seen = await asyncio.to_thread(variant.observe, cluster, plan.namespace, plan.job_name, expected)
        except ClusterError as error:
            try:
                turn = wait.unanswered(error, time.monotonic() - begun)
            except ClusterError as given_up:
                if found is None:
                    raise
                return *found, str(given_up)
        else:
            status = variant.read_status(seen, datetime.now(timezone.utc))
            found = (seen, status)
            turn = wait.look(status, time.monotonic() - begun)
            if turn.done or turn.failure is not None:
                return seen, status, turn.failure
        if turn.line:
            pulumi.log.info(hide(turn.line) + note, gang.head)
            note = ""
        await asyncio.sleep(POLL_S)
