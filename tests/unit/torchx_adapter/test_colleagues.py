"""Two users of one backend and one cluster: what one does, the other sees, whatever was known before."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.app_entry import RunEntry, StackRef
from torchx_pulumi.model.errors import ClusterError, DeployError
from torchx_pulumi.model.requested import RequestedAction
from torchx_pulumi.runs.driver import Still
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.volcano.control import VolcanoControl
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.scheduler import PulumiScheduler

from tests.fakes import FakeCluster, FakeDriver

from .conftest import World, app


class RememberingDriver(FakeDriver):
    """Remembers entries as the real driver does for backends that are no folders."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.memory: dict[StackRef, RunEntry] = {}

    def find(self, place: StackRef, still: Still | None = None, *, known: RunEntry | None = None) -> RunEntry | None:
        kept = self.memory.get(place)
        if still is not None and kept is not None and still(kept):
            return kept
        found = super().find(place, known=known)
        if found is not None:
            self.memory[place] = found
        return found


@pytest.fixture
def world(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://state")
    world.driver = RememberingDriver(world.cluster)
    return world


@pytest.fixture
def become(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PulumiScheduler]:
    """Go on as another user of this backend and cluster."""

    def user(name: str) -> PulumiScheduler:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))
        return world.scheduler()

    return user


