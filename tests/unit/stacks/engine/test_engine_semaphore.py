"""The semaphore of engines: its number, the order of those who wait, and what a killed or suspended one leaves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi_stacks.engine import engine_semaphore
from torchx_pulumi_stacks.engine.engine_semaphore import VARIABLE, EngineSlot, max_engines

LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def slot(folder: Path, **more: Any) -> EngineSlot:
    return EngineSlot(folder, more.pop("progress", print), **more)


def tickets(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/queue/*"))


def queue_up(pool: ThreadPoolExecutor, folder: Path, names: str) -> tuple[list[str], list[Future[None]]]:
    """Let threads wait for a slot, each after the one before it waits; return the names of those that got it."""
    order: list[str] = []

    def acquire(name: str) -> None:
        with slot(folder):
            order.append(name)

    futures = []
    for name in names:
        count = len(tickets(folder))
        futures.append(pool.submit(acquire, name))
        eventually(lambda count=count: len(tickets(folder)) > count)  # type: ignore[misc]
    return order, futures


def in_child(folder: Path, reach: Callable[[], bool], **more: Any) -> int:
    """Fork a process that acquires a slot and stays; return its id when `reach` holds."""
    child = os.fork()
    if child == 0:
        try:
            with slot(folder, **more):
                time.sleep(LIMIT_S)
        finally:
            os._exit(1)
    eventually(reach)
    return child


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("given", "cores", "memory_mb", "expected"),
    [
        ("7", 2, 8_000, 7),
        ("0", 2, 8_000, 1),
        ("many", 2, 8_000, 4),
        ("²", 2, 8_000, 4),
        ("", 0.5, 8_000, 4),
        ("", 2, 8_000, 4),
        ("", 64, 256_000, 128),
        ("", 64, 16_000, 32),
        ("", 64, 1_000, 2),
        ("", 64, 300, 1),
    ],
)
def test_the_number_of_engines_follows_cores_and_memory(
    given: str, cores: float, memory_mb: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    monkeypatch.setattr(engine_semaphore, "usable_cores", lambda: cores)
    monkeypatch.setattr(engine_semaphore, "usable_memory_mb", lambda: memory_mb)
    assert max_engines() == expected


def test_no_more_than_the_number_hold_a_slot(
    pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    at_once, most = 0, 0

    def acquire(_: int) -> None:
        nonlocal at_once, most
        with slot(tmp_path):
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.02)
            at_once -= 1

    list(pool.map(acquire, range(24)))
    assert most == 3
    assert tickets(tmp_path) == []


def test_slots_are_acquired_in_order_of_arrival(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    with slot(tmp_path):
        order, futures = queue_up(pool, tmp_path, "abcdef")
    for future in futures:
        future.result(LIMIT_S)
    assert "".join(order) == "abcdef"


def test_a_newcomer_does_not_overtake_those_who_wait(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    # The slot is free at this moment, and the first who waits has not tried it again yet.
    first = slot(tmp_path)
    first.acquire()
    order, futures = queue_up(pool, tmp_path, "a")
    first.release()
    with slot(tmp_path):
        order.append("newcomer")
    futures[0].result(LIMIT_S)
    assert order == ["a", "newcomer"]


def test_a_released_slot_is_free_before_the_block_ends(tmp_path: Path) -> None:
    with slot(tmp_path) as one:
        one.release()
        with slot(tmp_path):
            one.release()


def test_a_process_killed_with_a_slot_frees_it(tmp_path: Path) -> None:
    child = in_child(tmp_path, lambda: (next(tmp_path.glob("*/0"), None)) is not None)
    kill(child)
    with slot(tmp_path):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
def test_a_process_that_is_killed_or_suspended_while_it_waits_does_not_block_the_queue(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_semaphore, "STALE_S", 0.5)
    monkeypatch.setattr(engine_semaphore, "RENEW_S", 0.1)
    with slot(tmp_path):
        children = [in_child(tmp_path, lambda count=count: len(tickets(tmp_path)) > count) for count in range(3)]  # type: ignore[misc]
        for child in children:
            os.kill(child, number)
    try:
        begun = time.monotonic()
        with slot(tmp_path):
            # All at once, not one after the other.
            assert time.monotonic() - begun < 3 * engine_semaphore.STALE_S
            assert tickets(tmp_path) == []
    finally:
        for child in children:
            kill(child)


def test_a_ticket_from_before_the_clock_was_set_back_does_not_block_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_semaphore, "RENEW_S", 0.05)
    with slot(tmp_path):
        folder = next(tmp_path.glob("*/queue"))
    left = folder / f"{time.time_ns() - 10**9:020d}-killed"
    left.touch()
    limit = time.monotonic() + LIMIT_S
    os.utime(left, (time.time() + 3600,) * 2)
    with slot(tmp_path, check=lambda: pytest.fail("it waits") if limit < time.monotonic() else None):
        assert not left.exists()


def test_a_waiting_launch_renews_its_ticket_and_its_lease(
    pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_semaphore, "RENEW_S", 0.05)
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1

    def acquire() -> None:
        with slot(tmp_path, check=check):
            pass

    with slot(tmp_path):
        future = pool.submit(acquire)
        eventually(lambda: len(tickets(tmp_path)) == 1)
        first = tickets(tmp_path)[0].stat().st_mtime_ns
        eventually(lambda: checks > 3 and tickets(tmp_path)[0].stat().st_mtime_ns > first)
    future.result(LIMIT_S)


def test_a_lease_that_takes_long_to_renew_holds_no_slot(tmp_path: Path) -> None:
    def check() -> None:
        with slot(tmp_path):
            pass

    with slot(tmp_path, check=check):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TakenOverError("taken over")], ids=["Ctrl-C", "taken over"])
def test_a_wait_that_ends_early_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_semaphore, "RENEW_S", 0.0)
    waits = False

    def check() -> None:
        nonlocal waits
        if waits:
            raise error
        waits = True

    with slot(tmp_path):
        with pytest.raises(type(error)), slot(tmp_path, check=check):
            pass
        assert tickets(tmp_path) == []


def test_only_a_launch_that_has_to_wait_prepares_meanwhile(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    prepared: list[str] = []
    first, second = slot(tmp_path), slot(tmp_path)
    first.acquire(lambda: prepared.append("first"))
    future = pool.submit(second.acquire, lambda: prepared.append("second"))
    eventually(lambda: bool(prepared))
    first.release()
    future.result(LIMIT_S)
    second.release()
    assert prepared == ["second"]


def test_waiting_is_reported_with_the_number_of_those_ahead(
    pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_semaphore, "SILENT_S", 0.0)
    told: list[str] = []

    def acquire() -> None:
        with slot(tmp_path, progress=told.append):
            pass

    with slot(tmp_path):
        _, futures = queue_up(pool, tmp_path, "abc")
        last = pool.submit(acquire)
        eventually(lambda: bool(told))
    for future in [*futures, last]:
        future.result(LIMIT_S)
    assert told[0] == (
        "waiting for a free engine slot, 3 ahead; at most 1 at once on this host (TORCHX_PULUMI_MAX_ENGINES)"
    )


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="file"), slot(tmp_path / "file"):
        pass
