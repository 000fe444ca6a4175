"""A watched cluster tells when an app is to be looked at again."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from torchx_pulumi.apps.answer import Answer
from torchx_pulumi.apps.app import App
from torchx_pulumi.apps.variants import find_variant
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_fleet.tracker import observing
from torchx_pulumi_fleet.tracker.observing import ChangeListener, ClusterView
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.tracker.tracked import TrackedStacks
from torchx_pulumi_fleet.writer import Controller, ControllerParts, ControllerSettings

from tests.fakes import FakeCluster
from tests.fleet.writer.live_apps import changed, tracked_app
from tests.fleet.writer.world import World, wait_for
from tests.unit.schedulers.app_wrappers import condition
from tests.unit.schedulers.kueue_objects import not_reserved, workload


class SomeApps:
    """Tracked apps whose name is the uid of their job object."""

    def __init__(self) -> None:
        self.ended: set[str] = set()

    def of_uid(self, uid: str) -> frozenset[str]:
        return frozenset({uid})

    def of_launch(self, _: Any) -> frozenset[str]:
        return frozenset()

    def of_job(self, *_: Any) -> frozenset[str]:
        return frozenset()

    def app(self, uid: str) -> App:
        answer = Answer(observed={"state": "FAILED"} if uid in self.ended else {})
        return replace(tracked_app(uid, uid=uid), answer=answer)


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.0, 0.0), (0.03, 0.3), (60.0, 1.0)])
def test_an_app_of_many_pods_whose_looks_take_long_is_looked_at_less_often(
    tmp_path: Path, took_s: float, pause_s: float
) -> None:
    world = World(root=tmp_path)
    key, begun = tracked_app("a").key, time.monotonic()
    settings, reporter = ControllerSettings(backends=(key[0],)), Reporter(world.lines.append)
    parts = ControllerParts(settings=settings, driver=world.driver(), reporter=reporter)
    controller, work = Controller(parts, {}), parts.work_of(key)
    work.looked_at, work.took_s = begun, took_s
    controller.dirty(key, 0.0)
    assert parts.queue_of(key).take() == key
    assert pause_s <= time.monotonic() - begun < pause_s + 0.25


def test_what_is_remembered_of_runs_that_are_gone_is_bounded_and_dropped_with_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observing, "MOST_GONE", 2)
    names = ("a", "b", "c", "d")
    cluster, tracked = FakeCluster(), cast("Any", SomeApps())
    for name in names:
        meta = {"name": name, "namespace": "team", "uid": name, "labels": {labels.LAUNCH: "x"}}
        cluster.put({"apiVersion": VOLCANO_JOB.api_version, "kind": "Job", "metadata": meta})
    view = ClusterView("here", cluster, tracked, ChangeListener(), namespaces=None)

    def remembered() -> set[str]:
        return {name for name in names if view.remembered_of(tracked.app(name)).last is not None}

    view.watched.start()
    try:
        wait_for(lambda: remembered() == set(names))
        for name in ("a", "b", "c"):
            cluster.remove(VOLCANO_JOB, "team", name)
        wait_for(lambda: remembered() == {"b", "c", "d"})
        view.forget("c")
        assert remembered() == {"b", "c", "d"}
        tracked.ended.add("c")
        view.forget("c")
        assert remembered() == {"b", "d"}
    finally:
        view.watched.stop()


def test_an_app_is_looked_at_when_only_its_workload_changes() -> None:
    key = changed(tracked_app("a", uid="a"), variant=find_variant("mcad", "v1beta2")).key
    told: list[object] = []

    class Apps(SomeApps):
        def of_uid(self, uid: str) -> frozenset[Any]:
            return frozenset()

        def of_job(self, *place: Any) -> frozenset[Any]:
            return frozenset({key} if place == ("default", "a") else ())

        def app(self, uid: Any) -> App:
            return tracked_app("a", uid="a")

    class Listener(ChangeListener):
        def dirty(self, key: Any, delay_s: float) -> None:
            told.append(key)

    cluster = FakeCluster([workload(not_reserved("short of GPUs"), owner="a", uid="a")])
    view = ClusterView("here", cluster, cast("Any", Apps()), Listener(), namespaces=["default"])
    view.watched.start()
    try:
        wait_for(lambda: told == [key])
        cluster.put(workload(condition("Evicted", "True", "Preempted"), owner="a", uid="a"))
        wait_for(lambda: told == [key, key])
        cluster.put(workload(owner="b", uid="b"))
        cluster.put(workload(owner="a", uid="a"))
        wait_for(lambda: told == [key] * 3)
    finally:
        view.watched.stop()


@pytest.mark.parametrize("removed", [0, 1])
def test_a_job_object_that_two_stacks_name_is_known_until_both_are_gone(tmp_path: Path, removed: int) -> None:
    world = World(root=tmp_path)
    app = world.launch("train-x1")
    paths = [app.path, app.path.with_name("copy.json")]
    shutil.copy(*paths)
    tracked = TrackedStacks([world.backend], Reporter(world.lines.append))
    tracked.refresh(world.backend)
    assert tracked.of_uid(app.entry.uid)
    paths[removed].unlink()
    tracked.refresh(world.backend)
    assert tracked.of_uid(app.entry.uid)
    paths[1 - removed].unlink()
    tracked.refresh(world.backend)
    assert not tracked.of_uid(app.entry.uid)


@pytest.mark.parametrize(("gang", "kept"), [("job", None), ("pods", {"a-0"})])
def test_pods_are_remembered_only_of_runs_that_end_by_them(gang: str, kept: set[str] | None) -> None:
    cluster, app = FakeCluster(), changed(tracked_app("a", uid="u"), variant=find_variant("volcano", gang))
    kind, place = app.run.variant.job_object, {"namespace": "team"}
    cluster.put({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {**place, "name": "a", "uid": "u"}})
    owner = {"kind": kind.kind, "uid": "u", "name": "a"}
    meta = {**place, "name": "a-0", "uid": "p", "labels": app.run.pod_selector, "ownerReferences": [owner]}
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"phase": "Succeeded"}})
    view = ClusterView("here", cluster, cast("Any", SomeApps()), ChangeListener(), namespaces=None)
    look = view.look_again(app, datetime.now(timezone.utc))
    assert look is not None
    assert look.objects is not None
    assert [found["metadata"]["name"] for found in look.objects.pods or ()] == ["a-0"]
    assert (None if look.remembered.pods is None else {*look.remembered.pods}) == kept
