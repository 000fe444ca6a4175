"""A watch of one kind and a watched cluster, against a cluster in memory: relists, refusals, waits, shared answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import EXPIRED
from torchx_pulumi.model.documentation import page
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.watch import object_watch
from torchx_pulumi_fleet.watch.object_watch import Change, ObjectWatch, Outages, WatchTiming
from torchx_pulumi_fleet.watch.watched_cluster import WatchedCluster

from tests.fakes import FakeCluster

QUICK = WatchTiming(first_s=0.02, longest_s=0.1, forbidden_s=0.1, not_served_s=0.05, settled_s=0.02)
NOBODYS = Kind(group="nobody.example.com", version="v1", kind="Thing", plural="things")


def made(name: str, kind: Kind = kinds.POD, *, uid: str | None = None, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "a", "uid": uid or f"uid-{name}", "labels": {"mine": "yes"}}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **more}


def until(what: Callable[[], Any], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Counting(FakeCluster):
    """Counts lists, watches and reads, and may wait before it answers."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked: list[str] = []
        self.gate: threading.Event | None = None
        self.defects = 0

    def list_versioned(self, kind: Kind, *args: Any, **more: Any) -> Any:
        self.asked.append(f"list {kind.kind}")
        if self.gate is not None:
            self.gate.wait(10)
        if self.defects:
            self.defects -= 1
            raise KeyError("a defect")
        return super().list_versioned(kind, *args, **more)

    def watch(self, kind: Kind, *args: Any, **more: Any) -> Any:
        self.asked.append(f"watch {kind.kind}")
        return super().watch(kind, *args, **more)

    def get(self, kind: Kind, *args: Any) -> Any:
        self.asked.append(f"get {kind.kind}")
        return super().get(kind, *args)


class Watched:
    """A started watched cluster with its changes."""

    def __init__(self, fake: FakeCluster, *selected: Any, namespaces: Any = None, **more: Any) -> None:
        self.changes: list[Change] = []
        self.fake = fake
        self.cluster = WatchedCluster(
            fake,
            selected or [(kinds.POD, {"mine": None})],
            namespaces=namespaces,
            changed=self.changes.append,
            **{"timing": QUICK, **more},
        )

    def __enter__(self) -> Watched:
        self.cluster.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.cluster.stop()

    def synced(self, kind: Kind = kinds.POD) -> bool:
        return self.cluster.is_synced(kind, "a")

    def told(self) -> list[tuple[str, str]]:
        return [(change.type, change.object["metadata"]["uid"]) for change in self.changes]


def test_changes_have_the_object_and_the_one_before() -> None:
    with Watched(FakeCluster([made("x")])) as watched:
        until(watched.synced)
        watched.fake.put(made("x", status={"phase": "Running"}))
        watched.fake.remove(kinds.POD, "a", "x")
        until(lambda: len(watched.changes) == 3)
    added, modified, deleted = watched.changes
    assert (added.kind, added.previous) == (kinds.POD, None)
    assert modified.previous is added.object
    assert modified.object["status"] == {"phase": "Running"}
    assert deleted.previous is modified.object
    assert deleted.object["status"] == {"phase": "Running"}


def test_an_object_that_loses_its_labels_is_deleted() -> None:
    with Watched(FakeCluster([made("x")])) as watched:
        until(watched.synced)
        other = made("x")
        other["metadata"]["labels"] = {}
        watched.fake.put(other)
        until(lambda: len(watched.changes) == 2)
        assert watched.changes[1].type == "DELETED"
        assert watched.cluster.list(kinds.POD, None, {"mine": None}) == []


def test_a_new_object_of_the_same_name_is_two_changes() -> None:
    with Watched(FakeCluster([made("x", uid="old")])) as watched:
        until(watched.synced)
        watched.fake.error = ClusterError("down", retryable=True, reason="Unreachable")
        watched.fake.remove(kinds.POD, "a", "x")
        watched.fake.put(made("x", uid="new"))
        watched.fake.forget_history()
        watched.fake.error = None
        until(lambda: len(watched.changes) == 3)
        assert watched.told() == [("ADDED", "old"), ("DELETED", "old"), ("ADDED", "new")]
        watched.fake.put(made("x", uid="newer"))
        until(lambda: len(watched.changes) == 5)


def test_what_did_not_change_is_not_reported_by_a_new_list() -> None:
    with Watched(Counting([made("x"), made("y")])) as watched:
        until(watched.synced)
        watched.fake.forget_history()
        watched.fake.end_watches()
        until(lambda: watched.fake.asked.count("list Pod") == 2)
        watched.fake.put(made("z"))
        until(lambda: len(watched.changes) == 3)
        assert watched.told() == [("ADDED", "uid-x"), ("ADDED", "uid-y"), ("ADDED", "uid-z")]


