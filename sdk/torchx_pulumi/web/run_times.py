"""RunTimes: how long runs waited and ran, as histograms; each run is counted once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import Histogram
from prometheus_client.metrics_core import Metric

from torchx_pulumi.controller.live_fleet import LiveApp, LiveFleet
from torchx_pulumi.fleet.render.prometheus import encodable
from torchx_pulumi.model.status import JobState

HOUR_S: Final = 3600.0

Place = tuple[str, str]
"""Scheduler and queue, as the labels have them."""

WAIT_BUCKETS_S: Final = (
    *(1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0),
    *(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 72)),
)

RUN_BUCKETS_S: Final = (
    *(10.0, 60.0, 300.0, 900.0, 1800.0),
    *(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 48, 72, 168)),
)

ENDS: Final = tuple(state for state in JobState if state.terminal)

SERIES_KEPT_S: Final = 600.0
"""Time for which the series of a queue or scheduler stay after its last app, so that its last runs are scraped."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """The last run of an app, and what of it was counted."""

    uid: str
    attempt: int
    is_started: bool = False
    is_ended: bool = False


class RunTimes:
    """Counts starts and ends that happen after it was made, so that a restart of the process counts none twice."""

    def __init__(self, fleet: LiveFleet, now: Callable[[], datetime]) -> None:
        """Begin to count the runs of a fleet.

        Args:
            fleet: The apps.
            now: The present, aware.
        """
        self._fleet = fleet
        self._now = now
        self._begun = now()
        self._guard = threading.Lock()
        self._version: int | None = None
        self._runs: dict[str, _Run] = {}
        self._places: dict[str, Place] = {}
        """App to its scheduler and queue."""
        self._used: dict[Place, datetime] = {}
        """Scheduler and queue with a series to when they were last known to have an app."""
        self._waits = Histogram(
            "torchx_app_queue_wait_seconds",
            "Time from the launch to the first start of a container.",
            ("scheduler", "queue"),
            registry=None,
            buckets=WAIT_BUCKETS_S,
        )
        self._runtimes = Histogram(
            "torchx_app_run_time_seconds",
            "Time from the start of the last attempt to its end, by final state.",
            ("scheduler", "state"),
            registry=None,
            buckets=RUN_BUCKETS_S,
        )
        fleet.subscribe(self._take)
        self._take()

    def collect(self) -> Iterator[Metric]:
        """Yield the histograms."""
        with self._guard:
            self._drop_unused()
        for histogram in (self._waits, self._runtimes):
            for metric in histogram.collect():
                # When a series was made says nothing of the runs.
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric

    def _take(self) -> None:
        with self._guard:
            change = self._fleet.changes(self._version)
            self._version = change.version
            known = self._places.keys()
            gone = known - {app.id for app in change.changed} if change.whole else known & {*change.gone}
            for name in gone:
                self._runs.pop(name, None)
                self._used[self._places.pop(name)] = self._now()
            for app in change.changed:
                self._count(app)

    def _count(self, app: LiveApp) -> None:
        now = self._now()
        uid, row = app.app.uid, app.row(now)
        place = self._places[app.id] = encodable(row.scheduler), encodable(row.queue or "")
        self._used[place] = now
        # A series that begins at 0 is scraped before its first run: `increase` of one that begins at 1 misses that run.
        waits = self._waits.labels(*place)
        ended = {state: self._runtimes.labels(place[0], state.value) for state in ENDS}
        if uid is None:
            # Its launch has not written it yet; that will be a change.
            return
        run = self._runs.get(app.id)
        if run is None or run.uid != uid or row.attempt > run.attempt:
            run = self._runs[app.id] = _Run(uid=uid, attempt=row.attempt)
        if row.attempt != run.attempt or row.started_at is None:
            return
        if not run.is_started:
            run.is_started = True
            # When a further attempt was queued is not known.
            if row.attempt == 1 and row.queued_at is not None and row.started_at >= self._begun:
                waited_s = (row.started_at - row.queued_at).total_seconds()
                waits.observe(max(waited_s, 0.0))
        if not run.is_ended and row.state.terminal and row.finished_at is not None:
            run.is_ended = True
            if row.finished_at >= self._begun:
                ran_s = (row.finished_at - row.started_at).total_seconds()
                ended[row.state].observe(max(ran_s, 0.0))

    def _drop_unused(self) -> None:
        """Remove the series of queues and schedulers that have had no app for a while."""
        now = self._now()
        self._used |= dict.fromkeys(self._places.values(), now)
        for place in [place for place, at in self._used.items() if (now - at).total_seconds() > SERIES_KEPT_S]:
            del self._used[place]
            self._waits.remove(*place)
            if not any(scheduler == place[0] for scheduler, _ in self._used):
                for state in ENDS:
                    self._runtimes.remove(place[0], state.value)
