"""Whoever waits with TorchX's own `Runner.wait` comes to an end, within the bound, and learns what was known last."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from torchx.runner import Runner
from torchx.specs import AppState
from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.look import look_at
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.waiting import GONE_S, REFUSED_S, UNREACHABLE_S
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.observe import AppSnapshot
from torchx_pulumi.torchx_adapter.polling import PollLimits

from tests.fakes import FakeDriver

from .conftest import World

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
REFUSED = ClusterError("the fake cluster does not accept the credentials", reason="Unauthorized")
FORBIDDEN = ClusterError("the fake cluster forbids it", reason="Forbidden")
AWAY = ClusterError("the fake cluster cannot be reached", retryable=True, reason="Unreachable")


class TickingClock:
    """A clock that goes on by a little whenever it is looked at."""

    def __init__(self, tick_s: float = 0.3) -> None:
        self.passed = 0.0
        self.tick_s = tick_s

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        self.passed += self.tick_s
        return self.passed

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self.passed += seconds


def runner_of(world: World, clock: TickingClock) -> Runner:
    return Runner("torchx", {"pulumi_volcano": lambda session, **_: world.scheduler(session=session, clock=clock)})


def handle(app_id: str) -> Any:
    return f"pulumi_volcano://torchx/{app_id}"


def test_who_asks_again_for_an_app_that_nobody_knows_is_told_once_why_the_cluster_was_not_asked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def unusable(kubeconfig: str | None, context: str | None) -> Any:
        raise ClusterError("no kubeconfig")

    scheduler = world.scheduler(connect=unusable)
    assert [scheduler.describe("default:never") for _ in range(3)] == [None] * 3
    assert caplog.text.count("no kubeconfig") == 1


@pytest.mark.parametrize("seen", [False, True])
def test_a_wait_for_a_job_that_its_time_to_live_removed_ends(
    world: World, submit: Callable[..., str], seen: bool
) -> None:
    app_id, clock = submit(ttl_seconds_after_finished=1), TickingClock()
    runner = runner_of(world, clock)
    if seen:
        world.phase(app_id, "Running")
        assert str(runner.status(handle(app_id)).state) == "RUNNING"  # type: ignore[union-attr]
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    words = "last seen RUNNING" if seen else "its state was never seen"
    with pytest.raises(ClusterError, match=f"its objects are gone from the cluster; {words}.*its end is unknown"):
        runner.wait(handle(app_id), wait_interval=0)
    assert clock.passed <= GONE_S + 3


@pytest.mark.parametrize(("error", "bound"), [(REFUSED, REFUSED_S), (FORBIDDEN, REFUSED_S), (AWAY, UNREACHABLE_S)])
def test_a_wait_without_an_answer_ends_with_the_last_state_and_the_reason(
    world: World, submit: Callable[..., str], error: ClusterError, bound: float
) -> None:
    app_id, clock = submit(), TickingClock(bound / 200)
    world.phase(app_id, "Running")
    runner = runner_of(world, clock)
    assert runner.status(handle(app_id)) is not None
    world.cluster.error = error
    # One question is still answered from the record.
    assert "it may have changed since" in runner.status(handle(app_id)).msg  # type: ignore[union-attr]
    with pytest.raises(ClusterError, match=f"last known state: RUNNING.*{error}.*{REFUSED_S:g} s.*{UNREACHABLE_S:g} s"):
        runner.wait(handle(app_id), wait_interval=0)
    assert bound <= clock.passed <= bound + 10 * clock.tick_s


def test_an_answer_in_between_lets_the_wait_go_on(world: World, submit: Callable[..., str]) -> None:
    app_id, clock = submit(), TickingClock()
    runner = runner_of(world, clock)
    for _ in range(5):
        world.cluster.error = REFUSED
        since = clock.passed
        while clock.passed - since < REFUSED_S - 3:
            runner.status(handle(app_id))
        world.cluster.error = None
        runner.status(handle(app_id))
    world.phase(app_id, "Completed")
    found = runner.wait(handle(app_id), wait_interval=0)
    assert found is not None
    assert found.state is AppState.SUCCEEDED


def test_an_end_that_was_seen_is_returned_although_the_access_is_refused(
    world: World, submit: Callable[..., str]
) -> None:
    app_id, clock = submit(), TickingClock()
    world.phase(app_id, "Completed")
    runner = runner_of(world, clock)
    runner.status(handle(app_id))
    world.cluster.error = REFUSED
    found = runner.wait(handle(app_id), wait_interval=0)
    assert found is not None
    assert found.state is AppState.SUCCEEDED


def test_a_launch_that_waits_says_at_once_that_it_is_refused(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = FakeDriver.launch

    def refused_afterwards(driver: FakeDriver, *given: Any, **more: Any) -> Any:
        entry = launch(driver, *given, **more)
        world.cluster.error = REFUSED
        return entry

    monkeypatch.setattr(FakeDriver, "launch", refused_afterwards)
    with pytest.raises(ClusterError, match="does not accept the credentials"):
        submit(wait_for="running")
    assert len(RunIndex().all()) == 1


@pytest.mark.parametrize(("program", "ends"), [("/somewhere/bin/torchx", True), ("train.py", False)])
def test_only_the_command_that_asks_for_an_unknown_app_again_and_again_gets_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch, program: str, ends: bool
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    clock = TickingClock()
    scheduler = world.scheduler(clock=clock)
    assert scheduler.describe("default:nope") is None
    clock.passed += GONE_S
    if not ends:
        assert scheduler.describe("default:nope") is None
        return
    # Another one is asked for the first time.
    assert scheduler.describe("default:other") is None
    assert scheduler.describe("default:nope") is None
    clock.passed += GONE_S
    with pytest.raises(ClusterError, match="default:nope is not known here; it was deleted, or never launched"):
        scheduler.describe("default:nope")


@pytest.mark.parametrize(("command", "lines"), [("log", 2), ("status", 0)])
def test_the_command_log_says_what_an_app_waits_for_at_the_start_and_at_each_change(
    submit: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    command: str,
    lines: int,
) -> None:
    caplog.set_level("INFO")
    entry, limits = RunIndex().find(submit(), "volcano"), PollLimits(TickingClock(), [command, "handle"])
    assert entry is not None
    look = look_at(App.of(entry).run, None, datetime.now(timezone.utc))
    for message in ("no room", "no room", "the image is pulled"):
        status = JobStatus(state=JobState.PENDING, reason=Reason.SUBMITTED, message=message)
        limits.check(entry, AppSnapshot(status=status, look=look))
    running = JobStatus(state=JobState.RUNNING, reason=Reason.RUNNING, message="on")
    limits.check(entry, AppSnapshot(status=running, look=look))
    said = [line for line in caplog.messages if line.startswith(f"waiting for app {entry.app_id} to start: ")]
    assert len(said) == lines, caplog.messages
