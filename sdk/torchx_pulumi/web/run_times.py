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

WAIT_BUCKETS_S: Final = (
    *(1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0),
    *(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 72)),
)

RUN_BUCKETS_S: Final = (
    *(10.0, 60.0, 300.0, 900.0, 1800.0),
    *(hours * HOUR_S for hours in (1, 2, 4, 8, 12, 24, 48, 72, 168)),
)


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
        for histogram in (self._waits, self._runtimes):
            for metric in histogram.collect():
                # When a series was made says nothing of the runs.
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric

    def _take(self) -> None:
        with self._guard:
            change = self._fleet.changes(self._version)
            self._version = change.version
            if change.whole:
                there = {app.id for app in change.changed}
                self._runs = {name: run for name, run in self._runs.items() if name in there}
            for name in change.gone:
                self._runs.pop(name, None)
            for app in change.changed:
                self._count(app)

    def _count(self, app: LiveApp) -> None:
        uid, row = app.app.uid, app.row(self._now())
        # A series that begins at 0 is scraped before its first run: `increase` of one that begins at 1 misses that run.
        waits = self._waits.labels(row.scheduler, encodable(row.queue or ""))
        ended = {state: self._runtimes.labels(row.scheduler, state.value) for state in JobState if state.terminal}
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
