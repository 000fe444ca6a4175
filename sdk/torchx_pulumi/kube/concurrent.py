"""Concurrent reads of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


def run_concurrently(*calls: Callable[[], Any]) -> Sequence[Any]:
    """Run calls at the same time and return their results in order. The last one runs in the calling thread.

    Args:
        calls: Reads that may wait for the network.

    Raises:
        Exception: The error of the first call, in order, that failed. All calls have ended by then.

    >>> run_concurrently(lambda: 1, lambda: 2)
    [1, 2]
    """
    outcomes: list[Future[Any]] = [Future() for _ in calls]

    def run(place: int) -> None:
        try:
            outcomes[place].set_result(calls[place]())
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            outcomes[place].set_exception(error)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls) - 1)]
    for thread in threads:
        thread.start()
    if calls:
        run(len(calls) - 1)
    for thread in threads:
        thread.join()
    return [outcome.result() for outcome in outcomes]
