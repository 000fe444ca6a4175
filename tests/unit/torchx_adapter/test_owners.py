"""Which process may work on an app: claims, leases, take-over, and what a mere look leaves alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.model.app_entry import Owner, RunEntry, Stage
from torchx_pulumi.model.errors import DeployError, TakenOverError
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.lease import claim
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi.torchx_adapter import lookup

from .conftest import CONFIG, World, app

GONE = 2**22 + 1
"""No process has this number."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "BUSY_WAIT_S", 0.05)
    monkeypatch.setattr(lookup, "POLL_S", 0.01)


def far_away(seconds_left: float) -> Owner:
    """Return an owner of this host's name in another PID namespace, where no process can be looked up."""
    now = time.time()
    return replace(this_process(), pid=GONE, pid_namespace=1, seen_at=now - 900, lease_until=now + seconds_left)


def owned(app_id: str, owner: Owner | None, stage: Stage = Stage.LAUNCHING) -> RunEntry:
    index = RunIndex()
    entry = index.find(app_id, "volcano")
    assert entry is not None
    entry = replace(entry, stage=stage, owner=owner)
    index.update(entry, lambda _: entry)
    return entry


def half_launched(world: World, app_id: str, owner: Owner) -> RunEntry:
    """Let an app be in the middle of its launch: its stack is there, its object is not."""

    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    entry = owned(app_id, owner)
    world.driver.stacks[entry.place].finished = False
    return entry


@pytest.mark.parametrize("seconds_left", [60, -60])
def test_b8_status_and_list_remove_nothing_of_a_launch_that_may_be_alive(
    world: World, submit: Callable[..., str], seconds_left: int
) -> None:
    app_id = submit()
    entry = half_launched(world, app_id, far_away(seconds_left))
    world.driver.locked[entry.place] = ["me@here, process 7"]
    described = world.scheduler().describe(app_id)
    world.scheduler().list()
    assert str(described.state) == "SUBMITTED"
    assert f"it is being launched by process {GONE} on" in str(described.structured_error_msg) + str(described)
    assert RunIndex().get(entry) == entry
    assert list(world.driver.stacks) == [entry.place]
    assert world.driver.locked


