"""A cluster whose one pod writes, breaks, restarts and is replaced as a test says, and a clock that never waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_pulumi.logs.query import LogQuery
from torchx_pulumi.logs.reading import read_source
from torchx_pulumi.logs.sources import PodSource
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model.errors import ClusterError

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
Written = tuple[int, str]
"""Nanoseconds after START, and the text."""


def stamp(ns: int) -> str:
    seconds, rest = divmod(ns, 10**9)
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:09d}Z"


def shown(written: Written) -> str:
    return f"{stamp(written[0])} {written[1]}\n"


class FakeClock(LogClock):
    """Time passes only where somebody waits; each wait may let something happen."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.on_wait: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self.passed += seconds
        if self.on_wait:
            self.on_wait.pop(0)()


SPEED = 8
"""How much faster time goes for a `FastClock`."""


class FastClock(LogClock):
    """A clock that runs faster than the machine's, for as many threads as there are."""

    def __init__(self, speed: float = SPEED) -> None:
        self._speed = speed

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def wait(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds / self._speed)


@dataclass
class Stream:
    """What one call of `logs` gives: so many characters, then an end or an error."""

    characters: int | None = None
    """None: all."""
    error: ClusterError | None = None


class ScriptedLog:
    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._next: str | ClusterError | None = None
        self.closed = False
        self._advance()

    @property
    def finished(self) -> bool:
        return self._next is None

    def _advance(self) -> None:
        try:
            self._next = next(self._pieces, None)
        except ClusterError as error:
            self._next = error

    def __iter__(self) -> ScriptedLog:
        return self

    def __next__(self) -> str:
        if self.closed or self._next is None:
            raise StopIteration
        if isinstance(self._next, ClusterError):
            raise self._next
        piece = self._next
        self._advance()
        return piece

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedCluster:
    """One pod, as API server and kubelet show it."""

    lines: list[Written] = field(default_factory=list)
    previous_lines: list[Written] = field(default_factory=list)
    no_newline: bool = False
    rest: str = ""
    """What is left of a long line where `since` lies within it: a text without a time."""
    parts: int | None = None
    """Streams give lines in parts of so many characters. None: whole."""
    pod: dict[str, Any] | None = None
    streams: list[Stream] = field(default_factory=list)
    """What the next calls give; those after them give all."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    opened: list[ScriptedLog] = field(default_factory=list)
    on_get: list[Callable[[], None]] = field(default_factory=list)
    on_logs: list[Callable[[], None]] = field(default_factory=list)
    """What happens before the next calls of `logs`."""
    others: list[str] = field(default_factory=list)

    def get(self, kind: Any, namespace: str | None, name: str) -> dict[str, Any] | None:
        if self.on_get:
            self.on_get.pop(0)()
        return self.pod if name == "p" else None

    def list(self, kind: Any, namespace: str | None, selector: Any = None) -> list[dict[str, Any]]:
        # Pods of other apps, which have no labels.
        return [] if selector else [{"metadata": {"name": name}} for name in self.others]

    def serves(self, kind: Any) -> bool:
        return True

    def logs(self, namespace: str, pod: str, container: str | None = None, **options: Any) -> ScriptedLog:
        if self.on_logs:
            self.on_logs.pop(0)()
        self.asked.append({"container": container, **options})
        script = self.streams.pop(0) if self.streams else Stream()
        if script.error is not None and script.characters is None:
            raise script.error
        rest = ""
        found = self.previous_lines if options.get("previous") else self.lines
        if options.get("since"):
            since_ns = int((options["since"] - START).total_seconds()) * 10**9
            rest = self.rest if found and found[0][0] < since_ns else ""
            found = [line for line in found if line[0] >= since_ns]
        if options.get("tail_lines") is not None:
            found = found[max(len(found) - options["tail_lines"], 0) :]
        text = rest + "".join(map(shown, found))
        if self.no_newline:
            text = text[:-1]
        self.opened.append(ScriptedLog(self._cut(text, script)))
        return self.opened[-1]

    def _cut(self, text: str, script: Stream) -> Iterator[str]:
        whole = script.characters is None or script.characters >= len(text)
        sent = text if whole else text[: script.characters]
        lines = sent.splitlines(keepends=True)
        if self.parts is not None:
            lines = [line[at : at + self.parts] for line in lines for at in range(0, len(line), self.parts)]
        if not whole and script.error is not None and lines and not lines[-1].endswith("\n"):
            # Of a stream that breaks, the begun line is not given.
            lines.pop()
        yield from lines
        if not whole and script.error is not None:
            raise script.error


BROKEN = ClusterError("broke off", retryable=True, reason="BrokenStream")


def pod(
    state: dict[str, Any] | None = None,
    *,
    uid: str = "u1",
    last: str | None = None,
    containers: tuple[str, ...] = ("main",),
    container_id: str = "c1",
    restart: str = "Never",
) -> dict[str, Any]:
    state = {"terminated": {"containerID": container_id}} if state is None else state
    status: dict[str, Any] = {"state": state, "containerID": container_id}
    if last:
        status["lastState"] = {"terminated": {"containerID": last}}
    return {
        "metadata": {"name": "p", "uid": uid},
        "spec": {"restartPolicy": restart, "containers": [{"name": name} for name in containers]},
        "status": {"containerStatuses": [{"name": name, **status} for name in containers]},
    }


RUNNING: dict[str, Any] = {"running": {}}


def read_lines(
    cluster: Any, query: LogQuery, *, ended: Callable[[], bool] = lambda: False, clock: LogClock | None = None
) -> Iterator[str]:
    """Return the lines of a pod's log, of an app about whose end `ended` is asked if the log is followed."""
    followed, clock = query.follow and not query.previous, clock or LogClock()
    return read_source(PodSource(cluster, query, ended if followed else lambda: True, clock), query, clock=clock)