@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_missing_permission_is_one_line_and_the_other_kinds_work(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    fake = Counting([made("x"), made("s", kinds.SERVICE)], denied=[(verb, kinds.SERVICE)])
    with Watched(fake, (kinds.POD, None), (kinds.SERVICE, None)) as watched:
        until(watched.synced)
        until(lambda: fake.asked.count(f"{verb} Service") >= 3)
        assert not watched.synced(kinds.SERVICE)
        found = watched.cluster.get(kinds.SERVICE, "a", "s")
        assert found is not None
        (line,) = caplog.messages
        assert line.startswith(
            "no permission to list and watch services in all namespaces at the cluster at https://fake"
        )
        assert line.endswith(f"at most every 30 s ({page('permissions')})")
        assert watched.cluster.problems() == (line,)
        pods, services = watched.cluster.watches
        assert (pods.lag_s, services.is_served) == (0.0, True)
        assert services.lag_s > 0
        fake.denied.clear()
        until(lambda: watched.synced(kinds.SERVICE))
        assert (services.lag_s, watched.cluster.problems()) == (0.0, ())
        assert caplog.messages[1].startswith("services in all namespaces at the cluster at https://fake")
        assert not watched.cluster.is_away


def test_versions_of_a_kind_that_may_not_be_watched_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    versions = [replace(NOBODYS, version=version) for version in ("v1", "v2")]
    fake = Counting([made("x")], denied=[("list", version) for version in versions])
    fake.served.update(versions)
    with Watched(fake, (kinds.POD, None), *((version, None) for version in versions)) as watched:
        until(watched.synced)
        until(lambda: fake.asked.count("list Thing") >= 4)
        (line,) = caplog.messages
        assert line.startswith("no permission to list and watch things.")


def test_a_kind_that_is_not_served_is_watched_once_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fake = Counting([made("x")])
    with Watched(fake, (kinds.POD, None), (NOBODYS, None)) as watched:
        until(watched.synced)
        until(lambda: fake.asked.count("list Thing") >= 3)
        assert not watched.synced(NOBODYS)
        (line,) = caplog.messages
        assert "does not serve Thing" in line
        assert "install" not in line
        things = watched.cluster.watches[1]
        assert (things.is_served, watched.cluster.problems()) == (False, ())
        fake.served.add(NOBODYS)
        until(lambda: watched.synced(NOBODYS))
        assert things.is_served
        fake.put(made("t", NOBODYS))
        until(lambda: watched.cluster.get(NOBODYS, "a", "t"))


def test_a_cluster_that_goes_is_one_line_and_one_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    with Watched(FakeCluster([made("x")]), (kinds.POD, None), (kinds.SERVICE, None), (kinds.EVENT, None)) as watched:
        selected = (kinds.POD, kinds.SERVICE, kinds.EVENT)
        for _ in range(2):
            until(lambda: all(map(watched.synced, selected)))
            assert not watched.cluster.is_away
            watched.fake.error = ClusterError("it cannot be reached", retryable=True, reason="Unreachable")
            until(lambda: watched.cluster.is_away and not any(map(watched.synced, selected)))
            assert len(watched.cluster.problems()) == 1
            time.sleep(0.2)
            watched.fake.error = None
        until(lambda: all(map(watched.synced, selected)))
    away = "it cannot be reached; watching stopped and goes on when the cluster answers"
    back = "the cluster at https://fake.example.com answers again: watching goes on"
    assert caplog.messages == [away, back] * 2


@pytest.mark.parametrize("reason", ["InternalError", EXPIRED])
def test_an_error_of_one_kind_names_it(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    class Failing(FakeCluster):
        broken = True

        def list_versioned(self, kind: Kind, *args: Any, **more: Any) -> Any:
            if kind == kinds.SERVICE and self.broken:
                raise ClusterError("the request failed", retryable=True, reason=reason)
            return super().list_versioned(kind, *args, **more)

    fake = Failing([made("x")])
    with Watched(fake, (kinds.POD, None), (kinds.SERVICE, None)) as watched:
        until(watched.synced)
        time.sleep(0.2)
        assert not watched.cluster.is_away
        fake.broken = False
        until(lambda: watched.synced(kinds.SERVICE))
    assert [line.split(";")[0] for line in caplog.messages] == [
        "the request failed",
        "services in all namespaces at the cluster at https://fake.example.com can be watched now",
    ]


def test_a_callback_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def changed(change: Change) -> None:
        seen.append(change)
        raise ValueError("a defect")

    fake = FakeCluster([made("x"), made("y")])
    watch = ObjectWatch(fake, kinds.POD, "a", None, changed=changed, outages=Outages("it"), timing=QUICK)
    watch.start()
    until(lambda: len(seen) == 2 and watch.synced)
    watch.stop()
    assert [record.message for record in caplog.records] == [
        "a change of pods in namespace a (a/x) could not be handled",
        "a change of pods in namespace a (a/y) could not be handled",
    ]
    assert watch.store.all_keys() == {("a", "x"), ("a", "y")}


def test_a_defect_is_logged_once_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    fake = Counting([made("x")])
    fake.defects = 3
    with Watched(fake) as watched:
        until(watched.synced)
        assert watched.told() == [("ADDED", "uid-x")]
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.message == "the watch of pods in all namespaces failed and is started again"


def test_streams_that_always_end_at_once_are_asked_for_with_pauses(caplog: pytest.LogCaptureFixture) -> None:
    timing = WatchTiming(first_s=0.02, longest_s=0.1, settled_s=60)

    class Ending(Counting):
        def watch(self, *args: Any, **more: Any) -> Any:
            events = super().watch(*args, **more)
            events.close()
            return events

    with Watched(Ending([made("x")]), timing=timing) as watched:
        time.sleep(0.6)
        assert 4 < watched.fake.asked.count("watch Pod") < 40
    assert watched.fake.asked.count("list Pod") == 1
    (line,) = caplog.messages
    assert line.startswith("the watch of pods in all namespaces ends again and again after 0 s")


@pytest.mark.parametrize(("share", "expected"), [(0.0, [0.5, 1, 2, 4, 30, 30]), (1.0, [1, 2, 4, 8, 60, 60])])
def test_waits_double_up_to_a_minute_and_are_spread(share: float, expected: list[float]) -> None:
    timing = WatchTiming(share=lambda: share)
    assert [timing.wait_s(failures) for failures in (1, 2, 3, 4, 10, 10_000)] == expected


def test_stop_returns_while_a_request_is_under_way() -> None:
    fake = Counting([made("x")])
    fake.gate = threading.Event()
    watched = Watched(fake)
    watched.cluster.start()
    until(lambda: fake.asked)
    started = time.monotonic()
    watched.cluster.stop()
    assert time.monotonic() - started < object_watch.STOP_S + 0.3
    fake.gate.set()
    time.sleep(0.1)
    assert watched.changes == []
    assert not watched.synced()


def test_stop_may_be_called_twice_from_a_callback_and_before_the_start() -> None:
    fake = FakeCluster([made("x")])
    cluster = WatchedCluster(fake, [(kinds.POD, None)], namespaces=None, changed=lambda _: cluster.stop(), timing=QUICK)
    Watched(fake).cluster.stop()
    cluster.start()
    time.sleep(0.1)
    cluster.stop()
    cluster.stop()


def test_watched_kinds_cost_no_request_and_others_one_in_30_seconds() -> None:
    now = 1000.0
    timing = WatchTiming(monotonic=lambda: now, settled_s=0)
    event = made("e", kinds.EVENT, involvedObject={"name": "x"})
    fake = Counting([made("x"), made("s", kinds.SERVICE), event])
    with Watched(fake, (kinds.POD, {"mine": None}), (kinds.EVENT, None), timing=timing) as watched:
        until(lambda: watched.synced() and watched.synced(kinds.EVENT))
        fake.asked.clear()
        cluster = watched.cluster
        for _ in range(3):
            assert cluster.get(kinds.POD, "a", "x")
            assert cluster.get(kinds.POD, "a", "absent") is None
            assert len(cluster.list(kinds.POD, "a", {"mine": "yes"})) == 1
            assert len(cluster.events("a", {"x"})) == 1
        assert fake.asked == []
        for _ in range(3):
            assert cluster.get(kinds.SERVICE, "a", "s")
            assert len(cluster.list(kinds.SERVICE, "a")) == 1
            # Pods without the label of the watch are asked for.
            assert len(cluster.list(kinds.POD, "a")) == 1
        assert fake.asked == ["get Service", "list Service", "list Pod"]
        now += 31
        assert cluster.get(kinds.SERVICE, "a", "s")
        assert fake.asked[3:] == ["get Service"]


def test_a_kind_that_is_watched_whole_is_listed_once_for_all_labels_before_its_watch() -> None:
    other = made("y")
    other["metadata"]["labels"] = {"mine": "no"}
    fake = Counting([made("x"), other])
    cluster = Watched(fake, (kinds.POD, None), timing=WatchTiming()).cluster
    found = [cluster.list(kinds.POD, "a", {"mine": value}) for value in ("yes", "no", "other")]
    assert [[one["metadata"]["name"] for one in each] for each in found] == [["x"], ["y"], []]
    assert fake.asked == ["list Pod"]
    assert len(cluster.with_fresh(kinds.POD).list(kinds.POD, "a", {"mine": "no"})) == 1
    assert fake.asked == ["list Pod"] * 2


def test_events_that_are_not_watched_are_listed_once_for_all_objects() -> None:
    events = [made(f"e{number}", kinds.EVENT, involvedObject={"name": f"p{number % 2}"}) for number in range(4)]
    fake = Counting([made("x"), *events], denied=[("watch", kinds.EVENT)])
    with Watched(fake, (kinds.POD, None), (kinds.EVENT, None), timing=WatchTiming()) as watched:
        until(watched.synced)
        fake.asked.clear()
        assert [one["metadata"]["name"] for one in watched.cluster.events("a", {"p0"})] == ["e0", "e2"]
        assert [one["metadata"]["name"] for one in watched.cluster.events("a", {"p1"})] == ["e1", "e3"]
        assert fake.asked.count("list Event") == 1


def test_threads_that_ask_the_same_share_one_request() -> None:
    fake = Counting([made("n", kinds.NODE)])
    cluster = Watched(fake).cluster
    fake.gate = threading.Event()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(cluster.list(kinds.NODE, None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: fake.asked)
    time.sleep(0.05)
    fake.gate.set()
    for thread in threads:
        thread.join(5)
    assert fake.asked == ["list Node"]
    assert len(found) == 8
    assert all(one is found[0] for one in found)


def test_an_error_is_not_kept() -> None:
    fake = FakeCluster([made("s", kinds.SERVICE)], error=ClusterError("down", retryable=True))
    cluster = Watched(fake).cluster
    with pytest.raises(ClusterError, match="down"):
        cluster.get(kinds.SERVICE, "a", "s")
    fake.error = None
    assert cluster.get(kinds.SERVICE, "a", "s")


def test_answers_that_are_too_old_are_dropped() -> None:
    now = 1000.0
    cluster = Watched(FakeCluster(), timing=WatchTiming(monotonic=lambda: now)).cluster
    for number in range(5000):
        cluster.get(kinds.SERVICE, "a", f"s{number}")
        now += 0.5
    assert len(cluster._answers) < 500


def test_each_namespace_is_watched_by_itself_and_kinds_without_one_once() -> None:
    elsewhere = made("x")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    fake = Counting([made("x"), elsewhere, made("n", kinds.NODE)], readable=["a", "b"])
    with Watched(fake, (kinds.POD, {"mine": None}), (kinds.NODE, None), namespaces=["a", "b"]) as watched:
        until(lambda: watched.synced() and watched.cluster.is_synced(kinds.POD, "b"))
        until(lambda: watched.cluster.is_synced(kinds.NODE, None))
        assert fake.asked.count("watch Node") == 1
        assert len(watched.cluster.list(kinds.POD, "a", {"mine": None})) == 1
        assert not watched.cluster.is_synced(kinds.POD, "elsewhere")
        assert not watched.cluster.is_synced(kinds.POD, None)
        assert watched.cluster.get(kinds.POD, "elsewhere", "x")
        assert fake.asked[-1] == "get Pod"


def test_the_rest_is_passed_on() -> None:
    fake = FakeCluster([made("x")], logs={("a", "x"): ["one", "two"]})
    cluster = Watched(fake).cluster
    assert cluster.origin is fake
    assert cluster.serves(kinds.POD)
    assert cluster.identify() == fake.identify()
    assert [*cluster.logs("a", "x", tail_lines=1, since=datetime(2020, 1, 1, tzinfo=timezone.utc))] == ["two"]


def test_many_watched_pods_have_rows_that_are_made_again_for_those_that_change() -> None:
    fake = Counting([made(f"p{number}", status={"phase": "Running"}) for number in range(4)])
    with Watched(fake, (kinds.POD, {"mine": None})) as watched:
        until(watched.synced)
        fake.asked.clear()
        few = watched.cluster.list_pods("a", {"mine": "yes"}, whole=4)
        assert (len(few.pods), few.rows) == (4, None)
        before = watched.cluster.list_pods("a", {"mine": "yes"}, whole=1)
        assert len(before.pods) == 1
        assert [(row.name, row.phase) for row in before.rows or ()] == [
            (f"p{number}", "Running") for number in range(4)
        ]
        fake.put(made("p2", status={"phase": "Failed"}))
        failed = {"whole": 0, "phase": "Failed"}
        until(lambda: bool(watched.cluster.list_pods("a", {"mine": "yes"}, **failed).rows))
        after = watched.cluster.list_pods("a", {"mine": "yes"}, whole=1)
        same = [one is other for one, other in zip(before.rows or (), after.rows or (), strict=True)]
        assert same == [True, True, False, True]
        assert fake.asked == []
