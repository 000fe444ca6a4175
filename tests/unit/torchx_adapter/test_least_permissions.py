"""What is missing takes only what depends on it: permissions, pods that are gone, an end that was left again."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model import labels
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.cluster_checks import of_app_wrapper
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.cluster_checks import PERMISSIONS as VOLCANO
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME

from tests.fakes import FakeCluster
from tests.unit.logs.scripted import FastClock

from .conftest import World

KEPT = ("update", VOLCANO_JOB, "status")
"""TorchX's own verb for a cancellation."""

DENIED: set[Any] = {
    (item.verb, item.kind, item.part) if item.part else (item.verb, item.kind)
    for item in (*VOLCANO, *of_app_wrapper(APP_WRAPPER))
    if item.without and not (item.everywhere and item.kind == APP_WRAPPER)
} - {KEPT}


class Asked(FakeCluster):
    """A cluster that notes what it is asked for."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.asked: list[str] = []

    def get(self, kind: kinds.Kind, namespace: str | None, name: str) -> Any:
        self.asked.append(f"get {kind.plural}")
        return super().get(kind, namespace, name)

    def list(self, kind: kinds.Kind, namespace: str | None, selector: Any = None) -> Any:
        self.asked.append(f"list {kind.plural}")
        return super().list(kind, namespace, selector)


def use(world: World, **more: Any) -> Asked:
    cluster = Asked(**more)
    world.cluster = world.driver._cluster = cluster
    return cluster


def begin(world: World, app_id: str, kind: str) -> None:
    if kind == "volcano":
        counts = {f"trainer-{index}": {"phase": {"Running": 1}} for index in (0, 1)}
        world.phase(app_id, "Running", taskStatusCount=counts)
        return
    head = world.head(app_id, APP_WRAPPER)
    assert head is not None
    world.cluster.put({**head, "status": {"state": "Running"}})


def pods(world: World, app_id: str, phase: str = "Running", count: int = 2) -> None:
    """Let the pods of an app be in a phase, as many of them as are there."""
    (entry,) = (entry for entry in RunIndex().all() if entry.app_id == app_id)
    for index, name in enumerate(entry.pods["trainer"]):
        own = {
            VOLCANO_JOB_NAME: entry.job_name,
            labels.UNIQUE_NAME: entry.job_name,
            labels.ROLE_NAME: "trainer",
            labels.REPLICA_ID: str(index),
            labels.ORGANIZATION: labels.ORGANIZATION_VALUE,
        }
        world.cluster.remove(kinds.POD, entry.namespace, name)
        if index < count:
            world.cluster.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": entry.namespace, "labels": own},
                    "spec": {"nodeName": "n1", "containers": [{"name": "trainer"}]},
                    "status": {"phase": phase},
                }
            )


def test_the_verbs_of_torchx_and_of_the_provider_are_enough(
    world: World, kind: str, submit: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    use(world, denied=DENIED)
    with caplog.at_level(logging.WARNING):
        app_id = submit(kind)
        begin(world, app_id, kind)
        scheduler = world.scheduler(kind)
        context = scheduler.list()
        assert [(str(item.app_id), str(item.state)) for item in context] == [(app_id, "RUNNING")]
        for _ in range(3):
            assert str(scheduler.describe(app_id).state) == "RUNNING"
        scheduler.cancel(app_id)
        assert str(scheduler.describe(app_id).state) == "CANCELLED"
        scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None
    told = [text for text in caplog.messages if "no permission to" in text]
    assert len(told) == len(set(told)) > 0


@pytest.mark.parametrize("form", ["job", "pods", "mcad"])
def test_a_look_at_a_healthy_app_takes_two_requests(world: World, submit: Callable[..., str], form: str) -> None:
    cluster = use(world)
    kind = "mcad" if form == "mcad" else "volcano"
    app_id = submit(kind, **({"gang": form} if kind == "volcano" else {}))
    if form != "pods":
        begin(world, app_id, kind)
    pods(world, app_id)
    scheduler = world.scheduler(kind)
    for _ in range(2):
        del cluster.asked[:]
        assert str(scheduler.describe(app_id).state) == "RUNNING"
        assert len(cluster.asked) == 2, cluster.asked


def test_an_end_that_was_seen_stays_when_the_pods_of_a_gang_are_collected(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit(gang="pods")
    scheduler = world.scheduler()
    pods(world, app_id, "Succeeded")
    assert str(scheduler.describe(app_id).state) == "SUCCEEDED"
    pods(world, app_id, "Succeeded", count=1)
    assert str(scheduler.describe(app_id).state) == "SUCCEEDED"
    assert [str(item.state) for item in scheduler.list()] == ["SUCCEEDED"]
    (stack,) = world.driver.stacks.values()
    assert stack.outputs["state"] == "SUCCEEDED"


@pytest.mark.parametrize("count", [0, 1])
def test_a_gang_that_lost_pods_before_its_end_was_seen_has_failed(
    world: World, submit: Callable[..., str], count: int
) -> None:
    app_id = submit(gang="pods")
    scheduler = world.scheduler()
    pods(world, app_id)
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    pods(world, app_id, "Succeeded", count=count)
    assert [str(item.state) for item in scheduler.list()] == ["FAILED"]
    described = scheduler.describe(app_id)
    assert (str(described.state), "deleted before their end was seen" in described.msg) == ("FAILED", True)


def test_a_run_that_was_resumed_is_active_in_its_stack_again(world: World, submit: Callable[..., str]) -> None:
    begun, ticks = datetime.now(timezone.utc), itertools.count(1)
    app_id, scheduler = submit(), world.scheduler(now=lambda: begun + timedelta(minutes=next(ticks)))
    (stack,) = world.driver.stacks.values()
    scheduler.cancel(app_id)
    assert str(scheduler.describe(app_id).state) == "CANCELLED"
    assert stack.outputs["state"] == "CANCELLED"
    scheduler.resume(app_id)
    world.phase(app_id, "Running")
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    assert stack.outputs["state"] == "RUNNING"


@pytest.mark.parametrize("kind", ["volcano", "mcad"])
def test_the_log_of_a_pod_that_may_not_be_listed_is_followed(
    world: World, submit: Callable[..., str], kind: str
) -> None:
    app_id = submit(kind)
    (entry,) = RunIndex().all()
    use(
        world,
        objects=[*world.cluster._objects.values()],
        denied=DENIED - {("get", kinds.POD), ("get", kinds.POD, "log")},
        logs={(entry.namespace, entry.pods["trainer"][1]): ["hello", "again"]},
    )
    begin(world, app_id, kind)
    pods(world, app_id)
    ended = {"terminated": {"exitCode": 0, "containerID": "c"}}
    pod = world.cluster.get(kinds.POD, entry.namespace, entry.pods["trainer"][1]) or {}
    pod["status"]["phase"] = "Succeeded"
    pod["status"]["containerStatuses"] = [{"name": "trainer-0", "state": ended}]
    pod["spec"] = {"nodeName": "n1", "containers": [{"name": "trainer-0"}]}
    world.cluster.put(pod)
    lines = iter(world.scheduler(kind, clock=FastClock()).log_iter(app_id, "trainer", 1, should_tail=True))
    assert next(lines).split()[-1] == "hello"
    first = world.cluster.get(kinds.POD, entry.namespace, entry.pods["trainer"][0]) or {}
    world.cluster.put({**first, "status": {"phase": "Succeeded"}})
    if kind == "volcano":
        world.phase(app_id, "Completed")
    assert [line.split()[-1] for line in lines] == ["again"]
