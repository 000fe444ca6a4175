"""The lines of a query, from one container or merged from several."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from torchx_pulumi.kube import PodReader
from torchx_pulumi.logs.clock import LogClock, SystemClock
from torchx_pulumi.logs.containers import LoggedContainer, chosen_containers, no_previous, not_started
from torchx_pulumi.logs.following import ContainerLog
from torchx_pulumi.logs.query import Limits, LogQuery, limits_of
from torchx_pulumi.logs.resuming import Line
from torchx_pulumi.logs.sources import POLL_S, LogSource, PodSource
from torchx_pulumi.logs.stopping import LogStop
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.runs.waiting import Patience

SILENCE_OF_SEVERAL_S = 5.0
"""Longest silence of one of several containers, after which a waiting thread checks whether it may end."""

FIRST_TRIES = 4
"""Attempts to reach a cluster that has never answered: it may be the wrong one."""

AHEAD = 1000
"""Lines that are read ahead of the caller."""

Label = Callable[[str], str]
"""Container -> what its lines begin with."""

Labelled = tuple[str, Line]
"""A container and a line of it."""


def read_lines(
    cluster: PodReader,
    query: LogQuery,
    *,
    ended: Callable[[], bool] = lambda: False,
    label: Label | None = None,
    clock: LogClock | None = None,
    stop: LogStop | None = None,
) -> Iterator[str]:
    r"""Return the lines of a query, each ending in `\n`. Closing the iterator closes the connections.

    Args:
        cluster: Cluster of the pod.
        query: The query. It is validated at once; nothing is read before the first line is requested.
        ended: Returns whether the app has ended. Called only for a followed log, by one thread at a time.
        label: Returns the prefix of a container's lines. None: `[container] ` for several containers, else none.
        clock: The clock. None: that of the machine.
        stop: Ends the reading from any thread. None: nothing does.

    Raises:
        InvalidJobError: The query is not valid.
        ClusterError: No such pod or container, no log yet, no permission, or no answer.
    """
    clock = clock or SystemClock()
    followed = query.follow and not query.previous
    source = PodSource(cluster, query, ended=ended if followed else lambda: True, clock=clock)
    return read_source(source, query, label=label, clock=clock, stop=stop)


def read_source(
    source: LogSource,
    query: LogQuery,
    *,
    label: Label | None = None,
    clock: LogClock | None = None,
    stop: LogStop | None = None,
) -> Iterator[str]:
    """Return the lines of a query in a source; arguments and errors as of `read_lines`."""
    return _lines(source, query, limits_of(query), label, clock or SystemClock(), stop or LogStop())


def _lines(
    source: LogSource, query: LogQuery, limits: Limits, label: Label | None, clock: LogClock, outer: LogStop
) -> Iterator[str]:
    follow = query.follow and not query.previous
    # The end of the block ends the threads of this read only.
    with outer.closing(LogStop()) as stop:
        found = _containers(source, clock, stop, follow=follow)
        if found is None and stop.is_set():
            return
        if found is None:
            raise source.absent()
        chosen = chosen_containers(found, query)
        several = len(chosen) > 1
        silence = {"silence_s": SILENCE_OF_SEVERAL_S} if several else {}
        logs = [ContainerLog(source, query, limits, item.name, clock=clock, stop=stop, **silence) for item in chosen]
        if not follow:
            merged = _merged_by_time([*zip(chosen, logs, strict=True)], query, limits)
        elif several:
            merged = _followed(logs, limits, stop)
        else:
            merged = _labelled(logs[0], logs[0].follow(), limits)
        label = label or (lambda name: f"[{name}] " if several else "")
        pattern = limits.pattern
        with closing(merged):  # type: ignore[type-var]  # they are generators
            for name, line in merged:
                shown = f"{line.stamp} {line.text}" if query.timestamps and line.stamp else line.text
                if pattern is None or pattern.search(line.text) or pattern.search(shown):
                    yield f"{label(name)}{shown}\n"


def _containers(source: LogSource, clock: LogClock, stop: LogStop, *, follow: bool) -> Sequence[LoggedContainer] | None:
    """Return the pod's containers, and wait for the pod if its log is followed.

    Returns:
        None: The pod does not exist, the app ended without it, or the reading has to end.
    """
    after: float | None = None
    patience, answered, failures = Patience(), False, 0
    while True:
        try:
            observed = source.observe(after, stop)
            if observed is None or observed.containers is not None or observed.over or not follow:
                return None if observed is None else observed.containers
            patience.answered()
            answered, failures = True, 0
        except ClusterError as error:
            failures += 1
            # A cluster that never answered may be the wrong one. One that answered before is waited for.
            over = patience.failed(error, clock.monotonic()) or error.reason == DIFFERENT_CLUSTER
            if over if answered else not error.retryable or failures >= FIRST_TRIES:
                raise
            clock.wait(POLL_S if answered else 0.1, stop)
        after = clock.monotonic()


def _labelled(log: ContainerLog, lines: Iterator[Line], limits: Limits) -> Iterator[Labelled]:
    """Yield the lines between `since` and `until` with the name of their container."""
    with closing(lines):  # type: ignore[type-var]  # they are generators
        for line in lines:
            if limits.until_ns is not None and line.at_ns > limits.until_ns:
                return
            if limits.since_ns is None or line.at_ns >= limits.since_ns:
                yield log.container, line


def _merged_by_time(
    logs: Sequence[tuple[LoggedContainer, ContainerLog]], query: LogQuery, limits: Limits
) -> Iterator[Labelled]:
    """Yield the current lines of containers, sorted by time. Of several, those without such a run are skipped."""
    begun = [item for item in logs if (item[0].previous if query.previous else item[0].current) is not None]
    if not begun:
        first = logs[0][0]
        raise no_previous(query, first) if query.previous and first.current else not_started(query, first)
    lines = [_labelled(log, _explained(container, log, query), limits) for container, log in begun]
    yield from heapq.merge(*lines, key=lambda item: item[1].at_ns)


def _explained(container: LoggedContainer, log: ContainerLog, query: LogQuery) -> Iterator[Line]:
    """Yield the current lines of a log, or raise an error that says why there is none."""
    try:
        yield from log.once()
    except ClusterError as error:
        if error.reason == "NotFound":
            raise ClusterError(f"{error}; it was there a moment ago", reason=error.reason) from None
        if query.previous and "previous terminated container" in str(error):
            raise no_previous(query, container) from None
        raise


def _followed(logs: Sequence[ContainerLog], limits: Limits, stop: LogStop) -> Iterator[Labelled]:
    """Follow several containers, each in a thread."""
    come: queue.Queue[Labelled | Exception | None] = queue.Queue(AHEAD)

    def read(log: ContainerLog) -> None:
        try:
            for labelled in _labelled(log, log.follow(), limits):
                come.put(labelled)
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            come.put(error)
        finally:
            come.put(None)

    threads = [threading.Thread(target=read, args=(log,), daemon=True) for log in logs]
    try:
        for thread in threads:
            thread.start()
        left = len(threads)
        while left:
            item = come.get()
            if item is None:
                left -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        stop.set()
        _release(threads, come)


def _release(threads: Sequence[threading.Thread], come: queue.Queue[Labelled | Exception | None]) -> None:
    """End threads that wait for room in the queue. A thread that waits for a line ends at its next timeout."""
    for _ in range(20):
        while not come.empty():
            come.get_nowait()
        for thread in threads:
            thread.join(0.01)
        if not any(thread.is_alive() for thread in threads):
            return
