"""Concurrent reads of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any


def in_thread(call: Callable[[], Any]) -> Future[Any]:
    """Call something in a thread of its own.

    A process that ends does not wait for the thread, as it would for one of `concurrent.futures`.
    """
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks for the outcome
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def run_concurrently(*calls: Callable[[], Any] | None) -> Sequence[Any]:
    """Run calls at the same time and return their results in order.

    Args:
        calls: Reads that may wait for the network. None: the result is None.

    Raises:
        Exception: The error of the first call, in order, that failed. All calls have ended by then.

    >>> run_concurrently(lambda: 1, lambda: 2)
    [1, 2]
    """
    outcomes = [call and in_thread(call) for call in calls]
    wait(filter(None, outcomes))
    return [outcome and outcome.result() for outcome in outcomes]
