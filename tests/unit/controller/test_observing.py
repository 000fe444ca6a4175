"""A watched cluster tells when an app is to be looked at again."""

from __future__ import annotations

import queue
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torchx_pulumi.controller.observing import DEBOUNCE_S, EVENT_DEBOUNCE_S, ClusterView
from torchx_pulumi.controller.reporting import Reporter
from torchx_pulumi.controller.tracked import TrackedStacks
from torchx_pulumi.stack_state.checkpoint import StackApp
from torchx_pulumi.testing import FakeCluster

from tests.unit.controller.world import World
from tests.unit.schedulers.volcano.compact import pod_of


class OneApp:
    """The tracked app of every job."""

    def __init__(self, replicas: int) -> None:
        self._app = SimpleNamespace(output=StackApp(output={"declared": {"roles": [{"replicas": replicas}]}}))

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
    view = ClusterView(
        "here",
        FakeCluster([pod]),
        tracked,
        namespaces=None,
        dirty=lambda key, delay: dirty.put((key, delay)),
        pod_changed=lambda *_: None,
        unknown=lambda _: None,
        known=lambda _: None,
    )
    view.watched.start()
    try:
        assert dirty.get(timeout=60) == ("key", delay_s)
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
