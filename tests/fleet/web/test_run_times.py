"""The clock of these tests stands at NOW: a run that started or ended later is one that the process saw."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from torchx_pulumi.schedulers.manifest_objects import objects_of
from torchx_pulumi_fleet.tracker.live_fleet import LiveFleet
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.web.metrics import SERIES_KEPT_S, ControllerMetrics

from tests.fleet.web.measured import NOW, Told, scraped, value
from tests.fleet.writer.live_apps import BACKEND, tracked_app
from tests.fleet.writer.world import World, checkpoint

WAIT, RUN = "torchx_app_queue_wait_seconds", "torchx_app_run_time_seconds"

WAITS = {"state": "PENDING", "queued_at": "2026-01-02T12:01:00Z", "started_at": None}
RUNS = {**WAITS, "state": "RUNNING", "started_at": "2026-01-02T12:03:00Z"}
ENDED = {**RUNS, "state": "FAILED", "finished_at": "2026-01-02T12:13:00Z"}


@pytest.fixture
def fleet() -> LiveFleet:
    return LiveFleet()


def metrics_of(fleet: LiveFleet) -> ControllerMetrics:
    return ControllerMetrics(fleet, Told(), backends=(BACKEND,), now=lambda: NOW)


def test_a_run_is_counted_once_when_it_starts_and_once_when_it_ends(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    for observed in (WAITS, WAITS, RUNS, {**RUNS, "reason": "Other"}, ENDED, {**ENDED, "reason": "Other"}):
        fleet.put_stack(tracked_app("a", observed=observed))
    assert value(metrics, f"{WAIT}_count", scheduler="volcano", queue="default") == 1
    assert value(metrics, f"{WAIT}_sum") == 120
    assert value(metrics, f"{RUN}_count", scheduler="volcano", state="FAILED") == 1
    assert value(metrics, f"{RUN}_sum") == 600
    assert value(metrics, f"{RUN}_bucket", le="300.0") == 0
    assert value(metrics, f"{RUN}_bucket", le="900.0") == 1


def test_a_series_is_there_before_its_first_run(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", observed=WAITS))
    assert value(metrics, f"{WAIT}_count", queue="default") == 0
    for state in ("SUCCEEDED", "FAILED", "CANCELLED"):
        assert value(metrics, f"{RUN}_count", state=state) == 0
    assert value(metrics, f"{RUN}_count", state="RUNNING") is None


def test_it_is_counted_also_where_nothing_asks_for_metrics_in_between(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", observed=ENDED))
    fleet.drop(tracked_app("a").key)
    assert value(metrics, f"{WAIT}_count") == 1
    assert value(metrics, f"{RUN}_count") == 1


def test_what_happened_before_the_process_began_is_not_counted_again(fleet: LiveFleet) -> None:
    fleet.put_stack(tracked_app("a"))
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("b", observed={"state": "SUCCEEDED", "finished_at": "2026-01-02T11:59:00Z"}))
    assert value(metrics, f"{WAIT}_count") == 0
    assert value(metrics, f"{RUN}_count") == 0
    # The start of this run was before, its end is not.
    fleet.put_stack(tracked_app("a", observed={"state": "SUCCEEDED", "finished_at": "2026-01-02T12:01:00Z"}))
    assert value(metrics, f"{WAIT}_count") == 0
    assert value(metrics, f"{RUN}_sum", state="SUCCEEDED") == 3600


def test_a_run_that_the_cluster_shows_before_its_stack_does_counts(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    app = tracked_app("a", observed={**WAITS, "observed_at": "2026-01-02T12:01:00Z"})
    fleet.put_stack(app)
    fleet.put_seen(app.key, "u1", {**RUNS, "observed_at": "2026-01-02T12:03:00Z"})
    fleet.put_stack(tracked_app("a", observed={**RUNS, "observed_at": "2026-01-02T12:03:00Z"}))
    assert value(metrics, f"{WAIT}_count") == 1


def test_another_run_of_the_app_counts_too(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", observed=ENDED))
    fleet.put_stack(tracked_app("a", uid="u2", observed={**ENDED, "queued_at": "2026-01-02T12:02:00Z"}))
    assert value(metrics, f"{WAIT}_count") == 2
    assert value(metrics, f"{RUN}_count") == 2


def test_a_wait_counts_for_its_queue_also_if_its_stack_is_read_while_the_launch_writes_it(
    fleet: LiveFleet, tmp_path: Path
) -> None:
    """The notes of a launch are written in any order, and the run may have started by then."""
    world = World(root=tmp_path)
    app = world.create(world.plan("train-1"))
    whole = checkpoint(app, program=True)
    (_, job), *_ = objects_of({"apiVersion": "v1", "kind": "List", "items": list(app.plan.objects)})
    resources = whole["checkpoint"]["latest"]["resources"]
    resources[0]["outputs"] = {}
    resources.append({"urn": "job", "type": "kubernetes:batch.volcano.sh/v1alpha1:Job", "inputs": job})
    app.path.parent.mkdir(parents=True)
    app.path.write_text(json.dumps(whole))
    tracked = TrackedStacks([world.backend], Reporter(world.lines.append), fleet=fleet)
    tracked.refresh(world.backend)
    metrics = metrics_of(fleet)
    (known,) = tracked.apps()
    fleet.put_seen(known.key, known.uid, RUNS)
    world.write(app)
    tracked.refresh(world.backend)
    assert value(metrics, f"{WAIT}_count", queue="default") == 1


def test_a_further_attempt_counts_as_a_run_and_not_as_a_wait(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    for observed, number in ((ENDED, 1), (RUNS, 2), (ENDED, 1)):
        fleet.put_stack(tracked_app("a", observed={**observed, "attempt": number}))
    assert value(metrics, f"{RUN}_count") == 1
    fleet.put_stack(tracked_app("a", observed={**ENDED, "attempt": 2}))
    assert value(metrics, f"{WAIT}_count") == 1
    assert value(metrics, f"{RUN}_count") == 2


def test_a_run_whose_launch_goes_on_counts_when_its_uid_is_known(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", uid=None, observed=RUNS))
    assert value(metrics, f"{WAIT}_count") == 0
    fleet.put_stack(tracked_app("a", observed={**RUNS, "reason": "Other"}))
    assert value(metrics, f"{WAIT}_count") == 1


def test_clocks_that_differ_make_no_negative_time(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", observed={**RUNS, "queued_at": "2026-01-02T12:04:00Z"}))
    assert value(metrics, f"{WAIT}_sum") == 0


def test_no_sample_tells_when_a_series_was_made(fleet: LiveFleet) -> None:
    metrics = metrics_of(fleet)
    fleet.put_stack(tracked_app("a", observed=ENDED))
    assert [name for name in scraped(metrics) if name.endswith("_created")] == []


def test_the_series_of_a_queue_go_some_time_after_its_last_app(fleet: LiveFleet) -> None:
    seconds = [0.0]
    metrics = ControllerMetrics(fleet, Told(), backends=(BACKEND,), now=lambda: NOW + timedelta(seconds=seconds[0]))
    for name, queue in (("a", "small"), ("b", "small"), ("c", "big"), ("d", "moved")):
        fleet.put_stack(tracked_app(name, app={"queue": queue}, observed=ENDED))
    fleet.put_stack(tracked_app("d", app={"queue": "big"}, observed=ENDED))
    fleet.put_stack(tracked_app("e", app={"scheduler": "mcad"}, observed=ENDED))
    for name in ("a", "c", "d", "e"):
        fleet.drop(tracked_app(name).key)
    # The last scrape before they go has their runs.
    seconds[0] = SERIES_KEPT_S
    assert value(metrics, f"{WAIT}_count", queue="big") == 1
    assert value(metrics, f"{RUN}_count", scheduler="mcad") == 1
    seconds[0] += 1
    queues = {dict(labels)["queue"] for labels in scraped(metrics)[f"{WAIT}_count"]}
    assert queues == {"small"}
    assert value(metrics, f"{RUN}_count", scheduler="mcad") is None
    assert value(metrics, f"{RUN}_count", scheduler="volcano") == 4
    # One that comes back begins anew.
    fleet.put_stack(tracked_app("c", app={"queue": "big"}, observed=ENDED))
    assert value(metrics, f"{WAIT}_count", queue="big") == 1
