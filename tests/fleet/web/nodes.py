"""A watched cluster whose node writes logs as a test says, and a clock that runs faster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from torchx_pulumi.apps.app import App
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.logs.waiting import LogClock
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.options import Manifest
from torchx_pulumi.model.timestamps import format_time
from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet
from torchx_pulumi_fleet.tracker.observing import ChangeListener, ClusterView
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks

from tests.fakes import FakeCluster
from tests.fleet.archive.pods import UID
from tests.fleet.writer.live_apps import BACKEND, changed, tracked_app
from tests.fleet.writer.world import wait_for

SPEED = 200

STAMP = "2026-01-01T00:00:{:02d}.000000000Z"


class FastClock(LogClock):
    """The clock of the machine, faster."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    def wait(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds / SPEED)


class Log:
    """The log of one run of a container, which a test writes."""

    def __init__(self, *texts: str, over: bool = False, error: ClusterError | None = None) -> None:
        self.changed = threading.Condition()
        self.lines = [f"{STAMP.format(index)} {text}\n" for index, text in enumerate(texts)]
        self.over = over
        self.error = error
        """Raised after the lines."""
        self.opened = 0
        """Streams that were opened and not closed."""
        self.streams = 0
        """Streams that were opened so far."""
        self.taken = 0
        """Lines that readers took."""
        self.silences = 0

    def write(self, text: str, *, over: bool = False) -> None:
        with self.changed:
            self.lines.append(f"{STAMP.format(len(self.lines))} {text}\n")
            self.over = self.over or over
            self.changed.notify_all()

    def silence(self) -> None:
        """Interrupt the streams, as a cluster's client does after a time without lines."""
        with self.changed:
            self.silences += 1
            self.changed.notify_all()


class Reader:
    """`LogLines` of a `Log`."""

    def __init__(self, log: Log, *, follow: bool, tail_lines: int | None, since: datetime | None) -> None:
        self._log = log
        self._follow = follow
        self._at = 0 if tail_lines is None else max(len(log.lines) - tail_lines, 0)
        begin = "" if since is None else format_time(since).rstrip("Z")
        while self._at < len(log.lines) and log.lines[self._at][: len(begin)] < begin:
            self._at += 1
        self._closed = False
        self.finished = False
        self._silences = log.silences
        log.opened += 1
        log.streams += 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        log = self._log
        with log.changed:
            log.changed.wait_for(self._has_news, 30)
            if self._closed:
                raise StopIteration
            if self._at < len(log.lines):
                self._at += 1
                log.taken += 1
                return log.lines[self._at - 1]
            if log.error is not None:
                raise log.error
            if self._silences != log.silences:
                raise ClusterError("no line for a while", retryable=True, reason="Silent")
            self.finished = True
            raise StopIteration

    def _has_news(self) -> bool:
        log = self._log
        over = bool(log.error) or log.over or not self._follow or self._silences != log.silences
        return over or self._closed or self._at < len(log.lines)

    def close(self) -> None:
        with self._log.changed:
            if not self._closed:
                self._closed = True
                self._log.opened -= 1
                self._log.changed.notify_all()


class Node(FakeCluster):
    """A cluster with the logs of its containers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.written: dict[tuple[str, bool], Log] = {}
        """Name of a pod, and whether it is the previous run of its container, to its log."""

    def logs(  # type: ignore[override]
        self, namespace: str, pod: str, container: str | None = None, *, previous: bool = False, **options: Any
    ) -> Reader:
        log = self.written.get((pod, previous))
        if log is None:
            raise ClusterError(f"there is no pod {pod!r} in namespace {namespace!r}", reason="NotFound")
        given = {name: options.get(name) for name in ("tail_lines", "since")}
        return Reader(log, follow=options.get("follow", False), **given)


def tracked(*, backend: str = BACKEND, **changes: Any) -> App:
    """Return the app whose pods and archive `tests.fleet.archive.pods` makes."""
    return changed(tracked_app("train", backend=backend, uid=UID), **{"namespace": "default", **changes})


def versions(objects: Iterable[Manifest]) -> set[tuple[str, str]]:
    return {(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in objects}


class Site:
    """One app that a controller tracks, and its watched cluster."""

    def __init__(self, **changes: Any) -> None:
        self.cluster = Node()
        self.fleet = LiveFleet()
        self.app = tracked(**changes)
        self.fleet.put_stack(self.app)
        nothing = TrackedStacks([], Reporter(lambda _line: None))
        self.view = ClusterView("test", self.cluster, nothing, ChangeListener(), namespaces=None)

    @property
    def live(self) -> LiveApp:
        (app,) = self.fleet.apps()
        return app

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.view.watched.start()
        try:
            wait_for(lambda: self.view.is_synced(self.app))
            yield
        finally:
            self.view.watched.stop()

    def put_job(self, uid: str = UID) -> None:
        """Create the job object."""
        kind = self.app.run.variant.job_object
        meta = {"name": "train", "namespace": "default", "uid": uid, "labels": {labels.LAUNCH: "l1"}}
        self.cluster.put({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {}})
        self.known()

    def remove_job(self) -> None:
        self.cluster.remove(self.app.run.variant.job_object, "default", "train")
        self.known()

    def put_pod(self, found: dict[str, Any], log: Log | None = None, *, previous: Log | None = None) -> Log:
        """Create or change a pod; its log is new unless it is given."""
        name = found["metadata"]["name"]
        log = log or Log()
        self.cluster.written[name, False] = log
        if previous is not None:
            self.cluster.written[name, True] = previous
        self.cluster.put(found)
        self.known()
        return log

    def remove_pod(self, found: dict[str, Any]) -> None:
        name = found["metadata"]["name"]
        del self.cluster.written[name, False]
        self.cluster.remove(POD, "default", name)
        self.known()

    def known(self) -> None:
        """Wait until the watches have what the cluster has."""
        watched = {watch.kind: watch.store for watch in self.view.watched.watches}
        for kind in (self.app.run.variant.job_object, POD):
            wait_for(lambda kind=kind: versions(watched[kind].list()) == versions(self.cluster.find_all(kind, None)))

    def see(self, state: str, reason: str) -> None:
        """Let the controller see the app in a state."""
        seen = {"state": state, "reason": reason, "uid": self.app.uid, "observed_at": "2026-01-03T00:00:00Z"}
        self.fleet.put_seen(self.app.key, self.app.uid, seen)
