"""`torchx-pulumi controller` as a process, and what it does to the files of a backend and an archive."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.e2e.torchx_cli import BIN

READY = re.compile(r"\d+ apps? in \d+ stacks?")
"""In the line that a controller writes when it has read clusters and stacks."""


class ControllerProcess:
    """One controller; may be killed and started again."""

    def __init__(self, env: Mapping[str, str], folder: Path, *words: str) -> None:
        self._env, self._folder, self._words = dict(env), folder, words
        self._said: list[str] = []
        self._ready_at: float | None = None
        self._killed_at: float | None = None
        self.downs: list[tuple[float, float]] = []
        """When it was killed, and when the next one had read clusters and stacks; by `time.time`."""
        self.cpu_s = 0.0
        """CPU seconds of the runs that have ended."""
        self.most_kb = 0
        """Most resident memory of all runs that was seen."""
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [BIN / "torchx-pulumi", "controller", *self._words], cwd=self._folder,
            # A process that does not end says what its threads do, see `stop`.
            env={**self._env, "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as said:
            for line in said:
                self._said.append(line)
                if READY.search(line):
                    self._note_ready()

    def _note_ready(self) -> None:
        self._ready_at = time.time()
        if self._killed_at is not None:
            self.downs.append((self._killed_at, self._ready_at))
            self._killed_at = None

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until it has read clusters and stacks for the first time since its start."""
        end = time.monotonic() + timeout_s
        while self._ready_at is None:
            assert time.monotonic() < end, self.said()
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and start it again at once."""
        assert self.process.poll() is None, f"it ended by itself: {self.process.returncode}\n{self.said()}"
        self._measure()
        # Killed again before it was ready: it was down all the time.
        killed_at = self._killed_at or time.time()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._said.append(f"{datetime.now(timezone.utc).isoformat()} killed by the test\n")
        self._killed_at, self._ready_at = killed_at, None
        self._start()

    def stop(self, timeout_s: float = 20) -> float:
        """Ask it to end; return how many seconds that took. Its exit code has to be 0."""
        self._measure()
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # Its answer is what each of its threads does.
            self.process.send_signal(signal.SIGABRT)
            code = self.process.wait()
        self._reader.join()
        assert code == 0, f"exit code {code}\n{self.said()}"
        return time.monotonic() - began

    def close(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()

    def said(self) -> str:
        """Return all that it has written."""
        return "".join(self._said)

    def lines(self, *words: str) -> list[str]:
        """Return the lines with all of some words."""
        return [line for line in self.said().splitlines() if all(word in line for word in words)]

    @property
    def memory_kb(self) -> int:
        """Resident memory now."""
        return self._status("VmRSS")

    def _measure(self) -> None:
        if self.process.poll() is None:
            self.most_kb = max(self.most_kb, self._status("VmHWM"))
            self.cpu_s += self.cpu_now_s()

    def cpu_now_s(self) -> float:
        """Return the CPU seconds of the run that goes on."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outputs of a stack after a change of its file."""

    at: float
    """When the file was written."""
    observed: Mapping[str, Any]
    """`torchx.observed`."""
    state: str
    reason: str
    component: Mapping[str, Any]
    """The component's own output `observed`."""


class StackWatch:
    """Every version of every stack in a folder, read from its files; uses no code of the product."""

    def __init__(self, backend: Path) -> None:
        self._stacks = backend / ".pulumi" / "stacks"
        self._known: dict[Path, int] = {}
        self._seen: dict[str, list[Written]] = {}
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def versions(self, app_id: str) -> Sequence[Written]:
        """Return the versions of an app's outputs, oldest first."""
        with self._guard:
            return tuple(self._seen.get(app_id, ()))

    def last(self, app_id: str) -> Written | None:
        """Return the outputs of an app. None: it has none yet."""
        found = self.versions(app_id)
        return found[-1] if found else None

    def close(self) -> None:
        """End the watch."""
        self._over.set()
        self._thread.join(timeout=10)

    def _follow(self) -> None:
        while not self._over.is_set():
            for path in self._stacks.glob("*/*.json"):
                try:
                    changed = path.stat().st_mtime_ns
                    if self._known.get(path) != changed:
                        self._read(path, changed / 1e9)
                        self._known[path] = changed
                except (FileNotFoundError, ValueError):
                    # Removed, or the engine writes it just now.
                    continue
            self._over.wait(0.05)

    def _read(self, path: Path, at: float) -> None:
        latest = json.loads(path.read_text())["checkpoint"].get("latest") or {}
        resources = latest.get("resources") or []
        outputs = [item.get("outputs") or {} for item in resources if item["type"] == "pulumi:pulumi:Stack"]
        runs = [item.get("outputs") or {} for item in resources if item["type"].startswith("torchx:index:")]
        if not outputs or "torchx" not in outputs[0] or not runs or "observed" not in runs[0]:
            return
        whole, torchx = outputs[0], outputs[0]["torchx"]
        written = Written(
            at=at,
            observed=torchx["observed"],
            state=whole["state"],
            reason=whole["reason"],
            component=runs[0]["observed"],
        )
        with self._guard:
            self._seen.setdefault(torchx["app"]["id"], []).append(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """One archived log."""

    record: Mapping[str, Any]
    """What is stored about it."""
    lines: Sequence[str]
    """Its lines, without their times."""


def stored_logs(archive: Path) -> list[StoredLog]:
    """Read the logs in the folder of an archive, with Python's own gzip and JSON."""
    found = []
    for path in sorted(archive.rglob("*.json")):
        if ".controllers" in path.parts:
            # Marks of the controllers that write it.
            continue
        try:
            record = json.loads(path.read_text())
            text = gzip.decompress(path.with_name(path.name.removesuffix(".json") + ".log.gz").read_bytes()).decode()
        except FileNotFoundError:
            # A complete copy has replaced an incomplete one just now: it has another name, and its record goes first.
            if path.exists():
                raise
            continue
        lines = [line.partition(" ")[2] for line in text.splitlines()]
        found.append(StoredLog(record=record, lines=lines))
    return found
