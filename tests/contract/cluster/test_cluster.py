"""What every cluster answers to who reads it: the fakes, also that for programs, and the real one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest
from torchx_pulumi import testing
from torchx_pulumi.kube import PodReader, kinds
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.model.cluster_identity import HOME_NAMESPACE, Match, compare
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_POD_GROUP, VOLCANO_QUEUE

from tests.contract.cluster.conftest import LINES, World, objects_of_fakes
from tests.fakes import FakeCluster

NOBODYS = Kind(group="nobody.example.com", version="v1", kind="Thing", plural="things")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A cluster that is read, and the namespace with the three pods."""

    cluster: PodReader
    namespace: str


@pytest.fixture(params=["for programs", "fake", pytest.param("real", marks=pytest.mark.e2e)])
def world(request: pytest.FixtureRequest) -> Iterator[Read]:
    if request.param == "real":
        real: World = request.getfixturevalue("real_world")
        yield Read(cluster=real.cluster, namespace=real.namespace)
        return
    kind = testing.FakeCluster if request.param == "for programs" else FakeCluster
    yield Read(cluster=kind(objects_of_fakes(), logs={("here", "a"): LINES}), namespace="here")


def names(found: list[dict[str, dict[str, str]]]) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in found]


def test_an_object_comes_whole(world: Read) -> None:
    found = world.cluster.get(kinds.POD, world.namespace, "a")
    assert found is not None
    assert (found["apiVersion"], found["kind"]) == ("v1", "Pod")
    assert found["metadata"]["namespace"] == world.namespace
    assert found["spec"]["containers"][0]["name"] == "main"


def test_an_absent_object_is_none(world: Read) -> None:
    assert world.cluster.get(kinds.POD, world.namespace, "nobody") is None
    assert world.cluster.get(kinds.POD, "no-such-namespace", "a") is None
    assert world.cluster.get(VOLCANO_JOB, world.namespace, "nobody") is None


def test_an_object_without_a_namespace_is_found(world: Read) -> None:
    found = world.cluster.get(kinds.NAMESPACE, None, world.namespace)
    assert found is not None
    assert found["kind"] == "Namespace"


def test_a_list_is_by_name_and_its_items_are_whole(world: Read) -> None:
    found = world.cluster.list(kinds.POD, world.namespace)
    assert names(found) == ["a", "b", "c"]
    assert {(item["apiVersion"], item["kind"]) for item in found} == {("v1", "Pod")}


def test_a_selector_wants_every_label(world: Read) -> None:
    assert names(world.cluster.list(kinds.POD, world.namespace, {"app": "x"})) == ["a", "b"]
    assert names(world.cluster.list(kinds.POD, world.namespace, {"app": "x", "n": "1"})) == ["b"]
    assert world.cluster.list(kinds.POD, world.namespace, {"app": "z"}) == []


def test_few_pods_are_listed_as_a_whole(world: Read) -> None:
    found = world.cluster.list_pods(world.namespace, {"app": "x"}, whole=2)
    assert (names([*found.pods]), found.rows) == (["a", "b"], None)
    assert found.pods[0]["spec"]["containers"][0]["name"] == "main"
    assert "command" not in found.pods[0]["spec"]["containers"][0]
    assert world.cluster.list_pods(world.namespace, {"app": "x"}).rows is None


def test_of_many_pods_all_are_listed_in_short(world: Read) -> None:
    found = world.cluster.list_pods(world.namespace, {"app": "x"}, whole=1)
    assert names([*found.pods]) == ["a"]
    assert found.rows is not None
    assert [row.name for row in found.rows] == ["a", "b"]
    assert {(row.containers, row.restarts, row.phase) for row in found.rows} == {(1, 0, None)}
    whole = {pod["metadata"]["name"]: pod for pod in world.cluster.list(kinds.POD, world.namespace)}
    for row in found.rows:
        pod = whole[row.name]
        assert row.node == pod["spec"].get("nodeName")
        assert row.status in ("Completed", "Running", "Pending", "ContainerCreating", "Succeeded")


def test_pods_are_listed_in_short_alone(world: Read) -> None:
    found = world.cluster.list_pods(world.namespace, {"app": "x"}, whole=0)
    assert [row.name for row in found.rows or ()] == ["a", "b"]
    assert not found.pods
    assert world.cluster.list_pods(world.namespace, {"app": "z"}, whole=0).rows == []


