"""A cluster whose one pod writes, breaks off, restarts and is replaced as a test says; waits take no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchx_pulumi.logs.query import PodRun, runs_of_pod
from torchx_pulumi.logs.waiting import LogStop
from torchx_pulumi_fleet.archive import Archive, open_archive
from torchx_pulumi_fleet.archive.archive import newest_copies

from tests.fleet.archive.pods import FOLDER
from tests.unit.logs.scripted import ScriptedCluster


class NoWait(LogStop):
    """Lets something happen where a copy waits, and waits not at all."""

    def __init__(self, *on_wait: Callable[[], None]) -> None:
        super().__init__()
        self.on_wait = [*on_wait]
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        if self.on_wait:
            self.on_wait.pop(0)()
        return self.is_set()


def until_first_wait() -> NoWait:
    """Stop the copy of a running container's log where it would wait for more of it."""
    stop = NoWait()
    stop.on_wait.append(stop.set)
    return stop


@dataclass
class PodCluster(ScriptedCluster):
    """A scripted cluster whose pod has any name."""

    pods: list[dict[str, Any] | None] = field(default_factory=list)
    """What the next reads of the pod return; after them the last one stays."""

    def get(self, kind: Any, namespace: str | None, name: str) -> dict[str, Any] | None:
        if self.pods:
            self.pod = self.pods.pop(0)
        return self.pod


def archive_in(folder: Path) -> Archive:
    return open_archive(str(folder / "logs"))


def only_run(pod: dict[str, Any]) -> PodRun:
    """Return the current run of a pod with one container."""
    return runs_of_pod(pod)[-1]


def archived_text(archive: Archive) -> str:
    """Return the only log of an archive."""
    (key,) = newest_copies(archive.index(FOLDER))
    return "".join(archive.lines(key))
