"""Of two controllers of the same stacks one writes, and the other one takes over. Real Lease, real processes."""

from __future__ import annotations

import sys
import time

import pytest

from tests.e2e.fleet.controller_process import ControllerProcess
from tests.e2e.fleet.controller_world import World
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

LEADS, STANDS_BY = "this process leads", "this process stands by"
TAKEOVER_S = 20.0
"""Longest time without a leader after a kill: the duration of the Lease, one attempt, and some for a busy machine."""
LISTING_S = 30.0
"""Time between two listings of the stacks while nothing points to a new one."""


def wait_to_lead(process: ControllerProcess, timeout_s: float) -> float:
    """Wait until a controller leads; return the time."""
    eventually(lambda: bool(process.lines(LEADS)), timeout_s)
    return time.time()


def test_a_standby_takes_over_from_a_leader_that_is_stopped_and_from_one_that_is_killed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    lease = ("--lease", f"{world.namespace}/controller")
    first = world.controller(*lease)
    wait_to_lead(first, 60)
    second = world.controller(*lease)
    eventually(lambda: bool(second.lines(STANDS_BY, f"holds Lease {world.namespace}/controller")))
    one, two, three = world.launch(count=3)
    world.end(one)
    world.reaches(one, "SUCCEEDED")
    # The line comes after the write.
    eventually(lambda: first.lines(one, "SUCCEEDED"))

    first.stop()
    stopped_at = time.time()
    given_s = wait_to_lead(second, 10) - stopped_at
    world.end(two)
    world.reaches(two, "SUCCEEDED")
    eventually(lambda: second.lines(two, "SUCCEEDED"))
    assert not second.lines(one, "SUCCEEDED"), "the first one wrote it"

    third = world.controller(*lease)
    eventually(lambda: bool(third.lines(STANDS_BY)))
    killed_at = time.time()
    second.process.kill()
    second.process.wait()
    world.end(three)
    led_at = wait_to_lead(third, TAKEOVER_S + 30)
    taken_s = led_at - killed_at
    assert taken_s < TAKEOVER_S, third.said()
    # It ended while no process led: the takeover writes it, and not the next listing of the stacks, 30 s later.
    assert world.reaches(three, "SUCCEEDED") - led_at < LISTING_S / 2, third.said()
    with capsys.disabled():
        sys.stdout.write(f"\ntakeover: {given_s:.1f} s after a stop, {taken_s:.1f} s after a kill\n")
