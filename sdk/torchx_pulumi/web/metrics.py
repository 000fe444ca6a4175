"""ControllerMetrics: what `/metrics` answers, by prometheus-client. All of it is read when it is asked for."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from torchx_pulumi.controller.figures import ControllerFigures, WatchState
from torchx_pulumi.controller.live_fleet import LiveFleet
from torchx_pulumi.fleet.collect import FleetRow
from torchx_pulumi.fleet.render.prometheus import Labels, encodable, fleet_gauges, identity
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.web.run_times import RunTimes

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

FAILED: Final = (Recorded.DEFERRED.value, Recorded.LEFT.value, "error")
"""Outcomes of a write after which the stack has not what was seen."""


class MeasuredController(Protocol):
    """What is read of a controller, from any thread. The implementation is `Controller`."""

    @property
    def is_leading(self) -> bool:
        """Return whether it writes stacks."""

    def problems(self) -> Sequence[str]:
        """Return the texts of the problems that have begun and not ended."""

    def watches(self) -> Sequence[WatchState]:
        """Return the state of each watch."""

    def figures(self) -> ControllerFigures:
        """Return its numbers."""


class ControllerMetrics:
    """The metrics of one controller process."""

    def __init__(
        self,
        fleet: LiveFleet,
        controller: MeasuredController,
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

    def __init__(self, controller: MeasuredController) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        controller, figures = self._controller, self._controller.figures()
        yield _family("torchx_controller_build_info", "1, with the version.", [({"version": _version()}, 1)])
        leader = float(controller.is_leading)
        yield _family("torchx_controller_leader", "1 if this process writes the stacks.", [({}, leader)])
        problems = len(controller.problems())
        yield _family("torchx_controller_problems", "Problems that have not ended.", [({}, problems)])
        text = "Apps that wait to be looked at or written."
        yield _family("torchx_controller_pending_apps", text, [({}, figures.pending)])
        lags: dict[tuple[str, str], float] = {}
        for watch in controller.watches():
            key = (watch.cluster, watch.kind)
            lags[key] = max(lags.get(key, 0.0), watch.lag_s)
        text = "Time since the watch of a kind was last current; 0 while it is connected."
        samples = [({"cluster": cluster, "kind": kind}, lag_s) for (cluster, kind), lag_s in lags.items()]
        yield _family("torchx_controller_watch_lag_seconds", text, samples)
        writes = CounterMetricFamily("torchx_controller_stack_writes", "Writes of stacks by outcome.")
        failed = CounterMetricFamily(
            "torchx_controller_failed_writes", "Writes of stacks that failed, also for a time."
        )
        failures: dict[str, int] = {}
        for (backend, outcome), count in sorted(figures.writes.items()):
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
        controller: MeasuredController,
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
        figures = self._controller.figures()
        lags: dict[str, float] = {}
        for watch in self._controller.watches():
            lags[watch.cluster] = min(lags.get(watch.cluster, watch.lag_s), watch.lag_s)
        unreachable = sum(lag_s > 0 for lag_s in lags.values())
        apps = self._apps(self._now())
        for gauge in fleet_gauges(apps, broken=figures.broken, unreachable=unreachable, read_at=figures.read_at):
            yield _family(gauge.name, gauge.help, gauge.samples)
        yield from self._times.collect()

    def _apps(self, now: datetime) -> list[tuple[Labels, FleetRow]]:
        # Two components of one stack may have one app id, in two clusters; of equal labels, Prometheus takes one.
        found: dict[tuple[str, ...], tuple[Labels, FleetRow]] = {}
        for app in self._fleet.apps():
            row = app.row(now)
            labels = identity(row)
            if self._several:
                labels["backend"] = app.app.backend
            found[tuple(labels.values())] = labels, row
        return [*found.values()]


def _version() -> str:
    try:
        return importlib.metadata.version("torchx-pulumi")
    except importlib.metadata.PackageNotFoundError:
        # A checkout on PYTHONPATH.
        return ""


def _family(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    family = GaugeMetricFamily(name, text)
    for labels, value in samples:
        family.add_sample(name, {label: encodable(text) for label, text in labels.items()}, value)
    return family
