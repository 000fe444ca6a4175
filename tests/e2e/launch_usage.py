"""What launches use: memory, file descriptors, threads and processes of this process, and the engines of a test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

SAMPLE_S = 0.1
SETTLED_S = 60.0
COLUMNS = {"launches": 9, "median": 8, "p95": 8, "max": 8, "engines": 9, "MB each": 9, "MB": 8, "fds": 6, "threads": 9}
HEAD = "".join([" " * 24, *(f"{name:>{width}}" for name, width in COLUMNS.items())])
"""Columns of the table: latency of launches, engines at once, memory of each, and what this process uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What this process uses at one moment."""

    memory_mb: float
    fds: int
    threads: int
    children: frozenset[int]
    """Processes that it started, and theirs; without those that were named, and theirs."""
    loops: int
    """Event loops that are not closed."""
    servers: int
    """gRPC servers that were not collected."""


def children() -> frozenset[int]:
    """Return the processes that this one started itself. Those of fixtures, such as a browser, may start others."""
    return frozenset(child.pid for child in psutil.Process().children())


def settled_usage(is_settled: Callable[[Usage], bool], besides: Collection[int]) -> Usage:
    """Return the usage of this process once passing things are gone; if they do not go, the usage in the end."""
    end = time.monotonic() + SETTLED_S
    while not is_settled(now := usage(besides)) and time.monotonic() < end:
        time.sleep(0.2)
    return now


def usage(besides: Collection[int] = ()) -> Usage:
    """Return the present usage of this process, besides some of its children and theirs."""
    gc.collect()
    process, found = psutil.Process(), gc.get_objects()
    return Usage(
        memory_mb=process.memory_info().rss / 1e6,
        fds=process.num_fds(),
        threads=process.num_threads(),
        children=frozenset(pid for child in process.children() if child.pid not in besides for pid in _tree(child)),
        loops=sum(isinstance(one, asyncio.AbstractEventLoop) and not one.is_closed() for one in found),
        servers=sum(isinstance(one, grpc.Server) for one in found),
    )


def _tree(process: psutil.Process) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [process.pid, *(child.pid for child in process.children(recursive=True))]
    return []


def engines_of(folder: Path) -> list[int]:
    """Return the engines that work below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            # A process that an engine is about to start has the words of the engine for a moment.
            leads = os.getsid(pid) == pid
            place = (process / "cwd").readlink()
        except OSError:
            continue
        if leads and b"--json" in words and place.is_relative_to(folder):
            found.append(pid)
    return found


class EngineWatch:
    """The most engines of a folder that ran at once, and the most memory that one used, with its provider."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done = threading.Event()
        self.most = 0
        self.memory_mb = 0.0

    @contextmanager
    def running(self) -> Iterator[EngineWatch]:
        """Watch while the block runs."""
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            found = engines_of(self._folder)
            self.most = max(self.most, len(found))
            for pid in found:
                self.memory_mb = max(self.memory_mb, _tree_mb(pid))


def _tree_mb(pid: int) -> float:
    """Return the memory of a process and of those that it started, without what they share with others."""
    total = 0.0
    try:
        engine = psutil.Process(pid)
        for process in (engine, *engine.children(recursive=True)):
            total += process.memory_full_info().uss / 1e6
    except psutil.Error:
        pass
    return total


class Latencies:
    """Durations of launches."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = sorted(values)

    def row(self, name: str, watch: EngineWatch, used: Usage) -> str:
        """Return a row of the table; its columns are those of `HEAD`."""
        values = self._values
        p95 = values[min(int(len(values) * 0.95), len(values) - 1)]
        return (
            f"{name:24}{len(values):9}{statistics.median(values):7.1f}s{p95:7.1f}s{values[-1]:7.1f}s{watch.most:9}"
            f"{watch.memory_mb:9.0f}{used.memory_mb:8.0f}{used.fds:6}{used.threads:9}"
        )


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Append the duration of a block that succeeds."""
    begun = time.monotonic()
    yield
    into.append(time.monotonic() - begun)
