"""ControllerParts: what the parts of a controller share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone

from torchx_pulumi.apps.app import App, AppKey
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.runs.driver import Driver

from torchx_pulumi_fleet.archive.archiving import LogArchiver
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet, live_id
from torchx_pulumi_fleet.tracker.observing import ClusterView
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.tracker.work_queue import WorkQueue
from torchx_pulumi_fleet.writer.settings import ControllerSettings, ControllerTiming


@dataclass(slots=True)
class AppWork:
    """What this process did with an app; times are monotonic."""

    looked_at: float = 0.0
    """When it was last looked at."""
    took_s: float = 0.0
    """CPU time of the thread for that."""
    written_at: float | None = None
    """When its stack was last written. None: not by this process."""
    failing_since: float | None = None
    """Since when its stack cannot be written. None: it can."""
    passed: tuple[str | None, str | None] | None = None
    """Uid and archive of the app when its pods were passed to the archiver. None: they were not."""


@dataclass(slots=True, kw_only=True)
class ControllerParts:
    """What a controller is made of, and what its parts share. Each part is for use by several threads."""

    settings: ControllerSettings
    """What to watch and write."""
    driver: Driver
    """Writes stacks."""
    reporter: Reporter
    """Takes lines."""
    archiver: LogArchiver | None = None
    """Copies logs. None: this process does not copy logs."""
    fleet: LiveFleet | None = None
    """Takes all apps as they are seen, for pages and metrics. None: this process has neither."""
    leading: Callable[[], bool] = lambda: True
    """Returns whether this process writes stacks and archives logs. `Controller.lead_changed` follows a change."""
    timing: ControllerTiming = field(default_factory=ControllerTiming)
    clock: Callable[[], float] = time.monotonic
    """Monotonic time in seconds."""
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)
    """The time of observations, aware."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when the controller ends."""
    tracked: TrackedStacks = field(init=False)
    """The apps in the stacks."""
    queues: Mapping[str, WorkQueue[AppKey]] = field(init=False)
    """Backend to its apps that have to be looked at. One that does not answer occupies no worker of another one."""
    views: Sequence[ClusterView] = ()
    """The watched clusters."""
    work: dict[AppKey, AppWork] = field(default_factory=dict)
    """What was done with each app (`work_of`)."""

    def __post_init__(self) -> None:
        """Begin without apps."""
        backends, timing = self.settings.backends, self.timing
        self.tracked = TrackedStacks(backends, self.reporter, fleet=self.fleet, now=self.now)
        self.queues = {
            one: WorkQueue(retry_s=timing.retry_s, longest_retry_s=timing.longest_retry_s) for one in backends
        }

    def queue_of(self, key: AppKey) -> WorkQueue[AppKey]:
        """Return the queue of an app."""
        return self.queues[key[0]]

    def work_of(self, key: AppKey) -> AppWork:
        """Return the outcome for an app."""
        return self.work.setdefault(key, AppWork())

    def drop(self, key: AppKey) -> None:
        """Forget an app whose stack or component is gone."""
        self.work.pop(key, None)
        self.queue_of(key).succeeded(key)
        for words in ("unwritable", "restored", "write", "error"):
            self.reporter.forget(f"{words} {key}")

    def view_of(self, app: App) -> ClusterView | None:
        """Return the watched cluster of an app's run: with its job object, else where it was seen or launched."""
        for view in self.views:
            if view.job_object(app) is not None:
                return view
        seen = None if self.fleet is None else self.fleet.find(live_id(app.key))
        for view in self.views:
            if seen is not None and seen.app.uid == app.uid and seen.cluster == view.name:
                return view
        for view in self.views:
            # One that does not answer may be it, and is asked again.
            with suppress(ClusterError):
                if view.is_cluster_of(app):
                    return view
        return None
