"""The lines that a query asks for: of one container, or of several merged."""

from __future__ import annotations

import heapq
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

from torchx_pulumi.kube import Cluster
from torchx_pulumi.logs.clock import Clock, SystemClock
from torchx_pulumi.logs.container_log import ContainerLog
from torchx_pulumi.logs.containers import chosen_containers, no_pod, no_previous, not_started, run_of
from torchx_pulumi.logs.query import Limits, LogQuery, limits_of
from torchx_pulumi.logs.stamps import Line
from torchx_pulumi.logs.watching import POLL_S, PodWatch, Watch
from torchx_pulumi.model.errors import DIFFERENT_CLUSTER, ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.runs.waiting import Patience

SILENCE_OF_SEVERAL_S = 5.0
"""Longest silence of one of several containers: a thread that waits for a first line sees only then that it may end."""

FIRST_TRIES = 4
"""How often a cluster is asked that has not answered yet: a connection may break, and nobody waits for a wrong one."""

AHEAD = 1000
"""Lines read ahead of whoever takes them."""

Labelled = tuple[str, Line]
"""A container and a line of it."""


def read_lines(
    cluster: Cluster,
    query: LogQuery,
    *,
    ended: Callable[[], bool] = lambda: False,
    watch: Watch | None = None,
    label: Callable[[str], str] | None = None,
    clock: Clock | None = None,
) -> Iterator[str]:
    r"""Return the lines that a query asks for, each ending in `\n`.

    Lines of several containers begin with a label. Closing the iterator closes the connections.

    Args:
        cluster: Where the pod is.
        query: What is wanted. It is checked at once; nothing is read before the first line is asked for.
        ended: Tells whether the app has ended; asked only where the log is followed, maybe from several threads, though
            never by two at once.
        watch: Tells of the pod and its end where the log is followed. None: the pod is looked at, and `ended` is asked.
        label: Container to what its lines begin with. None: `[container] ` where there are several, else nothing.
        clock: None: the machine's.

    Raises:
        InvalidJobError: The query contradicts itself.
        ClusterError: No such pod or container, nothing logged yet, no permission, or no answer.
    """
    limits = limits_of(query)
    clock = clock or SystemClock()
    if not query.follow or query.previous:
        watch = PodWatch(cluster, query.namespace, query.pod, lambda: True, clock)
    watch = watch or PodWatch(cluster, query.namespace, query.pod, ended, clock)
    return _lines(cluster, query, limits, watch, label, clock)


def _lines(
    cluster: Cluster,
    query: LogQuery,
    limits: Limits,
    watch: Watch,
    label: Callable[[str], str] | None,
    clock: Clock,
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
        merged = _as_they_come(logs, limits)
    else:
        merged = _by_time(logs, pod, query, limits)
    label_of = label or (lambda name: f"[{name}] " if several else "")
    pattern = limits.pattern
    with closing(merged):  # type: ignore[type-var]  # each of them is a generator
        for name, line in merged:
            shown = f"{line.stamp} {line.text}" if query.timestamps and line.stamp else line.text
            if pattern is None or pattern.search(line.text) or pattern.search(shown):
                yield f"{label_of(name)}{shown}\n"


def _pod(watch: Watch, clock: Clock) -> Manifest | None:
    """Look for the pod, and wait for it where it is followed. None: it is not there, or the app ended without it."""
    nobody_stops = threading.Event()
    after: float | None = None
    patience, answered, failures = Patience(), False, 0
    while True:
        try:
            look = watch.look(after, nobody_stops)
            if look is None or look.pod is not None or look.over:
                return None if look is None else look.pod
            patience.answered()
            answered, failures = True, 0
        except ClusterError as error:
            failures += 1
            # A cluster that never answered is the wrong one; one that did comes back.
            over = patience.failed(error, clock.monotonic()) or error.reason == DIFFERENT_CLUSTER
            if over if answered else not error.retryable or failures >= FIRST_TRIES:
                raise
            clock.wait(POLL_S if answered else 0.1, nobody_stops)
        after = clock.monotonic()


def _explained(log: ContainerLog, pod: Manifest, query: LogQuery) -> Iterator[Line]:
    """Read once; a container without a log says why."""
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
    """Leave out what was written before since, and stop after until."""
    with closing(lines):  # type: ignore[type-var]  # each of them is a generator
        for line in lines:
            if limits.until_ns is not None and line.at_ns > limits.until_ns:
                return
            if limits.since_ns is None or line.at_ns >= limits.since_ns:
                yield line


def _by_time(logs: Sequence[ContainerLog], pod: Manifest, query: LogQuery, limits: Limits) -> Iterator[Labelled]:
    """Merge what there is by the times that lines carry; containers without such a run are left out."""
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


def _as_they_come(logs: Sequence[ContainerLog], limits: Limits) -> Iterator[Labelled]:
    """Follow several containers at once, a thread for each."""
    come: queue.Queue[Labelled | Exception | None] = queue.Queue(AHEAD)

    def read(log: ContainerLog) -> None:
        try:
            for line in _within(limits, log.follow()):
                come.put((log.container, line))
        except Exception as error:  # noqa: BLE001 - raised again in the thread that reads
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
    """Let threads end that wait for room; one that waits for a first line ends at its next silence."""
    for _ in range(20):
        while not come.empty():
            come.get_nowait()
        for thread in threads:
            thread.join(0.01)
        if not any(thread.is_alive() for thread in threads):
            return
