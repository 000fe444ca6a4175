"""One of several controllers holds the Lease: by the rules of client-go, with a clock that the test sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
import yaml
from torchx_pulumi.kube.kinds import LEASE
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi_fleet.tracker.reporting import Reporter
from torchx_pulumi_fleet.writer.election import LeaseElection, new_identity

from tests.doc_blocks import block
from tests.fakes import FakeCluster
from tests.fleet.writer.world import wait_for

AWAY = ClusterError("the cluster cannot be reached", retryable=True, reason="Unreachable")
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUICK = {"duration_s": 1.0, "renew_deadline_s": 0.15, "retry_s": 0.02}


class Hall:
    """A cluster, a clock, and processes that want its Lease."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.now_s = 1000.0
        self.lines: list[str] = []

    def process(self, name: str, *, ahead_s: float = 0.0) -> LeaseElection:
        """Return a process whose clocks run ahead of those of others."""
        return LeaseElection(
            self.cluster,
            "ops",
            "controller",
            identity=name,
            reporter=Reporter(self.lines.append),
            changed=lambda _: None,
            clock=lambda: self.now_s + ahead_s,
            now=lambda: datetime.fromtimestamp(BEGIN.timestamp() + self.now_s + ahead_s, timezone.utc),
        )

    @property
    def spec(self) -> Any:
        found = self.cluster.find(LEASE, "ops", "controller")
        return found and found["spec"]


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Hall:
    monkeypatch.setattr("random.random", lambda: 0.5)
    return Hall()


def test_the_first_one_leads_and_writes_what_kubectl_shows(hall: Hall) -> None:
    one = hall.process("one")
    assert not one.is_leading
    assert one._attempt() == 2.0
    assert one.is_leading
    assert hall.spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:16:40.000000Z",
        "renewTime": "2026-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }
    hall.now_s += 2.25
    one._attempt()
    assert hall.spec["acquireTime"] == "2026-01-01T00:16:40.000000Z"
    assert hall.spec["renewTime"] == "2026-01-01T00:16:42.250000Z"
    assert hall.spec["leaseTransitions"] == 0


@pytest.mark.parametrize("ahead_s", [0.0, 86400.0, -86400.0])
def test_another_one_leads_only_after_the_lease_was_not_renewed_for_its_duration(hall: Hall, ahead_s: float) -> None:
    one, two = hall.process("one"), hall.process("two", ahead_s=ahead_s)
    one._attempt()
    for _ in range(20):
        hall.now_s += 2.0
        one._attempt()
        assert two._attempt() == pytest.approx(2.2)
        assert one.is_leading
        assert not two.is_leading
    hall.now_s += 9.9
    assert one.is_leading
    hall.now_s += 0.2
    assert not one.is_leading, "it stops before another one begins"
    two._attempt()
    assert not two.is_leading
    hall.now_s += 4.8
    # The next attempt is when the Lease ends, not a whole pause later.
    assert two._attempt() == pytest.approx(0.15)
    hall.now_s += 0.15
    two._attempt()
    assert two.is_leading
    assert (hall.spec["holderIdentity"], hall.spec["leaseTransitions"]) == ("two", 1)
    one._attempt()
    one._attempt()
    assert not one.is_leading
    assert hall.spec["holderIdentity"] == "two"


def test_of_two_that_take_a_lease_at_once_one_leads(hall: Hall) -> None:
    one, two = hall.process("one"), hall.process("two")
    read = hall.cluster.get

    def late(*place: Any) -> Any:
        found = read(*place)
        hall.cluster.get = read  # type: ignore[method-assign]
        two._attempt()
        return found

    hall.cluster.get = late  # type: ignore[method-assign,assignment]
    one._attempt()
    assert (one.is_leading, two.is_leading) == (False, True)
    hall.now_s += 20
    hall.cluster.get = late  # type: ignore[method-assign,assignment]
    one._attempt()
    assert (one.is_leading, two.is_leading) == (False, True)
    assert not hall.lines, "losing a race is no problem"


