"""Watches of the real client over real connections: cut, silent and closed streams, large objects, an absent server."""

from __future__ import annotations

import logging
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from torchx_pulumi.kube import kinds, kubernetes_cluster
from torchx_pulumi.kube.protocol import EXPIRED
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.watch.object_watch import Change, WatchTiming
from torchx_pulumi_fleet.watch.watched_cluster import WatchedCluster

from tests.fakes import FakeCluster
from tests.fleet.watch.test_object_watch import until
from tests.fleet.watch.watch_server import WatchServer, watch_server

QUICK = WatchTiming(first_s=0.05, longest_s=0.2, forbidden_s=0.2, not_served_s=0.1, settled_s=0.05)
LABELS = {"mine": "yes"}


def pod(name: str, version: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}", "labels": LABELS},
        "spec": spec,
        "status": {"step": version},
    }


@pytest.fixture
def server() -> Iterator[WatchServer]:
    with watch_server(FakeCluster([pod("one")], history=50_000)) as server:
        yield server


class Watched:
    """A watched cluster with its changes."""

    def __init__(self, server: WatchServer, **more: Any) -> None:
        self.changes: list[Change] = []
        self.cluster = WatchedCluster(
            server.cluster(),
            [(kinds.POD, {"mine": None})],
            namespaces=["a"],
            changed=self.changes.append,
            timing=QUICK,
            **more,
        )

    def __enter__(self) -> Watched:
        self.cluster.start()
        until(self.synced)
        return self

    def __exit__(self, *_: Any) -> None:
        self.cluster.stop()

    def synced(self) -> bool:
        return self.cluster.is_synced(kinds.POD, "a")

    def reported(self) -> list[Any]:
        """Return the steps that the watch reported. `step` asks the server while the watch is interrupted."""
        return [change.object["status"]["step"] for change in self.changes]

    def step(self, name: str) -> Any:
        found = self.cluster.get(kinds.POD, "a", name)
        return None if found is None else found["status"]["step"]


def test_a_list_comes_in_pages_and_a_watch_goes_on_from_it(server: WatchServer) -> None:
    server.page_size = 2
    for name in ("b", "c", "d"):
        server.fake.put(pod(name))
    with Watched(server) as watched:
        assert sorted(change.object["metadata"]["name"] for change in watched.changes) == ["b", "c", "d", "one"]
        server.fake.put(pod("c", 7))
        until(lambda: watched.step("c") == 7)
    assert server.count("limit=500") == 2
    (asked,) = [one for one in server.asked if "watch=1" in one]
    assert "allowWatchBookmarks=true" in asked
    assert "labelSelector=mine" in asked
    assert "timeoutSeconds=" in asked


def test_an_event_of_several_megabytes_is_joined(server: WatchServer) -> None:
    with Watched(server) as watched:
        server.fake.put(pod("large", text="ä" * (3 << 20)))
        until(lambda: watched.step("large") is not None)
        found = watched.cluster.get(kinds.POD, "a", "large")
        assert found is not None
        assert len(found["spec"]["text"]) == 3 << 20


def test_streams_that_are_cut_lose_nothing(server: WatchServer) -> None:
    with Watched(server) as watched:
        for number in range(1, 11):
            server.fake.put(pod("one", number))
            if number % 3 == 0:
                server.cut()
        until(lambda: watched.reported()[-1] == 10)
        assert watched.reported() == list(range(11))
    assert server.count("limit=500") == 1


def test_a_stream_that_breaks_within_an_event_is_read_again(server: WatchServer) -> None:
    server.broken = '{"type": "ADDED", "object": {"kind'
    _, version = server.cluster().list_versioned(kinds.POD, "a")
    events = server.cluster().watch(kinds.POD, "a", version=version)
    threading.Timer(0.1, server.fake.end_watches).start()
    with pytest.raises(ClusterError, match="it ended within an event") as caught:
        next(events)
    assert caught.value.retryable


@pytest.mark.parametrize("text", ["<html>\n", "[]\n", '{"type": "NEW", "object": {}}\n', '{"type": "ADDED"}\n'])
def test_what_is_not_an_event_is_named(server: WatchServer, text: str) -> None:
    server.broken = text
    _, version = server.cluster().list_versioned(kinds.POD, "a")
    with pytest.raises(ClusterError, match="which is not an event") as caught:
        next(server.cluster().watch(kinds.POD, "a", version=version))
    assert (caught.value.reason, caught.value.retryable) == ("BrokenStream", True)


def test_a_silent_stream_is_read_again(server: WatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_cluster, "SILENCE_S", 0.3)
    with Watched(server) as watched:
        server.silent.set()
        server.fake.put(pod("one", 5))
        time.sleep(0.5)
        assert watched.step("one") in (0, 5)
        server.silent.clear()
        until(lambda: watched.reported() == [0, 5])
    assert server.count("watch=1") >= 2


