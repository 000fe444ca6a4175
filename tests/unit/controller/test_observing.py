"""A watched cluster tells when an app is to be looked at again."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest
from torchx_pulumi.controller.observing import DEBOUNCE_S, EVENT_DEBOUNCE_S, ClusterView
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.stack_state.checkpoint import StackApp
from torchx_pulumi.testing import FakeCluster

from tests.unit.schedulers.volcano.compact import pod_of


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
