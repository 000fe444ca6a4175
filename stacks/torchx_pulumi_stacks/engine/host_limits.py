"""Cores and memory that this process may use: those of the machine, less if its affinity or a control group says so."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

MB = 1_000_000

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def usable_cores() -> float:
    """Return the cores of this process: its affinity, and the quota of its control groups."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(cores, *_limits("cpu", _quota), math.inf)


def usable_memory_mb() -> float:
    """Return the memory of this process in MB: that of the machine, and the limit of its control groups."""
    total = math.inf
    with contextlib.suppress(ValueError, OSError):  # names that the system does not know
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MB
    return min(total, *_limits("memory", _memory), math.inf)


def _limits(controller: str, read: Callable[[Path], float]) -> Iterator[float]:
    """Return the limits of the control groups of this process and of the groups above them, of either version."""
    try:
        lines = [line.split(":", 2) for line in _GROUPS.read_text().splitlines()]
    except (OSError, ValueError):
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and controller not in controllers.split(","):
            continue
        # In a container, the path may be the one on the host; the mount's own folder then has the limits.
        top = _MOUNT / controller if controllers else _MOUNT
        here = top / path.strip("/")
        for folder in (here, *here.parents):
            if folder.is_relative_to(top):
                with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
                    yield read(folder)


def _quota(folder: Path) -> float:
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period) if int(quota) > 0 else math.inf


def _memory(folder: Path) -> float:
    name = "memory.max" if (folder / "memory.max").exists() else "memory.limit_in_bytes"
    return int((folder / name).read_text()) / MB