def test_a_colleague_sees_and_cancels_the_run_that_took_the_place_of_the_one_seen_before(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    info = alice.submit_dryrun(app(), {"queue": "test", "on_running_change": "replace"})
    app_id = alice.schedule(info)
    world.phase(app_id, "Running")
    bob = become("bob")
    assert str(bob.describe(app_id).state) == "RUNNING"

    alice = become("alice")
    assert alice.schedule(info) == app_id
    world.phase(app_id, "Running")
    bob = become("bob")
    assert str(bob.describe(app_id).state) == "RUNNING"
    bob.cancel(app_id)
    head = world.head(app_id)
    assert head is not None
    assert head["status"]["state"]["phase"] == "Aborted"


def test_an_app_in_the_index_is_read_again_where_a_colleague_launched_it_again(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    info = alice.submit_dryrun(app(), {"queue": "test", "on_running_change": "replace"})
    app_id = alice.schedule(info)
    world.phase(app_id, "Running")
    become("bob").cancel(app_id)
    assert RunIndex().find(app_id, "volcano") is not None

    become("alice").schedule(info)
    world.phase(app_id, "Running")
    bob = become("bob")
    assert [str(item.state) for item in bob.list()] == ["RUNNING"]
    assert str(bob.describe(app_id).state) == "RUNNING"
    assert bob.describe_native(app_id) is not None


def test_an_app_that_was_asked_for_before_it_was_launched_can_be_deleted_at_once(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    info = alice.submit_dryrun(app(), {"queue": "test"})
    metadata = info.request.resource["metadata"]
    app_id = f"default:{metadata['name']}"
    bob = become("bob")
    assert bob.describe(app_id) is None
    become("alice").schedule(info)
    become("bob")
    bob.delete(app_id)
    assert world.head(app_id) is None


def test_an_app_that_a_colleague_deleted_is_known_no_more(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    info = alice.submit_dryrun(app(), {"queue": "test"})
    app_id = alice.schedule(info)
    world.phase(app_id, "Running")
    alice.describe(app_id)
    become("bob").delete(app_id)
    alice = become("alice")
    assert alice.describe(app_id) is None
    assert RunIndex().all() == []
    assert alice.schedule(info) == app_id


def test_a_launch_of_what_a_colleague_deleted_is_no_second_launch(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    info = alice.submit_dryrun(app(), {"queue": "test"})
    app_id = alice.schedule(info)
    become("bob").delete(app_id)
    assert become("alice").schedule(info) == app_id
    assert world.head(app_id) is not None


def test_an_end_that_was_seen_outlives_the_deletion_by_a_colleague(
    world: World, become: Callable[[str], PulumiScheduler]
) -> None:
    alice = become("alice")
    app_id = alice.submit(app(), {"queue": "test"})
    world.phase(app_id, "Completed")
    alice.describe(app_id)
    become("bob").delete(app_id)
    assert str(become("alice").describe(app_id).state) == "SUCCEEDED"


def test_a_backend_that_cannot_be_read_makes_nothing_gone(
    world: World, become: Callable[[str], PulumiScheduler], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    alice = become("alice")
    app_id = alice.submit(app(), {"queue": "test"})
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))

    def refuse(*_: Any, **__: Any) -> None:
        raise DeployError("the Pulumi backend s3://state cannot be read")

    monkeypatch.setattr(world.driver, "find", refuse)
    with caplog.at_level(logging.WARNING):
        assert str(alice.describe(app_id).state) == "UNKNOWN"
    assert "cannot be read" in caplog.text
    assert [entry.app_id for entry in RunIndex().all()] == [app_id]


def test_with_rights_in_one_namespace_the_contexts_namespace_is_listed(
    world: World, become: Callable[[str], PulumiScheduler], caplog: Any
) -> None:
    theirs = become("alice").submit(app(), {"queue": "test", "namespace": "team"})
    become("alice").submit(app(), {"queue": "test", "namespace": "closed"})
    world.cluster = limited(world.cluster, namespace="team", readable=["team"])
    with caplog.at_level(logging.WARNING):
        assert [item.app_id for item in become("bob").list()] == [theirs]
    assert caplog.text == ""


def test_a_namespace_that_may_not_be_listed_any_more_is_warned_of_once_and_its_apps_stay_as_last_seen(
    world: World, become: Callable[[str], PulumiScheduler], caplog: Any
) -> None:
    alice = become("alice")
    one, two = (alice.submit(app(), {"queue": "test", "namespace": name, "gang": "pods"}) for name in ("team", "old"))
    world.cluster = limited(world.cluster, namespace="team", readable=["team"])
    with caplog.at_level(logging.WARNING):
        listed = {item.app_id: str(item.state) for item in become("alice").list()}
    assert set(listed) == {one, two}
    assert listed[two] == "UNKNOWN"
    assert caplog.text.count("namespace old is not listed") == 1


@pytest.mark.parametrize("reason", ["Forbidden", "Unauthorized", None])
def test_a_list_that_nobody_answers_is_an_error_and_not_empty(
    world: World, become: Callable[[str], PulumiScheduler], reason: str | None
) -> None:
    world.cluster.error = ClusterError("no answer from the cluster", reason=reason)
    with pytest.raises(ClusterError, match="no answer"):
        become("bob").list()
    with pytest.raises(ClusterError, match="no answer"):
        become("bob").list({"namespace": "team"})


def test_a_list_without_a_kubeconfig_is_an_error_and_not_empty(become: Callable[[str], PulumiScheduler]) -> None:
    def nothing(*_: Any) -> FakeCluster:
        raise ClusterError("no kubeconfig: looked for /none")

    scheduler = become("bob")
    scheduler._context.connect = nothing
    with pytest.raises(ClusterError, match="no kubeconfig"):
        scheduler.list()


def test_a_cluster_without_volcano_runs_nothing_of_it(world: World, become: Callable[[str], PulumiScheduler]) -> None:
    world.cluster = FakeCluster(served=[kinds.POD])
    assert become("bob").list() == []


def test_every_job_is_listed_where_that_is_asked_for(
    world: World, become: Callable[[str], PulumiScheduler], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = become("bob").submit(app(), {"queue": "test"})
    foreign = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "x", "namespace": "a", "uid": "u-x"},
    }
    world.cluster.put({**foreign, "status": {"state": {"phase": "Running"}}})
    scheduler = become("bob")
    assert [item.app_id for item in scheduler.list()] == [mine]
    assert {item.app_id: str(item.state) for item in scheduler.list({"list_all": True})}["a:x"] == "RUNNING"
    (tmp_path / "config").write_text("[pulumi_volcano]\nlist_all = true\n")
    monkeypatch.setenv("TORCHXCONFIG", str(tmp_path / "config"))
    assert len(scheduler.list()) == 2


@pytest.mark.parametrize(
    ("phase", "wanted", "reads"),
    [("Terminated", "CANCELLED", True), ("Failed", "FAILED", False), ("Running", "RUNNING", False)],
)
def test_a_list_has_the_answer_of_status_and_reads_stacks_only_where_a_request_decides(
    world: World,
    become: Callable[[str], PulumiScheduler],
    monkeypatch: pytest.MonkeyPatch,
    phase: str,
    wanted: str,
    reads: bool,
) -> None:
    alice = become("alice")
    app_id = alice.submit(app(), {"queue": "test"})
    world.phase(app_id, "Running")
    alice.cancel(app_id)
    world.phase(app_id, phase)
    read: list[StackRef] = []
    find = world.driver.find

    def counted(place: StackRef, *given: Any, **named: Any) -> RunEntry | None:
        read.append(place)
        return find(place, *given, **named)

    monkeypatch.setattr(world.driver, "find", counted)
    bob = become("bob")
    assert [str(item.state) for item in bob.list()] == [wanted]
    assert bool(read) is reads
    assert str(bob.describe(app_id).state) == wanted
    assert [str(item.state) for item in bob.list()] == [wanted]


def test_a_list_has_the_answer_of_status_for_what_is_about_to_run_again(
    world: World, become: Callable[[str], PulumiScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = become("alice")
    app_id = alice.submit(app(), {"queue": "test"})
    world.phase(app_id, "Running")
    alice.cancel(app_id)
    carol, bob = become("carol"), become("bob")
    assert [str(item.state) for item in bob.list()] == ["CANCELLED"]
    # Its controller has not acted on it yet.
    monkeypatch.setattr(VolcanoControl, "resume", lambda *_: None)
    become("carol")
    carol.resume(app_id)
    for name in ("bob", "alice"):
        user = become(name)
        assert [str(item.state) for item in user.list()] == ["PENDING"]
        assert str(user.describe(app_id).state) == "PENDING"


@pytest.mark.parametrize("lasts", [True, False])
def test_a_list_of_what_was_cancelled_and_is_gone_reads_its_stack_alone(
    world: World, become: Callable[[str], PulumiScheduler], monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    become("alice")
    alice = world.scheduler("mcad")
    app_id = alice.submit(app(), {})
    alice.cancel(app_id)
    assert str(alice.describe(app_id).state) == "CANCELLED"
    monkeypatch.setattr(world.cluster, "get", lambda *given: pytest.fail(f"asked for {given}"))
    if not lasts:
        (stack,) = world.driver.stacks.values()
        stack.outputs["torchx"]["observed"] |= {"state": "SUCCEEDED", "reason": "Completed", "phase": "Completed"}
    assert [str(item.state) for item in alice.list()] == ["CANCELLED" if lasts else "SUCCEEDED"]


def limited(cluster: FakeCluster, **options: Any) -> FakeCluster:
    """Return the cluster as a user with fewer rights sees it."""
    made = FakeCluster(**options)
    made._objects = cluster._objects
    return made


@pytest.mark.parametrize("seen_running", [True, False])
def test_a_job_that_a_colleague_resumed_and_that_failed_has_failed_for_who_cancelled_it(
    world: World, become: Callable[[str], PulumiScheduler], seen_running: bool
) -> None:
    minutes = itertools.count()

    def user(name: str) -> PulumiScheduler:
        become(name)
        return world.scheduler(now=lambda: datetime(2026, 1, 2, tzinfo=timezone.utc) + timedelta(minutes=next(minutes)))

    alice = user("alice")
    app_id = alice.submit(app(), {"queue": "test"})
    world.phase(app_id, "Running")
    alice.cancel(app_id)
    assert str(alice.describe(app_id).state) == "CANCELLED"
    bob = user("bob")
    bob.resume(app_id)
    world.phase(app_id, "Running", version=3, retryCount=1)
    bob.describe(app_id)
    alice = user("alice")
    if seen_running:
        assert str(alice.describe(app_id).state) == "RUNNING"
        (entry,) = RunIndex().all()
        assert entry.requested is not None
        assert entry.requested.action is RequestedAction.RESUME
    world.phase(app_id, "Failed", version=4, retryCount=1)
    assert str(user("bob").describe(app_id).state) == "FAILED"
    assert str(user("alice").describe(app_id).state) == "FAILED"
    (stack,) = world.driver.stacks.values()
    assert stack.outputs["torchx"]["observed"]["state"] == "FAILED"
