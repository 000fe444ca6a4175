"""However many replicas are followed, an app is looked at once for all of them, and seldom while it waits."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from torchx.runner import Runner
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.fakes import FakeCluster, FakeDriver
from tests.unit.logs.scripted import SPEED, FakeClock, FastClock

from .conftest import World, app, role
from .test_reading import pod

REPLICAS = 64


class CountingCluster(FakeCluster):
    """Counts all requests."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[str] = []

    def get(self, kind: kinds.Kind, *rest: Any) -> Any:
        self.asked.append(f"get {kind.kind}")
        return super().get(kind, *rest)

    def list(self, kind: kinds.Kind, *rest: Any) -> Any:
        self.asked.append(f"list {kind.kind}")
        return super().list(kind, *rest)

    def identify(self) -> Any:
        self.asked.append("identify")
        return super().identify()

    def logs(self, *given: Any, **options: Any) -> Any:
        self.asked.append("log")
        return super().logs(*given, **options)


class Gang:
    """A gang of many replicas that waits in its queue, and whoever follows it."""

    def __init__(self, world: World, submit: Callable[..., str], speed: float = SPEED) -> None:
        self.cluster = world.cluster = CountingCluster()
        world.driver = FakeDriver(world.cluster)
        self.world = world
        self.app_id = submit(given=app(role(num_replicas=REPLICAS)))
        self.name = self.app_id.partition(":")[2]
        world.phase(self.app_id, "Pending")
        for index in range(REPLICAS):
            self.pod(index, "Pending")
        self.runner = Runner(
            "torchx", {"pulumi_volcano": lambda session, **_: world.scheduler(session=session, clock=FastClock(speed))}
        )
        self.handle: Any = f"pulumi_volcano://torchx/{self.app_id}"
        self.cluster.asked.clear()
        self.begun = time.monotonic()

    def pod(self, index: int, phase: str, **status: Any) -> None:
        self.cluster.put(pod(f"{self.name}-trainer-{index}-0", self.name, phase, **status))

    def passed(self) -> float:
        return (time.monotonic() - self.begun) * SPEED

    def end(self) -> None:
        """Let all replicas run and end."""
        ended = {"state": {"terminated": {"exitCode": 0, "containerID": "c"}}}
        for index in range(REPLICAS):
            self.cluster._logs["default", f"{self.name}-trainer-{index}-0"] = [f"line {index}"]
            self.pod(index, "Succeeded", containerStatuses=[{"name": "trainer-0", **ended}])
        self.world.phase(self.app_id, "Completed")


def test_following_all_replicas_of_a_waiting_gang_makes_two_requests_a_second_at_most(
    world: World, submit: Callable[..., str]
) -> None:
    gang = Gang(world, submit)
    lines: dict[int, list[str]] = {}

    def follow(index: int) -> None:
        lines[index] = list(gang.runner.log_lines(gang.handle, "trainer", index, should_tail=True))

    threads = [threading.Thread(target=follow, args=(index,), daemon=True) for index in range(REPLICAS)]
    for thread in threads:
        thread.start()
    while gang.passed() < 12:
        time.sleep(0.05)
    asked, passed = len(gang.cluster.asked), gang.passed()
    assert 6 <= asked <= 2 * passed
    gang.end()
    for thread in threads:
        thread.join(30)
    assert [[text.split()[-1] for text in lines[index]] for index in range(REPLICAS)] == [
        [str(index)] for index in range(REPLICAS)
    ]


def test_polling_the_state_of_a_waiting_gang_makes_two_requests_a_second_at_most(
    world: World, submit: Callable[..., str]
) -> None:
    gang = Gang(world, submit)
    while gang.passed() < 8:
        status = gang.runner.status(gang.handle)
        assert status is not None
        assert str(status.state) == "PENDING"
        time.sleep(1 / SPEED)
    assert len(gang.cluster.asked) <= 2 * gang.passed()


def test_a_state_that_is_asked_for_again_is_read_again(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    for phase, state in (("Pending", "PENDING"), ("Running", "RUNNING"), ("Pending", "PENDING"), ("Failed", "FAILED")):
        world.phase(app_id, phase)
        assert str(scheduler.describe(app_id).state) == state


def test_followers_learn_together_that_the_access_is_refused(world: World, submit: Callable[..., str]) -> None:
    gang = Gang(world, submit, speed=60)
    lines = [gang.runner.log_lines(gang.handle, "trainer", index, should_tail=True) for index in range(3)]
    gang.cluster.error = ClusterError("refused", reason="Unauthorized")
    gang.cluster.asked.clear()
    found: list[Exception] = []

    def follow(each: Any) -> None:
        try:
            list(each)
        except ClusterError as error:
            found.append(error)

    threads = [threading.Thread(target=follow, args=(each,), daemon=True) for each in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 3
    for error in found:
        assert str(error).startswith(f"app {gang.app_id}, last known state: PENDING")
        assert "refused" in str(error)
        # Each has an error of its own: one that is shared collects the frames of all who got it.
        assert len(traceback.extract_tb(error.__traceback__)) < 20


@pytest.mark.parametrize("ttl", [None, 1])
def test_a_followed_log_of_a_job_that_is_gone_ends(world: World, submit: Callable[..., str], ttl: int | None) -> None:
    app_id = submit(ttl_seconds_after_finished=ttl)
    scheduler = world.scheduler(clock=FastClock())
    world.phase(app_id, "Pending")
    lines = scheduler.log_iter(app_id, "trainer", 0, should_tail=True)
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    with pytest.raises(ClusterError, match="the app has no pods"):
        list(lines)


def test_our_own_command_says_what_a_followed_log_waits_for(
    world: World, submit: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    gang = Gang(world, submit)
    clock = FakeClock()
    clock.on_wait = [lambda: None, lambda: None, gang.end]
    words = ["log", gang.handle, "trainer/0", "--follow"]
    assert world.command(words, clock=clock) == 0
    said = capsys.readouterr()
    assert said.out.endswith(" line 0\n")
    (line,) = said.err.splitlines()
    assert line.startswith(f"waiting for the log of pod {gang.name}-trainer-0-0: PENDING")
    assert line.endswith("0 of 64 replicas ready")
