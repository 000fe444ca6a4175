"""What every list with a version and every watch does, fake or real."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from torchx_pulumi.kube import WatchEvent, kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import EXPIRED
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_QUEUE
from torchx_pulumi_fleet.watch.object_watch import Change
from torchx_pulumi_fleet.watch.watched_cluster import WatchedCluster

from tests.contract.cluster.conftest import World
from tests.fakes import FakeCluster

NOBODYS = Kind(group="nobody.example.com", version="v1", kind="Thing", plural="things")
Manifest = dict[str, Any]


def service(namespace: str, name: str, labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"none": "here"}},
    }


class Made:
    """Services of one test, told from those of the others by a label."""

    def __init__(self, world: World) -> None:
        self.cluster = world.cluster
        self.namespace = world.namespace
        self.label = f"test-{uuid4().hex[:6]}"
        self.names: list[str] = []

    def add(self, name: str) -> str:
        full = f"{self.label}-{name}"
        self.cluster.create(kinds.SERVICE, self.namespace, service(self.namespace, full, {self.label: name}))
        self.names.append(full)
        return full

    def list(self, **more: Any) -> tuple[list[Manifest], str]:
        return self.cluster.list_versioned(kinds.SERVICE, self.namespace, {self.label: None}, **more)

    def watch(self, version: str, selector: dict[str, str | None] | None = None) -> Any:
        wanted = selector or {self.label: None}
        return self.cluster.watch(kinds.SERVICE, self.namespace, wanted, version=version)


@pytest.fixture
def made(world: World) -> Iterator[Made]:
    made = Made(world)
    yield made
    for name in made.names:
        made.cluster.delete(kinds.SERVICE, made.namespace, name)


def until(what: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def take(events: Iterator[WatchEvent], count: int) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    while len(found) < count:
        event = next(events)
        # The real cluster first notes that an object is to be deleted.
        if event.type != "BOOKMARK" and not is_ending(event.type, event.object):
            found.append(event)
    return found


def is_ending(kind: str, found: Manifest) -> bool:
    return kind == "MODIFIED" and "deletionTimestamp" in found["metadata"]


def test_a_selector_may_want_a_label_with_any_value(made: Made) -> None:
    made.add("b"), made.add("a")
    found = made.cluster.list(kinds.SERVICE, made.namespace, {made.label: None})
    assert [item["metadata"]["labels"][made.label] for item in found] == ["a", "b"]


def test_a_list_has_a_version_and_keeps_what_is_wanted(made: Made) -> None:
    made.add("b"), made.add("a")
    found, version = made.list()
    assert [item["metadata"]["labels"][made.label] for item in found] == ["a", "b"]
    assert version
    assert all(item["metadata"]["resourceVersion"] for item in found)

    def keep(found: Manifest) -> Manifest | None:
        assert (found["apiVersion"], found["kind"]) == ("v1", "Service")
        return {"metadata": found["metadata"]} if found["metadata"]["labels"][made.label] == "a" else None

    few, _ = made.list(keep=keep)
    assert [item.keys() for item in few] == [{"metadata"}]


def test_a_watch_continues_a_list(made: Made) -> None:
    made.add("before")
    _, version = made.list()
    events = made.watch(version)
    name = made.add("after")
    made.cluster.delete(kinds.SERVICE, made.namespace, name)
    added, deleted = take(events, 2)
    assert (added.type, deleted.type) == ("ADDED", "DELETED")
    assert added.object["metadata"]["name"] == deleted.object["metadata"]["name"] == name
    assert (added.object["apiVersion"], added.object["kind"]) == ("v1", "Service")
    assert added.version
    assert added.version != deleted.version
    events.close()


def test_a_watch_from_the_version_of_an_event_repeats_nothing(made: Made) -> None:
    _, version = made.list()
    first, second = made.add("one"), made.add("two")
    events = made.watch(version)
    (event,) = take(events, 1)
    events.close()
    assert event.object["metadata"]["name"] == first
    again = made.watch(event.version)
    assert take(again, 1)[0].object["metadata"]["name"] == second
    again.close()


def test_a_watch_wants_the_labels(made: Made) -> None:
    _, version = made.list()
    events = made.watch(version, {made.label: "wanted"})
    made.add("other")
    made.add("wanted")
    assert take(events, 1)[0].object["metadata"]["labels"] == {made.label: "wanted"}
    events.close()


def test_closing_ends_the_wait_of_another_thread(made: Made) -> None:
    _, version = made.list()
    events = made.watch(version)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(events), daemon=True)
    waiting.start()
    time.sleep(0.3)
    events.close()
    events.close()
    waiting.join(30)
    assert not waiting.is_alive()
    assert found == []


def test_a_kind_that_nobody_defines_is_not_watched(made: Made) -> None:
    for ask in (
        lambda: made.cluster.list_versioned(NOBODYS, made.namespace),
        lambda: made.cluster.watch(NOBODYS, made.namespace, version="1"),
    ):
        with pytest.raises(ClusterError, match="does not serve Thing") as caught:
            ask()
        assert caught.value.reason == "NotServed"


def test_events_are_those_of_the_named_objects(world: World) -> None:
    name = f"event-{uuid4().hex[:6]}"
    for number, involved in enumerate((f"{name}-a", f"{name}-b", f"{name}-a")):
        involved_object = {"apiVersion": "v1", "kind": "Pod", "name": involved, "namespace": world.namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}-{number}", "namespace": world.namespace},
            "involvedObject": involved_object,
            "reason": "Test",
            "message": "a test",
            "type": "Normal",
        }
        world.cluster.create(kinds.EVENT, world.namespace, event)
    found = world.cluster.events(world.namespace, {f"{name}-a", None})
    assert [event["metadata"]["name"] for event in found] == [f"{name}-0", f"{name}-2"]


def test_a_watched_cluster_has_what_the_cluster_has(made: Made) -> None:
    changes: list[Change] = []
    selected = [(kinds.SERVICE, {made.label: None}), (kinds.EVENT, None), (VOLCANO_QUEUE, None), (NOBODYS, None)]
    watched = WatchedCluster(made.cluster, selected, namespaces=[made.namespace], changed=changes.append)
    before = made.add("before")
    watched.start()
    try:
        for kind in (kinds.SERVICE, kinds.EVENT, VOLCANO_QUEUE):
            until(lambda kind=kind: watched.is_synced(kind, made.namespace))
        assert not watched.is_synced(NOBODYS, made.namespace)
        assert not watched.is_synced(kinds.SERVICE, "elsewhere")
        after = made.add("after")
        until(lambda: watched.get(kinds.SERVICE, made.namespace, after))
        found = watched.list(kinds.SERVICE, made.namespace, {made.label: "before"})
        assert [item["metadata"]["name"] for item in found] == [before]
        everything = watched.list(kinds.SERVICE, made.namespace, {made.label: None})
        assert {item["metadata"]["name"] for item in everything} == {before, after}
        made.cluster.delete(kinds.SERVICE, made.namespace, after)
        until(lambda: watched.get(kinds.SERVICE, made.namespace, after) is None)

        def mine() -> list[tuple[str, str]]:
            return [
                (one.type, one.object["metadata"]["name"])
                for one in [*changes]
                if one.kind == kinds.SERVICE and not is_ending(one.type, one.object)
            ]

        # A change is reported after the store has it.
        until(lambda: ("DELETED", after) in mine())
        assert mine() == [("ADDED", before), ("ADDED", after), ("DELETED", after)]
        # What is not watched is read from the cluster.
        pod = watched.get(kinds.POD, made.namespace, "a")
        assert pod is not None
        assert "command" not in pod["spec"]["containers"][0]
        assert watched.identify().uid == made.cluster.identify().uid
    finally:
        started = time.monotonic()
        watched.stop()
    # It promises a second; the rest is for threads that do not get a processor.
    assert time.monotonic() - started < 5


def test_a_version_of_long_ago_is_expired(world: World) -> None:
    if isinstance(world.cluster, FakeCluster):
        world.cluster.forget_history()
    with pytest.raises(ClusterError) as caught:
        # From before the kind was defined.
        next(world.cluster.watch(VOLCANO_QUEUE, None, version="1"))
    assert caught.value.reason == EXPIRED
    assert caught.value.retryable