def test_a_leader_without_an_api_server_stands_by_and_leads_again_when_it_answers(hall: Hall) -> None:
    one = hall.process("one")
    one._attempt()
    hall.cluster.error = AWAY
    for _ in range(6):
        hall.now_s += 2.0
        one._attempt()
    assert not one.is_leading
    assert len([line for line in hall.lines if "cannot be reached" in line]) == 1
    hall.cluster.error = None
    one._attempt()
    assert one.is_leading
    assert hall.spec["leaseTransitions"] == 0
    assert "read and written again" in hall.lines[-1]


def test_a_lease_that_is_deleted_or_empty_is_taken(hall: Hall) -> None:
    one = hall.process("one")
    one._attempt()
    hall.cluster.remove(LEASE, "ops", "controller")
    hall.now_s += 2
    one._attempt()
    one._attempt()
    assert one.is_leading
    assert hall.spec["holderIdentity"] == "one"
    empty = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": {"name": "controller", "namespace": "ops"}}
    hall.cluster.put({**empty, "metadata": {**empty["metadata"], "labels": {"a": "b"}}})
    two = hall.process("two")
    two._attempt()
    assert two.is_leading
    found = hall.cluster.find(LEASE, "ops", "controller")
    assert found is not None
    assert found["metadata"]["labels"] == {"a": "b"}


def test_a_missing_permission_is_one_line_that_says_which_lease(hall: Hall) -> None:
    hall.cluster.denied.add(("get", LEASE))
    one = hall.process("one")
    for _ in range(3):
        one._attempt()
    assert len(hall.lines) == 1
    assert "Lease ops/controller cannot be read and written" in hall.lines[0]


def test_the_documented_role_has_the_verbs_that_are_used_and_no_others(hall: Hall) -> None:
    used: set[str] = set()
    check = hall.cluster._check_allowed

    def note(verb: str, *about: Any) -> None:
        used.add(verb)
        check(verb, *about)

    hall.cluster._check_allowed = note  # type: ignore[method-assign,assignment]
    one = hall.process("one")
    one._attempt()
    hall.now_s += 20
    two = hall.process("two")
    two._attempt()
    hall.now_s += 20
    two._attempt()
    two._release()
    rules = yaml.safe_load(block("docs/permissions.md", "electing"))["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == used
    # A rule for a name does not hold for the request that makes the object.
    assert [rule["verbs"] for rule in rules if "resourceNames" not in rule] == [["create"]]
    assert {tuple(rule["apiGroups"] + rule["resources"]) for rule in rules} == {(LEASE.group, LEASE.plural)}


class Running:
    """A process in threads."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.told: list[bool] = []
        self.lines: list[str] = []
        self.election = LeaseElection(
            cluster,
            "ops",
            "controller",
            identity=name,
            reporter=Reporter(self.lines.append),
            changed=self.told.append,
            **QUICK,
        )
        self.election.start()


@pytest.fixture
def started() -> Iterator[list[Running]]:
    running: list[Running] = []
    yield running
    for one in running:
        one.election.stop()


def test_a_lease_that_is_given_back_is_taken_at_the_next_attempt(started: list[Running]) -> None:
    cluster = FakeCluster()
    one = Running(cluster, "one")
    started.append(one)
    wait_for(lambda: one.told == [True])
    two = Running(cluster, "two")
    started.append(two)
    wait_for(lambda: any("one holds Lease ops/controller" in line for line in two.lines))
    assert not two.election.is_leading
    one.election.stop()
    assert not one.election.is_leading
    wait_for(lambda: two.told == [True], 0.9)
    found = cluster.find(LEASE, "ops", "controller")
    assert found is not None
    assert found["spec"]["leaseTransitions"] == 1


def test_a_request_that_hangs_does_not_keep_the_lead(started: list[Running]) -> None:
    cluster, answers = FakeCluster(), threading.Event()
    one = Running(cluster, "one")
    started.append(one)
    wait_for(lambda: one.told == [True])
    replace = cluster.replace

    def hang(*request: Any) -> Any:
        answers.wait(10)
        return replace(*request)

    cluster.replace = hang  # type: ignore[method-assign,assignment]
    try:
        # On a busy machine it may have lost the lead before.
        wait_for(lambda: one.told[-1] is False)
        assert not one.election.is_leading
    finally:
        answers.set()
    wait_for(lambda: one.told[-1] is True)


def test_processes_have_different_names() -> None:
    assert new_identity() != new_identity()
