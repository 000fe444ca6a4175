"""A function in a process of its own: its time, its memory, the bytes of its connections, the files that it opens."""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

READ_ALWAYS: Final = (".dockerignore", "Dockerfile.torchx")
"""Files that are not counted when they are opened: they say what the others mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call took."""

    time_s: float
    memory_mb: float
    """The most memory that the process had."""
    traffic: int
    """Bytes that were sent and received by sockets of the process."""
    opened: int
    """Times that files below the watched folder were opened."""
    result: Any
    """What the function returned."""


def measure(work: Callable[..., Any], *words: str, watched: Path | None = None) -> Usage:
    """Call a function in a process of its own.

    Args:
        work: A function of a module, whose result can be pickled.
        words: Its arguments.
        watched: Folder whose files are counted when they are opened. None: no files are counted.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, words, None if watched is None else os.path.realpath(watched)))


class _CountingSocket(socket.socket):
    """Counts the bytes of all sockets of the process."""

    traffic = 0

    def send(self, data: Any, *rest: Any) -> int:
        sent = super().send(data, *rest)
        _CountingSocket.traffic += sent
        return sent

    def sendall(self, data: Any, *rest: Any) -> None:
        super().sendall(data, *rest)
        _CountingSocket.traffic += memoryview(data).nbytes

    def recv(self, *rest: Any) -> bytes:
        data = super().recv(*rest)
        _CountingSocket.traffic += len(data)
        return data

    def recv_into(self, *rest: Any) -> int:
        received = super().recv_into(*rest)
        _CountingSocket.traffic += received
        return received


def _measured(work: Callable[..., Any], words: tuple[str, ...], watched: str | None) -> Usage:
    socket.socket = _CountingSocket  # type: ignore[misc]
    opened = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal opened
        # Without a mode it is os.open(), which is the opener of the open() that raised the event before.
        if event == "open" and arguments[1] is None and str(arguments[0]).startswith(f"{watched}/"):
            opened += Path(arguments[0]).name not in READ_ALWAYS

    if watched is not None:
        sys.addaudithook(count)
    start = time.perf_counter()
    result = work(*words)
    taken_s = time.perf_counter() - start
    return Usage(
        time_s=taken_s,
        memory_mb=_peak_mb(),
        traffic=_CountingSocket.traffic,
        opened=opened,
        result=result,
    )


def _peak_mb() -> float:
    """Return the most memory of this process. What getrusage says includes the process that started this one."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
