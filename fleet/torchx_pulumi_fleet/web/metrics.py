"""ControllerMetrics: what `/metrics` answers, by prometheus-client. All of it is read when it is asked for.

RunTimes has how long runs waited and ran, as histograms.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from torchx_pulumi.model.status import JobState
from torchx_pulumi.runs.driver import Recorded

from torchx_pulumi_fleet.tracker.live_fleet import LiveApp, LiveFleet
from torchx_pulumi_fleet.views.prometheus import Labels, encodable, fleet_gauges, gauge, identity
from torchx_pulumi_fleet.views.row import FleetRow
from torchx_pulumi_fleet.writer import Controller

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

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

FAILED: Final = (Recorded.DEFERRED.value, Recorded.LEFT.value, "error")
"""Outcomes of a write after which the stack has not what was seen."""


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


class ControllerMetrics:
    """The metrics of one controller process."""

    def __init__(
        self,
        fleet: LiveFleet,
        controller: Controller,
        *,
        backends: Sequence[str],
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """Begin to count runs.

        Args:
            fleet: The apps.
            controller: The controller that keeps them up to date.
            backends: URLs of its backends, without credentials. With more than one, apps have the label `backend`.
            now: The present, aware.
        """
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(_ControllerCollector(controller))
        self._registry.register(_FleetCollector(fleet, controller, RunTimes(fleet, now), backends, now))

    def render(self) -> tuple[bytes, str]:
        """Return the metrics as Prometheus text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE


class _ControllerCollector(Collector):
    """Metrics of the process itself, which every replica has."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        controller = self._controller
        yield gauge("torchx_controller_build_info", "1, with the version.", [({"version": _version()}, 1)])
        leader = float(controller.is_leading)
        yield gauge("torchx_controller_leader", "1 if this process writes the stacks.", [({}, leader)])
        problems = len(controller.problems())
        yield gauge("torchx_controller_problems", "Problems that have not ended.", [({}, problems)])
        text = "Apps that wait to be looked at or written."
        yield gauge("torchx_controller_pending_apps", text, [({}, len(controller.pending))])
        lags: dict[tuple[str, str], float] = {}
        for watch in controller.watches():
            key = (watch.cluster, watch.kind)
            lags[key] = max(lags.get(key, 0.0), watch.lag_s)
        text = "Time since the watch of a kind was last current; 0 while it is connected."
        samples = [({"cluster": cluster, "kind": kind}, lag_s) for (cluster, kind), lag_s in lags.items()]
        yield gauge("torchx_controller_watch_lag_seconds", text, samples)
        writes = CounterMetricFamily("torchx_controller_stack_writes", "Writes of stacks by outcome.")
        failed = CounterMetricFamily(
            "torchx_controller_failed_writes", "Writes of stacks that failed, also for a time."
        )
        failures: dict[str, int] = {}
        for (backend, outcome), count in sorted(controller.writes.items()):
            writes.add_sample(
                "torchx_controller_stack_writes_total", {"backend": encodable(backend), "outcome": outcome}, count
            )
            failures[backend] = failures.get(backend, 0) + (count if outcome in FAILED else 0)
        for backend, count in failures.items():
            failed.add_sample("torchx_controller_failed_writes_total", {"backend": encodable(backend)}, count)
        yield writes
        yield failed


class _FleetCollector(Collector):
    """Metrics of the apps. Only the leader has them, so that each app is counted once over all replicas."""

    def __init__(
        self,
        fleet: LiveFleet,
        controller: Controller,
        times: RunTimes,
        backends: Sequence[str],
        now: Callable[[], datetime],
    ) -> None:
        self._fleet = fleet
        self._controller = controller
        self._times = times
        self._several = len(backends) > 1
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        if not self._controller.is_leading:
            return
        controller = self._controller
        lags: dict[str, float] = {}
        for watch in controller.watches():
            lags[watch.cluster] = min(lags.get(watch.cluster, watch.lag_s), watch.lag_s)
        unreachable = sum(lag_s > 0 for lag_s in lags.values())
        apps = self._apps(self._now())
        yield from fleet_gauges(apps, broken=controller.broken, unreachable=unreachable, read_at=controller.read_at)
        yield from self._times.collect()

    def _apps(self, now: datetime) -> list[tuple[Labels, FleetRow]]:
        # Two components of one stack may have one app id, in two clusters; of equal labels, Prometheus takes one.
        found: dict[tuple[str, ...], tuple[Labels, FleetRow]] = {}
        for app in self._fleet.apps():
            row = app.row(now)
            labels = identity(row)
            if self._several:
                labels["backend"] = app.app.place.backend
            found[tuple(labels.values())] = labels, row
        return [*found.values()]


def _version() -> str:
    try:
        return importlib.metadata.version("torchx-pulumi")
    except importlib.metadata.PackageNotFoundError:
        # A checkout on PYTHONPATH.
        return ""