def test_bookmarks_move_the_version_on(server: WatchServer) -> None:
    with Watched(server) as watched:
        server.fake.put({**pod("x"), "metadata": {"name": "x", "namespace": "a", "labels": {}}})
        server.fake.send_bookmarks()
        time.sleep(0.1)
        server.fake.end_watches()
        until(lambda: server.count("watch=1") == 2)
        until(watched.synced)
    assert "resourceVersion=2&" in server.asked[-1]


@pytest.mark.parametrize("in_stream", [True, False])
def test_a_version_that_is_too_old_means_a_new_list(server: WatchServer, in_stream: bool) -> None:
    server.fake.put(pod("gone"))
    with Watched(server) as watched:
        server.fake.put(pod("one", 1))
        until(lambda: watched.step("one") == 1)
        if not in_stream:
            server.stop()
        server.silent.set()
        server.fake.remove(kinds.POD, "a", "gone")
        server.fake.put(pod("one", 2))
        server.fake.put(pod("new"))
        server.fake.forget_history()
        server.silent.clear()
        if in_stream:
            # The stream learns it when it continues.
            server.fake.put(pod("one", 3))
        else:
            server.start()
        until(lambda: [change for change in watched.changes if change.type == "DELETED"])
        until(watched.synced)
        assert (watched.step("new"), watched.step("gone")) == (0, None)
        assert watched.step("one") == (3 if in_stream else 2)
        deleted = [change for change in watched.changes if change.type == "DELETED"]
        assert [change.object["metadata"]["name"] for change in deleted] == ["gone"]
        assert deleted[0].object == deleted[0].previous
    assert server.count("limit=500") == 2


def test_an_api_server_that_goes_and_comes_back_is_two_lines(
    server: WatchServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Watched(server) as watched:
        server.stop()
        until(lambda: watched.cluster.is_away)
        assert not watched.synced()
        with pytest.raises(ClusterError, match="cannot be reached"):
            watched.cluster.get(kinds.POD, "a", "one")
        server.fake.put(pod("one", 4))
        time.sleep(0.5)
        server.start()
        until(watched.synced)
        until(lambda: watched.step("one") == 4)
        assert not watched.cluster.is_away
    away, back = caplog.messages
    assert "cannot be reached" in away
    assert "watching stopped and goes on when the cluster answers" in away
    assert "answers again" in back


def test_stop_ends_a_watch_that_waits_for_events_or_for_an_answer(server: WatchServer) -> None:
    with Watched(server) as watched:
        started = time.monotonic()
        watched.cluster.stop()
        assert time.monotonic() - started < 1.0
        server.fake.put(pod("one", 9))
        time.sleep(0.1)
        assert watched.reported() == [0]
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("watch ")]
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)


def test_thousands_of_events_at_once_are_all_taken_and_keep_no_memory(server: WatchServer) -> None:
    with Watched(server) as watched:
        burst(server, watched, 1)
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        started = time.monotonic()
        burst(server, watched, 3_000)
        took_s = time.monotonic() - started
        watched.changes.clear()
        server.fake.forget_history()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert watched.step("one") == 3_000
    assert took_s < 60
    assert after - before < 1_000_000
    assert server.count("limit=500") == 1


def burst(server: WatchServer, watched: Watched, count: int) -> None:
    watched.changes.clear()
    for number in range(1, count + 1):
        server.fake.put(pod("one", number, containers=[{"name": "c", "command": ["x" * 200]}]))
    until(lambda: len(watched.changes) == count, 60)


def test_a_refusal_of_an_open_watch_has_the_reason_of_the_status(server: WatchServer) -> None:
    cluster = server.cluster()
    server.fake.denied.add(("watch", kinds.POD))
    with pytest.raises(ClusterError, match="cannot watch pods") as caught:
        cluster.watch(kinds.POD, "a", version="1")
    assert caught.value.reason == "Forbidden"
    server.fake.denied.clear()
    server.fake.forget_history()
    with pytest.raises(ClusterError, match="too old") as caught:
        cluster.watch(kinds.POD, "a", version="1")
    assert caught.value.reason == EXPIRED


def test_more_watches_than_kept_connections_cause_no_warning(
    server: WatchServer, caplog: pytest.LogCaptureFixture
) -> None:
    namespaces = [f"n{number}" for number in range(80)]
    watched = WatchedCluster(
        server.cluster(), [(kinds.POD, None)], namespaces=namespaces, changed=lambda _: None, timing=QUICK
    )
    watched.start()
    until(lambda: all(watched.is_synced(kinds.POD, namespace) for namespace in namespaces), 30)
    server.fake.end_watches()
    until(lambda: server.count("watch=1") >= 160, 30)
    watched.stop()
    assert caplog.messages == []
