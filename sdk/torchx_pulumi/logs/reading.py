"""The lines of a query, from one container or merged from several."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from torchx_pulumi.kube import PodReader
from torchx_pulumi.logs.container_log import ContainerLog
from torchx_pulumi.logs.containers import chosen_containers, no_pod, no_previous, not_started, run_of
from torchx_pulumi.logs.query import Limits, LogQuery, limits_of
from torchx_pulumi.logs.stamps import Line
from torchx_pulumi.logs.watching import POLL_S, LogClock, PodWatch, SystemClock, Watch
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.runs.waiting import Patience

SILENCE_OF_SEVERAL_S = 5.0
"""Longest silence of one of several containers, after which a waiting thread checks whether it may end."""

FIRST_TRIES = 4
"""Attempts to reach a cluster that has never answered: it may be the wrong one."""

AHEAD = 1000
"""Lines that are read ahead of the caller."""

Labelled = tuple[str, Line]
"""A container and a line of it."""


def read_lines(
    cluster: PodReader,
    query: LogQuery,
    *,
    ended: Callable[[], bool] = lambda: False,
    watch: Watch | None = None,
    label: Callable[[str], str] | None = None,
    clock: LogClock | None = None,
) -> Iterator[str]:
    r"""Return the lines of a query, each ending in `\n`. Closing the iterator closes the connections.

    Args:
        cluster: Cluster of the pod.
        query: The query. It is validated at once; nothing is read before the first line is requested.
        ended: Returns whether the app has ended. Called only for a followed log, by one thread at a time.
        watch: Observes the pod of a followed log. None: the pod is read, and `ended` is called.
        label: Returns the prefix of a container's lines. None: `[container] ` for several containers, else none.
        clock: The clock. None: that of the machine.

    Raises:
        InvalidJobError: The query is not valid.
        ClusterError: No such pod or container, no log yet, no permission, or no answer.
    """
    limits = limits_of(query)
    clock = clock or SystemClock()
    if not query.follow or query.previous:
        watch = PodWatch(cluster, query.namespace, query.pod, lambda: True, clock)
    watch = watch or PodWatch(cluster, query.namespace, query.pod, ended, clock)
    return _lines(cluster, query, limits, watch, label, clock)


def _lines(
    cluster: PodReader,
    query: LogQuery,
    limits: Limits,
    watch: Watch,
    label: Callable[[str], str] | None,
    clock: LogClock,
) -> Iterator[str]:
    follow = query.follow and not query.previous
    pod = _pod(watch, clock)
    if pod is None:
        raise no_pod(cluster, query)
    names = chosen_containers(pod, query)
    several = len(names) > 1
    options = {"silence_s": SILENCE_OF_SEVERAL_S} if several else {}
    logs = [ContainerLog(cluster, query, limits, name, watch=watch, clock=clock, **options) for name in names]
    if not several:
        read = logs[0].follow() if follow else _explained(logs[0], pod, query)
        merged: Iterator[Labelled] = ((names[0], line) for line in _within(limits, read))
    elif follow:
        merged = _followed(logs, limits)
    else:
        merged = _merged_by_time(logs, pod, query, limits)
    label_of = label or (lambda name: f"[{name}] " if several else "")
    pattern = limits.pattern
    with closing(merged):  # type: ignore[type-var]  # they are generators
        for name, line in merged:
            shown = f"{line.stamp} {line.text}" if query.timestamps and line.stamp else line.text
            if pattern is None or pattern.search(line.text) or pattern.search(shown):
                yield f"{label_of(name)}{shown}\n"


def _pod(watch: Watch, clock: LogClock) -> Manifest | None:
    """Return the pod, and wait for it if its log is followed. None: it does not exist, or the app ended without it."""
    never = threading.Event()
    after: float | None = None
    patience, answered, failures = Patience(), False, 0
    while True:
        try:
            observed = watch.observe(after, never)
            if observed is None or observed.pod is not None or observed.over:
                return None if observed is None else observed.pod
            patience.answered()
            answered, failures = True, 0
        except ClusterError as error:
            failures += 1
            # A cluster that never answered may be the wrong one. One that answered before is waited for.
            over = patience.failed(error, clock.monotonic()) or error.reason == DIFFERENT_CLUSTER
            if over if answered else not error.retryable or failures >= FIRST_TRIES:
                raise
            clock.wait(POLL_S if answered else 0.1, never)
        after = clock.monotonic()


def _explained(log: ContainerLog, pod: Manifest, query: LogQuery) -> Iterator[Line]:
    """Yield the current lines of a log, or raise an error that says why there is none."""
    run = run_of(pod, log.container)
    if run.current is None:
        raise not_started(query, log.container, run)
    try:
        yield from log.once()
    except ClusterError as error:
        if error.reason == "NotFound":
            raise ClusterError(f"{error}; it was there a moment ago", reason=error.reason) from None
        if query.previous and "previous terminated container" in str(error):
            raise no_previous(query, log.container, run) from None
        raise


def _within(limits: Limits, lines: Iterator[Line]) -> Iterator[Line]:
    """Yield the lines between `since` and `until`."""
    with closing(lines):  # type: ignore[type-var]  # they are generators
        for line in lines:
            if limits.until_ns is not None and line.at_ns > limits.until_ns:
                return
            if limits.since_ns is None or line.at_ns >= limits.since_ns:
                yield line


def _merged_by_time(logs: Sequence[ContainerLog], pod: Manifest, query: LogQuery, limits: Limits) -> Iterator[Labelled]:
    """Yield the current lines of several containers, sorted by time. Containers without such a run are skipped."""
    runs = [(log, run_of(pod, log.container)) for log in logs]
    begun = [log for log, run in runs if (run.previous if query.previous else run.current) is not None]
    if not begun and query.previous:
        raise no_previous(query, logs[0].container, runs[0][1])
    if not begun:
        raise not_started(query, logs[0].container, run_of(pod, logs[0].container))

    def labelled(log: ContainerLog) -> Iterator[Labelled]:
        for line in _within(limits, _explained(log, pod, query)):
            yield log.container, line

    try:
        yield from heapq.merge(*(labelled(log) for log in begun), key=lambda item: item[1].at_ns)
    finally:
        for log in begun:
            log.stop()


def _followed(logs: Sequence[ContainerLog], limits: Limits) -> Iterator[Labelled]:
    """Follow several containers, each in a thread."""
    come: queue.Queue[Labelled | Exception | None] = queue.Queue(AHEAD)

    def read(log: ContainerLog) -> None:
        try:
            for line in _within(limits, log.follow()):
                come.put((log.container, line))
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
        for log in logs:
            log.stop()
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
