"""Wait until a run has reached a goal. `runs.waiting` maps observed statuses to outcomes.

The program waits, not the provider with the annotation `pulumi.com/waitFor`: a list of conditions there means all of
them, so that the provider would wait forever for a failed job. The stack is locked meanwhile; an interrupt leaves the
run as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pulumi
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Remembered, look_at, read_objects
from torchx_pulumi.apps.ownership import run_of_record
from torchx_pulumi.kube import PodReader
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.runs.decision import RUN_AGAIN
from torchx_pulumi.runs.registration import pod_names
from torchx_pulumi.runs.waiting import POLL_S, Wait
from torchx_pulumi.schedulers import variant_of

from torchx_pulumi_components.launch import Launch, judged_status
from torchx_pulumi_components.resources import KubernetesObject


async def wait_until(
    launch: Launch,
    objects: Sequence[KubernetesObject],
    cluster: PodReader,
    goal: WaitFor,
    timeout_s: int | None,
    hide: Callable[[str], str],
) -> tuple[Launch, str | None]:
    """Wait until a run has reached the goal.

    Args:
        launch: The decision about the run.
        objects: Its registered objects, the job object first.
        cluster: Cluster of the run.
        goal: The goal.
        timeout_s: How long to wait. None: without limit.
        hide: Removes secrets of the arguments from a line of progress.

    Returns:
        The launch with the run as last observed, and why it will not reach the goal. None: it did.

    Raises:
        ClusterError: The cluster refuses, or does not answer, from the beginning; see `Wait.failed`.
    """
    for resource in objects:
        await resource.urn.future()
    plan, variant = launch.plan, variant_of(launch.plan.options)
    wait, begun = _wait_for(launch, goal, timeout_s), time.monotonic()
    uid = launch.run.uid or await objects[0].uid.future()
    expected = {role.name: pod_names(plan, role) for role in plan.roles}
    run = replace(run_of_record(launch.run, variant, launch.owners), uid=uid, expected=expected)
    remembered = Remembered().with_objects(launch.observed)
    known: Mapping[str, Any] | None = launch.answer.observed or None
    note = "; an interrupt ends the wait and leaves the job running"
    seen: Launch | None = None
    while True:
        try:
            observed = await asyncio.to_thread(read_objects, run, cluster)
        except ClusterError as error:
            try:
                turn = wait.failed(error, time.monotonic() - begun)
            except ClusterError as given_up:
                if seen is None:
                    raise
                return seen, str(given_up)
        else:
            look = look_at(run, observed, datetime.now(timezone.utc), remembered=remembered)
            remembered = look.remembered
            known = judge(look, launch.answer.requested, known)
            seen = replace(launch, look=look, judged=known)
            turn = wait.observed(judged_status(look, known), time.monotonic() - begun)
            if turn.done or turn.failure is not None:
                return seen, turn.failure
        if turn.line:
            pulumi.log.info(hide(turn.line) + note, objects[0])
            note = ""
        await asyncio.sleep(POLL_S)


def missed(launch: Launch, goal: WaitFor) -> str | None:
    """Return why a run that is over, and whose object is gone, has missed the goal.

    Returns:
        None: it reached the goal, or how it ended is not known.
    """
    if launch.look is None:
        return None
    status = judged_status(launch.look, launch.judged)
    return _wait_for(launch, goal, None).observed(status, 0.0).failure if status.state.terminal else None


def _wait_for(launch: Launch, goal: WaitFor, timeout_s: int | None) -> Wait:
    run_again = f"`up` does not run it again. {RUN_AGAIN}"
    return Wait(
        goal, job=f"job {launch.plan.namespace}/{launch.plan.job_name}", timeout_s=timeout_s, run_again=run_again
    )
