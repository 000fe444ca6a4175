"""H8: the end of a program's loop hides no error of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from torchx_pulumi_stacks.engine.inline_program import end_loop


@pytest.fixture
def other() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop beside the one of the test, as the program of a launch has one."""
    other = asyncio.new_event_loop()
    yield other
    other.close()


@pytest.mark.parametrize("tasks", [0, 2])
def test_an_open_loop_is_closed_with_tasks_in_it_or_without(other: asyncio.AbstractEventLoop, tasks: int) -> None:
    made = [other.create_task(asyncio.sleep(60)) for _ in range(tasks)]
    end_loop(other)
    assert other.is_closed()
    assert all(task.cancelled() for task in made)


def test_a_closed_loop_is_left_alone(other: asyncio.AbstractEventLoop) -> None:
    other.close()
    end_loop(other)


def test_a_task_that_cannot_reach_the_engine_does_not_keep_the_loop_open(other: asyncio.AbstractEventLoop) -> None:
    """Pulumi's handler stops the loop then."""

    async def report() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            other.call_exception_handler({"message": "connection refused"})

    other.set_exception_handler(lambda loop, _: loop.stop())
    other.create_task(report())
    other.run_until_complete(asyncio.sleep(0))
    end_loop(other)
    assert other.is_closed()


def test_a_stop_that_waits_does_not_keep_the_loop_open(other: asyncio.AbstractEventLoop) -> None:
    other.create_task(asyncio.sleep(60))
    other.stop()
    end_loop(other)
    assert other.is_closed()
