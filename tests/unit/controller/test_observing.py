"""A watched cluster tells when an app is to be looked at again."""

from __future__ import annotations

import queue
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from torchx_pulumi.controller import observing
from torchx_pulumi.controller.observing import DEBOUNCE_S, EVENT_DEBOUNCE_S, ChangeListener, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.stack_apps import TrackedApp
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.model import labels
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.checkpoint import StackApp
from torchx_pulumi.testing import FakeCluster

from tests.unit.controller.live_apps import tracked_app
from tests.unit.controller.world import World, wait_for
from tests.unit.schedulers.volcano.compact import pod_of


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

    def app(self, uid: str) -> TrackedApp:
        return replace(tracked_app(uid, uid=uid), observed={"state": "FAILED"} if uid in self.ended else {})


class OneApp:
    """The tracked app of every job."""

    def __init__(self, replicas: int) -> None:
        variant = next(iter(find_backend("volcano").variants.values()))
        self._app = SimpleNamespace(
            variant=variant, output=StackApp(output={"declared": {"roles": [{"replicas": replicas}]}})
        )

    def of_job(self, *_: Any) -> frozenset[str]:
        return frozenset({"key"})

    def app(self, _: Any) -> Any:
        return self._app


@pytest.mark.parametrize(("replicas", "delay_s"), [(500, DEBOUNCE_S), (501, EVENT_DEBOUNCE_S)])
def test_an_app_of_many_replicas_is_not_looked_at_for_each_of_its_pods(replicas: int, delay_s: float) -> None:
    pod = pod_of("t-0", 0)
    pod["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "torchx.pytorch.org"
    dirty: queue.Queue[tuple[Any, float]] = queue.Queue()
    tracked: Any = OneApp(replicas)

    class Listener(ChangeListener):
        def dirty(self, key: Any, delay_s: float) -> None:
            dirty.put((key, delay_s))

    view = ClusterView("here", FakeCluster([pod]), tracked, Listener(), namespaces=None)
    view.watched.start()
    try:
        assert dirty.get(timeout=60) == ("key", delay_s)
    finally:
        view.watched.stop()


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
