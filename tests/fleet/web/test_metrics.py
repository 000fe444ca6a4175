from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.views.prometheus import to_prometheus
from torchx_pulumi_fleet.views.row import Fleet
from torchx_pulumi_fleet.web.metrics import ControllerMetrics
from torchx_pulumi_fleet.writer.controller import WatchState

from tests.fleet.tracker.states import ODD_NUMBERS, odd_output
from tests.fleet.web.measured import NOW, Told, scraped, value
from tests.fleet.writer.live_apps import BACKEND, tracked_app

EVIL = 'a"b\\c\nd{}\u202e'


def metrics_of(fleet: LiveFleet, told: Told | None = None, backends: tuple[str, ...] = (BACKEND,)) -> ControllerMetrics:
    return ControllerMetrics(fleet, told or Told(), backends=backends, now=lambda: NOW)


def fleet_of(*names: str) -> LiveFleet:
    fleet = LiveFleet()
    for name in names:
        fleet.put_stack(tracked_app(name))
    return fleet


def test_an_app_has_the_metrics_of_the_command_fleet_with_the_same_values() -> None:
    fleet = fleet_of("a", "b")
    rows = [app.row(NOW) for app in fleet.apps()]
    text = to_prometheus(Fleet(backend=BACKEND, read_at=NOW, rows=rows))
    ours = scraped(metrics_of(fleet))
    lines = [line for line in text.splitlines() if not line.startswith("#") and "broken" not in line]
    assert len(lines) == 40
    for line in lines:
        name, body, number = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
        labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', body or "")))
        assert ours[name][labels] == float(number), line


def test_replicas_and_gpus_are_counted_by_what_runs() -> None:
    metrics = metrics_of(fleet_of("a"))
    assert value(metrics, "torchx_app_replicas", state="RUNNING") == 1
    assert value(metrics, "torchx_app_replicas", state="PENDING") == 1
    assert value(metrics, "torchx_app_requested_gpus") == 2
    assert value(metrics, "torchx_app_gpus_in_use") == 1


def test_only_the_leader_has_apps_so_that_each_is_counted_once_over_all_replicas() -> None:
    told = Told(is_leading=False)
    fleet = LiveFleet()
    metrics = metrics_of(fleet, told)
    fleet.put_stack(tracked_app("a", observed={"started_at": "2026-01-02T12:30:00Z"}))
    standby = scraped(metrics)
    assert [name for name in standby if name.startswith(("torchx_app", "torchx_fleet"))] == []
    assert value(metrics, "torchx_controller_leader") == 0
    told.is_leading = True
    assert value(metrics, "torchx_controller_leader") == 1
    assert value(metrics, "torchx_fleet_apps", state="RUNNING") == 1
    assert value(metrics, "torchx_app_queue_wait_seconds_count") == 1


def test_an_app_whose_stack_is_gone_has_no_metrics() -> None:
    fleet = fleet_of("a", "b")
    metrics = metrics_of(fleet)
    assert value(metrics, "torchx_app_info", stack="a") == 1
    fleet.drop(tracked_app("a").key)
    assert value(metrics, "torchx_app_info", stack="a") is None
    assert value(metrics, "torchx_app_info", stack="b") == 1


def test_apps_of_several_backends_are_told_apart() -> None:
    fleet = fleet_of("a")
    fleet.put_stack(tracked_app("a", backend="file:///other"))
    metrics = metrics_of(fleet, backends=(BACKEND, "file:///other"))
    assert value(metrics, "torchx_app_info", backend="file:///other") == 1
    assert value(metrics, "torchx_app_info", stack="a") == 2
    assert value(metrics_of(fleet_of("a")), "torchx_app_info", backend=BACKEND) is None


def test_two_components_with_equal_labels_are_one_sample() -> None:
    fleet = fleet_of("a")
    fleet.put_stack(replace(tracked_app("a"), urn="urn:pulumi:a::torchx::component::other"))
    assert value(metrics_of(fleet), "torchx_app_info") == 1


def test_texts_of_users_are_escaped() -> None:
    fleet = LiveFleet()
    fleet.put_stack(tracked_app("a", app={"name": EVIL, "queue": EVIL}, observed={"reason": EVIL}))
    assert value(metrics_of(fleet), "torchx_app_state", queue=EVIL, reason=EVIL) == 1


@pytest.mark.parametrize(("text", "shown"), [("a\ud800", "a\\ud800"), ("a\0b", "a\\x00b")])
def test_what_prometheus_cannot_read_is_escaped_and_the_other_metrics_are_there(text: str, shown: str) -> None:
    fleet = LiveFleet()
    fleet.put_stack(tracked_app("a", app={"name": text, "queue": text}, observed={"reason": text}))
    assert value(metrics_of(fleet), "torchx_app_state", queue=shown, reason=shown) == 1


def test_a_watch_lags_by_its_slowest_namespace() -> None:
    watches = [
        WatchState(cluster="c", kind="pods", namespace="a", lag_s=7.0),
        WatchState(cluster="c", kind="pods", namespace="b", lag_s=0.0),
        WatchState(cluster="c", kind="jobs", namespace="a", lag_s=0.0),
        WatchState(cluster="away", kind="pods", namespace=None, lag_s=3.0),
        WatchState(cluster="away", kind="jobs", namespace=None, lag_s=4.0),
    ]
    metrics = metrics_of(fleet_of(), Told(states=watches))
    assert value(metrics, "torchx_controller_watch_lag_seconds", cluster="c", kind="pods") == 7
    assert value(metrics, "torchx_controller_watch_lag_seconds", cluster="c", kind="jobs") == 0
    # A cluster of which one watch works answers.
    assert value(metrics, "torchx_fleet_unreachable_clusters") == 1


def test_failed_writes_are_those_after_which_the_stack_is_behind() -> None:
    outcomes = {"written": 5, "known": 3, "deferred": 2, "left": 1, "error": 1}
    written = {(BACKEND, outcome): count for outcome, count in outcomes.items()}
    metrics = metrics_of(fleet_of(), Told(writes=written, begun=("a", "b")))
    assert value(metrics, "torchx_controller_stack_writes_total", outcome="written") == 5
    assert value(metrics, "torchx_controller_stack_writes_total") == 12
    assert value(metrics, "torchx_controller_failed_writes_total", backend=BACKEND) == 4
    assert value(metrics, "torchx_controller_problems") == 2
    assert value(metrics, "torchx_controller_pending_apps") == 2


def test_what_was_never_read_has_no_time() -> None:
    told = Told(read_at=None)
    metrics = metrics_of(fleet_of(), told)
    assert value(metrics, "torchx_fleet_read_timestamp_seconds") is None
    told.read_at = NOW
    assert value(metrics, "torchx_fleet_read_timestamp_seconds") == NOW.timestamp()


def test_the_process_and_its_version_are_there() -> None:
    metrics = metrics_of(fleet_of())
    assert value(metrics, "torchx_controller_build_info") == 1
    assert (value(metrics, "process_resident_memory_bytes") or 0) > 1e6


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: repr(number)[:12])
def test_an_odd_number_of_one_app_takes_no_metric_from_the_others(number: Any) -> None:
    fleet = fleet_of("a")
    fleet.put_stack(replace(tracked_app("odd"), output=odd_output("odd", number)))
    metrics = metrics_of(fleet)
    assert value(metrics, "torchx_app_info") == 2
    assert value(metrics, "torchx_app_requested_gpus", app_id="team:a") == 2
