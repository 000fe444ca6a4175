"""The queue of apps: each once, at its time, by one worker."""

from __future__ import annotations

import threading

import pytest
from torchx_pulumi_fleet.tracker.work_queue import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, retry_s=0.5, longest_retry_s=4.0)


def test_a_key_is_there_once_at_its_earliest_time() -> None:
    clock = Clock()
    found = queue(clock)
    found.add("a", 10)
    found.add("b", 5)
    found.add("a", 1)
    found.add("a", 7)
    clock.now += 6
    assert [found.take(), found.take()] == ["a", "b"]
    for key in ("a", "b"):
        found.done(key)
    assert found.pending() == []


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    found = queue(Clock())
    found.add("a")
    assert found.take() == "a"
    found.add("a", 3)
    found.add("a")
    found.add("b")
    assert found.take() == "b"
    found.done("a")
    assert found.take() == "a"


def test_delays_after_failures_double_and_end_with_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)
    clock = Clock()
    found = queue(clock)
    delays = [delay_after_failure(found, clock) for _ in range(6)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert delay_after_failure(found, clock, 1.5) == 1.5
    found.succeeded("a")
    assert delay_after_failure(found, clock) == 0.5


def delay_after_failure(found: WorkQueue[str], clock: Clock, *longest_s: float) -> float:
    found.retry("a", *longest_s)
    begun = clock.now
    while not due(found, clock):
        clock.now += 0.25
    return clock.now - begun


def due(found: WorkQueue[str], clock: Clock) -> bool:
    """Take what is due now, without waiting for more."""
    taken: list[str | None] = []
    found.add("-", 0.0, pending=False)
    for _ in range(2):
        key = found.take()
        taken.append(key)
        if key is not None:
            found.done(key)
        if key == "-":
            break
    if "a" in taken and "-" not in taken:
        found.take()
        found.done("-")
    return "a" in taken


def test_routine_looks_are_not_pending_and_not_hurried() -> None:
    found = queue(Clock())
    found.add("routine", 60, pending=False)
    found.add("write", 60)
    assert found.pending() == ["write"]
    found.hurry()
    assert found.take() == "write"
    found.done("write")
    assert found.pending() == []


def test_closing_ends_all_workers() -> None:
    found = queue(Clock())
    ended = [threading.Thread(target=found.take) for _ in range(3)]
    for thread in ended:
        thread.start()
    found.close()
    for thread in ended:
        thread.join(5)
        assert not thread.is_alive()


def test_ten_thousand_changes_of_one_app_take_one_place() -> None:
    found = queue(Clock())
    for _ in range(10_000):
        found.add("a", 0.05)
    assert len(found._heap) == 1