def test_pods_are_listed_by_phase(world: Read) -> None:
    phases = {
        phase: world.cluster.list_pods(world.namespace, {"app": "x"}, whole=0, phase=phase).rows or ()
        for phase in ("Pending", "Running", "Succeeded", "Failed")
    }
    assert {row.phase for row in phases["Failed"]} == set()
    assert all(row.phase == phase for phase, rows in phases.items() for row in rows)
    real = world.cluster.get(kinds.POD, world.namespace, "a")
    phase = ((real or {}).get("status") or {}).get("phase")
    assert phase is None or "a" in [row.name for row in phases[phase]]


def test_a_list_without_a_namespace_covers_all(world: Read) -> None:
    found = world.cluster.list(kinds.POD, None, {"app": "y"})
    assert (world.namespace, "c") in {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in found}


def test_a_returned_object_is_the_callers_own(world: Read) -> None:
    found = world.cluster.get(kinds.POD, world.namespace, "a")
    assert found is not None
    found["metadata"]["labels"]["app"] = "changed"
    again = world.cluster.get(kinds.POD, world.namespace, "a")
    assert again is not None
    assert again["metadata"]["labels"]["app"] == "x"


def test_a_cluster_is_itself_by_the_uid_of_its_home_namespace(world: Read) -> None:
    home = world.cluster.get(kinds.NAMESPACE, None, HOME_NAMESPACE)
    identity = world.cluster.identify()
    assert home is not None
    assert identity.uid == home["metadata"]["uid"]
    assert compare(identity, world.cluster.identify()) is Match.SAME


@pytest.mark.parametrize("kind", [kinds.POD, VOLCANO_JOB, VOLCANO_QUEUE, VOLCANO_POD_GROUP])
def test_served_kinds_are_known(world: Read, kind: Kind) -> None:
    assert world.cluster.serves(kind)


def test_a_kind_that_nobody_defines_is_not_served_and_is_named(world: Read) -> None:
    assert not world.cluster.serves(NOBODYS)
    with pytest.raises(ClusterError, match=r"does not serve Thing \(nobody.example.com/v1\)") as caught:
        world.cluster.get(NOBODYS, "default", "x")
    assert not caught.value.retryable
    with pytest.raises(ClusterError, match="does not serve Thing"):
        world.cluster.list(NOBODYS, "default")


def test_a_log_is_its_lines(world: Read) -> None:
    assert list(world.cluster.logs(world.namespace, "a")) == LINES
    assert list(world.cluster.logs(world.namespace, "a", "main", follow=True)) == LINES


def test_the_end_of_a_log_is_enough(world: Read) -> None:
    assert list(world.cluster.logs(world.namespace, "a", tail_lines=1)) == LINES[-1:]
    assert list(world.cluster.logs(world.namespace, "a", tail_lines=0)) == []


def test_lines_may_carry_their_time(world: Read) -> None:
    (line,) = world.cluster.logs(world.namespace, "a", timestamps=True, tail_lines=1)
    stamp, _, text = line.partition(" ")
    assert (stamp[:2], stamp[-1], text) == ("20", "Z", LINES[-1])


def test_the_log_of_an_absent_pod_is_an_error(world: Read) -> None:
    with pytest.raises(ClusterError, match="nobody"):
        list(world.cluster.logs(world.namespace, "nobody"))


def test_a_previous_run_that_never_was_is_an_error(world: Read) -> None:
    with pytest.raises(ClusterError, match="previous terminated container"):
        list(world.cluster.logs(world.namespace, "a", previous=True))


def test_a_log_may_begin_later_and_end_sooner(world: Read) -> None:
    before, after = datetime(2020, 1, 1, tzinfo=timezone.utc), datetime.now(timezone.utc) + timedelta(hours=1)
    assert list(world.cluster.logs(world.namespace, "a", since=before)) == LINES
    assert list(world.cluster.logs(world.namespace, "a", since=after)) == []
    assert list(world.cluster.logs(world.namespace, "a", limit_bytes=4)) == LINES[:1]


def test_a_log_that_was_read_to_its_end_says_so(world: Read) -> None:
    lines = world.cluster.logs(world.namespace, "a", keep_ends=True)
    assert not lines.finished
    assert next(lines) == LINES[0] + "\n"
    assert len(list(lines)) == len(LINES) - 1
    assert lines.finished


def test_a_closed_log_gives_no_more_lines(world: Read) -> None:
    lines = world.cluster.logs(world.namespace, "a", follow=True, keep_ends=True)
    assert next(lines) == LINES[0] + "\n"
    lines.close()
    lines.close()
    assert len(list(lines)) < len(LINES)
