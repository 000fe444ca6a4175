"""Reading ends from any thread, also where it waits for a line."""

from __future__ import annotations

import threading

from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi.testing import FakeLog


class WaitingLog(FakeLog):
    """A log without a line, whose readers wait until it is closed."""

    def __init__(self) -> None:
        super().__init__([])
        self.closed = threading.Event()

    def __next__(self) -> str:
        assert self.closed.wait(10)
        raise StopIteration

    def close(self) -> None:
        self.closed.set()


def test_a_reader_that_waits_for_a_line_ends() -> None:
    stop, log, waits = LogStop(), WaitingLog(), threading.Event()
    found: list[list[str]] = []

    def read() -> None:
        with stop.closing(log):
            waits.set()
            found.append([*log])

    reader = threading.Thread(target=read)
    reader.start()
    assert waits.wait(10)
    stop.set()
    reader.join(10)
    assert (found, stop.is_set(), stop.wait(10)) == ([[]], True, True)


def test_a_stream_that_comes_after_the_end_is_closed_at_once() -> None:
    stop, log = LogStop(), WaitingLog()
    stop.set()
    with stop.closing(log):
        assert log.closed.is_set()


def test_what_a_part_of_the_reading_holds_ends_with_the_whole() -> None:
    stop, log = LogStop(), WaitingLog()
    with stop.closing(LogStop()) as part, part.closing(log):
        stop.set()
        assert (part.is_set(), log.closed.is_set()) == (True, True)


def test_a_part_that_is_over_does_not_end_the_whole() -> None:
    stop = LogStop()
    with stop.closing(LogStop()) as part:
        pass
    assert (part.is_set(), stop.is_set()) == (True, False)