def test_f4_status_of_a_launch_whose_host_is_gone_names_the_way_out(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    half_launched(world, app_id, far_away(-60))
    described = world.scheduler().describe(app_id)
    assert f"torchx-pulumi delete pulumi_volcano://torchx/{app_id} --take-over" in str(described)
    assert "last seen 15 min ago" in str(described)


def test_f4_an_expired_lease_ends_the_wait(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    half_launched(world, app_id, far_away(-60))
    world.scheduler().delete(app_id)
    assert RunIndex().all() == []
    assert world.driver.stacks == {}


def test_f4_while_the_lease_holds_the_app_is_waited_for_and_the_way_out_named(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    entry = half_launched(world, app_id, far_away(60))
    with pytest.raises(DeployError, match=r"launching by process 4194305 on .*last seen 15 min ago.*--take-over"):
        world.scheduler().delete(app_id)
    assert RunIndex().get(entry) == entry


def test_an_expired_lease_and_a_lock_are_not_enough(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    entry = half_launched(world, app_id, far_away(-60))
    world.driver.locked[entry.place] = ["me@here, process 7, since yesterday"]
    with pytest.raises(DeployError, match=r"last seen 15 min ago, .*me@here, process 7, since yesterday.*--take-over"):
        world.scheduler().delete(app_id)
    assert RunIndex().get(entry) == entry
    world.scheduler().delete(app_id, take_over=True)
    assert RunIndex().all() == []
    assert (world.driver.stacks, world.driver.locked) == ({}, {})


@pytest.mark.parametrize("words", [["delete"], ["cancel"], ["resume"]])
def test_take_over_is_an_option_of_the_commands(
    world: World, submit: Callable[..., str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    app_id = submit()
    world.phase(app_id, "Aborted")
    entry = owned(app_id, far_away(60))
    handle = f"pulumi_volcano://torchx/{app_id}"
    assert world.command([*words, handle]) == 2
    assert "--take-over" in capsys.readouterr().err
    assert world.command([*words, handle, "--take-over"]) == 0
    now = RunIndex().get(entry)
    assert now is None if words == ["delete"] else now is not None and now.stage is Stage.LAUNCHED


def test_b9_the_second_of_two_recoveries_sees_the_first_as_owner(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()
    half_launched(world, app_id, replace(this_process(), pid=GONE))
    recover, inside, go, calls = world.driver.recover, threading.Event(), threading.Event(), []

    def slow(entry: RunEntry, tell: Any, **given: Any) -> RunEntry | None:
        calls.append(entry)
        inside.set()
        assert go.wait(30)
        return recover(entry, tell, **given)

    monkeypatch.setattr(world.driver, "recover", slow)
    first = threading.Thread(target=world.scheduler().describe, args=(app_id,))
    first.start()
    try:
        assert inside.wait(30)
        described = world.scheduler().describe(app_id)
        assert "it is being launched by process" in str(described)
        with pytest.raises(DeployError, match="has not finished"):
            world.scheduler().delete(app_id)
    finally:
        go.set()
        first.join()
    assert len(calls) == 1
    assert RunIndex().all() == []


def test_a_launch_that_lost_its_app_stops_and_touches_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, index = world.driver.launch, RunIndex()

    def interrupted(order: Any, tell: Any, *, check: Any) -> Any:
        launched = launch(order, tell, check=check)
        found = index.get(order.entry)
        assert found is not None
        assert claim(index, found) is not None  # while this process was asleep
        check()
        return launched

    monkeypatch.setattr(world.driver, "launch", interrupted)
    with pytest.raises(TakenOverError, match="was taken over by process"):
        world.scheduler().submit(app(), CONFIG["volcano"])
    (entry,) = index.all()
    assert entry.stage is Stage.LAUNCHING
    assert list(world.driver.stacks) == [entry.place]


def test_a_deletion_that_lost_its_app_stops_and_touches_nothing(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, index = submit(), RunIndex()

    def interrupted(entry: Any, tell: Any, *, check: Any, **_: Any) -> None:
        found = index.get(entry)
        assert found is not None
        assert claim(index, found) is not None
        check()

    monkeypatch.setattr(world.driver, "destroy", interrupted)
    with pytest.raises(TakenOverError):
        world.scheduler().delete(app_id)
    (entry,) = index.all()
    assert entry.stage is Stage.DELETING
    assert world.head(app_id) is not None


def test_a_recovery_that_fails_leaves_the_app_as_it_was_found(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()
    entry = half_launched(world, app_id, replace(this_process(), pid=GONE))

    def fails(*_: Any, **__: Any) -> None:
        raise DeployError("the engine refused")

    monkeypatch.setattr(world.driver, "recover", fails)
    with pytest.raises(DeployError, match="refused"):
        world.scheduler().delete(app_id)
    assert RunIndex().get(entry) == entry


def test_a_deletion_that_is_interrupted_is_finished_by_the_next_call(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(world.driver, "destroy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.scheduler().delete(app_id)
    (entry,) = RunIndex().all()
    assert (entry.stage, entry.owner) == (Stage.DELETING, None)
    world.scheduler().delete(app_id)
    assert (RunIndex().all(), world.driver.stacks) == ([], {})


def test_cancel_does_not_bring_back_an_app_that_is_deleted_meanwhile(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    cluster_of = scheduler._context.__class__.cluster_of
    deleted = []

    def delete_first(context: Any, entry: RunEntry) -> Any:
        if not deleted:
            deleted.append(entry)
            world.scheduler().delete(app_id)
        return cluster_of(context, entry)

    monkeypatch.setattr(type(scheduler._context), "cluster_of", delete_first)
    scheduler.cancel(app_id)
    assert deleted
    assert RunIndex().all() == []


def test_a_colleagues_app_is_adopted_before_it_is_put_right(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///shared")
    app_id = submit()
    entry = half_launched(world, app_id, replace(this_process(), pid=GONE))
    stack = world.driver.stacks[entry.place]
    stack.entry = replace(entry, owner=None)
    RunIndex().update(entry, lambda _: None)
    seen = []
    recover = world.driver.recover

    def noted(entry: RunEntry, tell: Any, **given: Any) -> RunEntry | None:
        seen.append(RunIndex().get(entry))
        return recover(entry, tell, **given)

    monkeypatch.setattr(world.driver, "recover", noted)
    assert world.scheduler().describe(app_id) is None
    assert seen[0] is not None
    assert seen[0].owner is not None
    assert RunIndex().all() == []
