"""Rows of `torchx-pulumi fleet --watch` from watched clusters: what changes there is shown, and nothing is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import Cluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.app_entry import write_entry
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.requested import Requested, RequestedAction
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_fleet.tracker import user_clusters
from torchx_pulumi_fleet.tracker.reading import is_asked
from torchx_pulumi_fleet.tracker.user_clusters import MOST_NAMESPACES, UserClusters
from torchx_pulumi_fleet.tracker.user_fleet import UserFleet
from torchx_pulumi_fleet.views.row import FleetRow

from tests.fakes import FakeCluster
from tests.fleet.writer.requests import cancelled
from tests.fleet.writer.world import App, World, wait_for

AWAY = ClusterError("the cluster cannot be reached", retryable=True)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(user_clusters, "OUTAGE_S", 0.1)
    (tmp_path / "backend/.pulumi").mkdir(parents=True)
    return World(root=tmp_path)


class Watching:
    """The stacks and their clusters, as a watch reads them."""

    def __init__(self, world: World, cluster: Cluster | ClusterError, **options: Any) -> None:
        self.fleet = UserFleet(world.backend)
        self.fleet.refresh()
        self.changed = threading.Event()
        self.fleet.apps.subscribe(self.changed.set)
        self.connected: list[Any] = []
        self.cluster = cluster
        self.clusters = UserClusters(
            fleet=self.fleet,
            wanted=lambda row: is_asked(row, None),
            **{"connect": self._connect, **options},
        )
        self.clusters.watch(app.key for app in self.fleet.tracked.apps())

    def _connect(self, *access: Any) -> Cluster:
        self.connected.append(access)
        if isinstance(self.cluster, ClusterError):
            raise self.cluster
        return self.cluster

    def refresh(self) -> None:
        self.clusters.watch(self.fleet.refresh())

    def row(self, app: App) -> FleetRow:
        rows = self.fleet.rows(datetime.now(timezone.utc))
        return next(row for row in rows if row.app_id == app.entry.app_id)

    def wait(self, app: App, state: str, reason: str, source: str = "live") -> FleetRow:
        wait_for(
            lambda: (self.row(app).state.value, self.row(app).reason, self.row(app).source) == (state, reason, source)
        )
        return self.row(app)


@contextmanager
def watching(world: World, cluster: Cluster | ClusterError | None = None, **options: Any) -> Iterator[Watching]:
    made = Watching(world, cluster or world.cluster, **options)
    try:
        yield made
    finally:
        made.clusters.stop()


@pytest.mark.parametrize("by_torchx", [True, False])
def test_a_change_in_the_cluster_is_shown_and_nothing_is_written(world: World, by_torchx: bool) -> None:
    app = world.launch("train-1") if by_torchx else world.launch_program("train-1")
    before = app.path.read_bytes()
    with watching(world) as watch:
        wait_for(lambda: watch.row(app).source == "live")
        watch.changed.clear()
        world.phase(app, "Running", running=1)
        row = watch.wait(app, "RUNNING", "Running")
        assert watch.changed.is_set()
        assert (row.freshness_s, row.note) == (0.0, "")
        world.phase(app, "Failed", failed=1)
        watch.wait(app, "FAILED", "Failed")
        # The end stays when a time to live removes the objects.
        world.cluster.remove(app.kind, "default", app.name)
        world.phase(world.launch("other"), "Running")
        watch.refresh()
        wait_for(lambda: len(watch.fleet.apps.apps()) == 2)
        assert watch.row(app).state.value == "FAILED"
    assert app.path.read_bytes() == before


def test_apps_that_are_launched_meanwhile_are_watched(world: World) -> None:
    with watching(world) as watch:
        assert watch.connected == []
        app = world.launch("train-1")
        world.phase(app, "Running", running=1)
        watch.refresh()
        watch.wait(app, "RUNNING", "Running")
        second = world.launch("train-2")
        world.phase(second, "Running", running=1)
        watch.refresh()
        watch.wait(second, "RUNNING", "Running")


def test_objects_that_are_gone_are_not_found_unless_the_stack_has_the_end(world: World) -> None:
    app = world.launch("train-1")
    world.cluster.remove(app.kind, "default", app.name)
    with watching(world) as watch:
        watch.wait(app, "UNKNOWN", "NotFound")
        with world.controller():
            wait_for(lambda: world.state(app) == ("UNKNOWN", "NotFound"))


def test_an_app_that_has_ended_in_its_stack_is_not_watched(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Completed", succeeded=1)
    with world.controller():
        wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
    with watching(world) as watch:
        assert watch.connected == []
        assert (watch.row(app).state.value, watch.row(app).source) == ("SUCCEEDED", "state")


def test_an_app_that_ends_in_its_stack_is_shown_as_the_stack_has_it(world: World) -> None:
    app = world.launch("train-1")
    with watching(world) as watch:
        wait_for(lambda: watch.row(app).source == "live")
        with world.controller():
            world.phase(app, "Completed", succeeded=1)
            wait_for(lambda: world.state(app)[0] == "SUCCEEDED")
        watch.refresh()
        watch.wait(app, "SUCCEEDED", "Completed", "state")


def test_a_cluster_that_goes_away_is_named_and_its_rows_stay(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Running", running=1)
    with watching(world) as watch:
        watch.wait(app, "RUNNING", "Running")
        world.cluster.error = AWAY
        wait_for(lambda: bool(watch.clusters.unreachable))
        row = watch.wait(app, "RUNNING", "Running", "local")
        assert row.note == "cluster not reached: the current context"
        (why,) = watch.clusters.unreachable.values()
        assert why.startswith("no answer since ")
        world.cluster.error = None
        world.phase(app, "Completed", succeeded=1)
        watch.wait(app, "SUCCEEDED", "Completed")
        assert watch.clusters.unreachable == {}


@pytest.mark.parametrize("asked", [True, False])
def test_without_a_kubeconfig_the_stacks_are_shown(world: World, asked: bool) -> None:
    app = world.launch("train-1")
    with watching(world, ClusterError("there is no kubeconfig"), says_unconfigured=asked) as watch:
        assert watch.row(app).source == "state"
        assert watch.clusters.unreachable == ({"the current context": "there is no kubeconfig"} if asked else {})


def test_another_cluster_says_nothing_of_an_app(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Running", running=1)
    with watching(world, FakeCluster(api_server="https://other.example.com")) as watch:
        wait_for(lambda: watch.row(app).note == "not in the cluster of its launch: the current context")
        assert (watch.row(app).state.value, watch.row(app).source) == ("SUBMITTED", "state")


def test_a_cancellation_that_the_stack_notes_is_shown_as_cancelled(world: World) -> None:
    app = world.launch("train-1")
    world.phase(app, "Running", running=1)
    with watching(world) as watch:
        watch.wait(app, "RUNNING", "Running")
        cancelled(world, app)
        watch.refresh()
        watch.wait(app, "RUNNING", "Cancelled")
        world.phase(app, "Terminated", terminated=1)
        assert watch.wait(app, "CANCELLED", "Cancelled").message == "cancelled at 2026-01-02T12:00:00Z"


def test_a_cancellation_of_this_user_counts_before_the_stack_has_it(world: World) -> None:
    app = world.launch("train-1")
    cancel = Requested(action=RequestedAction.CANCEL, at="2026-01-02T12:00:00Z", by="tester", uid=app.entry.uid)
    RunIndex().add(replace(app.entry, requested=cancel))
    world.phase(app, "Terminated", terminated=1)
    with watching(world) as watch:
        watch.wait(app, "CANCELLED", "Cancelled")


def test_an_outage_concerns_the_apps_of_one_kubeconfig_though_contexts_have_one_name(world: World) -> None:
    other = World(root=world.root)
    apps = []
    for here, path in ((world, "a"), (other, "b")):
        planned = here.create(here.plan(f"train-{path}", kube_context="default"))
        app = replace(planned, entry=replace(planned.entry, ambient_kubeconfig=path))
        here.write(replace(app, plan=replace(app.plan, entry=write_entry(app.entry))))
        here.phase(app, "Running", running=1)
        apps.append(app)

    def connect(kubeconfig: str | None, _: str | None) -> FakeCluster:
        return {"a": world, "b": other}[str(kubeconfig)].cluster

    with watching(world, connect=connect) as watch:
        for app in apps:
            watch.wait(app, "RUNNING", "Running")
        other.cluster.error = AWAY
        wait_for(lambda: bool(watch.clusters.unreachable))
        watch.wait(apps[1], "RUNNING", "Running", "local")
        assert watch.row(apps[0]).source == "live"


def test_a_checkpoint_of_a_later_release_is_noted(world: World) -> None:
    app = world.launch("train-1")
    app.path.write_text(app.path.read_text().replace('"choice": "job"', '"choice": "later"'))
    with watching(world) as watch:
        wait_for(lambda: "not observed: " in watch.row(app).note)
        assert watch.row(app).source == "state"


def test_few_namespaces_are_watched_one_by_one_and_many_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: set[str | None] = set()
    really = world.cluster.list_versioned

    def note(kind: Any, namespace: str | None, *given: Any, **options: Any) -> Any:
        if kind in (POD, VOLCANO_JOB):
            listed.add(namespace)
        return really(kind, namespace, *given, **options)

    monkeypatch.setattr(world.cluster, "list_versioned", note)
    world.launch("train-1")
    with watching(world) as watch:
        wait_for(lambda: listed == {"default"})
        for number in range(MOST_NAMESPACES):
            text = world.launch(f"more-{number}").path.read_text()
            path = world.root / f"backend/.pulumi/stacks/torchx/n{number}.json"
            path.write_text(text.replace('"namespace": "default"', f'"namespace": "n{number}"'))
        watch.refresh()
        wait_for(lambda: None in listed)
