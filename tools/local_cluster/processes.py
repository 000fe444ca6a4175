"""Starts, remembers, checks and ends the processes of one cluster.

A process is known by pid, start time and boot, so that a reused pid is never taken for ours. Every process also
carries the cluster's folder in its environment: what a crash kept from being recorded is found by that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tools.local_cluster.layout import Layout, write_private

MARK: Final = "TORCHX_PULUMI_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster; its value is the state folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, known for sure."""

    name: str
    """Component that it runs."""
    pid: int
    """Process id; also the id of its session and group."""
    started: int
    """Start time in clock ticks since boot."""
    boot: str
    """Boot of the machine in which it was started."""

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot == _boot() and _start_time(self.pid) == self.started


def start(layout: Layout, name: str, command: Iterable[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a component in a session of its own, its output going to its log, and record it."""
    with (layout.logs / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, MARK: str(layout.root)},
            cwd=layout.run,
            start_new_session=True,
            umask=0o077,
        )
    started = _start_time(child.pid)
    if started is not None:
        record = Process(name=name, pid=child.pid, started=started, boot=_boot())
        write_private(layout.processes / f"{name}.json", json.dumps(asdict(record)) + "\n")
    return child


def recorded(layout: Layout) -> Iterator[Process]:
    """Yield the processes that were recorded, running or not."""
    for file in sorted(layout.processes.glob("*.json")):
        try:
            yield Process(**json.loads(file.read_text("utf-8")))
        except (ValueError, TypeError):
            continue  # cut off by a crash; such a process is found by its mark


def marked(layout: Layout) -> Iterator[Process]:
    """Yield every running process that carries the cluster's mark: those recorded, and what they started."""
    mark = f"{MARK}={layout.root}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            found = mark in Path(entry.path, "environ").read_bytes().split(b"\0")
            name = Path(entry.path, "comm").read_text().strip()
        except OSError:
            continue  # ended, or another user's
        pid = int(entry.name)
        if found and (started := _start_time(pid)) is not None:
            yield Process(name=name, pid=pid, started=started, boot=_boot())


def running(layout: Layout) -> list[Process]:
    """Return all processes of the cluster that run."""
    return list({p.pid: p for p in (*marked(layout), *recorded(layout)) if p.alive}.values())


def end(processes: Iterable[Process], *, patience_s: float) -> list[Process]:
    """End processes: ask, wait, then insist. Return those that run even so."""
    left = [p for p in processes if p.alive]
    for wanted, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        for process in left:
            _signal(process, wanted)
        deadline = time.monotonic() + wait_s
        while left and time.monotonic() < deadline:
            _reap(left)
            left = [p for p in left if p.alive]
            if left:
                time.sleep(0.02)
    return left


def log_tail(layout: Layout, name: str, lines: int = 12) -> str:
    """Return the last lines of a component's log."""
    try:
        with (layout.logs / f"{name}.log").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 16384))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(line[:400] for line in text.splitlines()[-lines:])


def _signal(process: Process, wanted: signal.Signals) -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if process.alive:  # the descriptor now pins the pid, so this cannot hit a stranger
            signal.pidfd_send_signal(descriptor, wanted)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _reap(processes: Iterable[Process]) -> None:
    """Collect those that are children of this very program; others are collected by init."""
    for process in processes:
        try:
            os.waitpid(process.pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _start_time(pid: int) -> int | None:
    """Return a process's start time. None: there is no such process, or it is only waiting to be collected."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
