from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.app_entry import Stage
from torchx_pulumi.model.errors import ClusterError, DeployError, InvalidJobError
from torchx_pulumi.model.requested import RequestedAction
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_COMMAND, VOLCANO_JOB
from torchx_pulumi.storage.owners import this_process
from torchx_pulumi.torchx_adapter import lookup

from .conftest import World, app, role


def test_cancel_of_volcano_keeps_the_object_and_the_stack(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    world.phase(app_id, "Running")
    scheduler.cancel(app_id)
    scheduler.cancel(app_id)
    assert world.head(app_id) is not None
    assert str(scheduler.describe(app_id).state) == "CANCELLED"
    assert len(world.driver.stacks) == 1


def test_cancel_of_mcad_deletes_the_object_and_keeps_the_stack(world: World, submit: Callable[..., str]) -> None:
    app_id = submit("mcad")
    scheduler = world.scheduler("mcad")
    scheduler.cancel(app_id)
    scheduler.cancel(app_id)
    assert world.head(app_id, APP_WRAPPER) is None
    assert str(scheduler.describe(app_id).state) == "CANCELLED"
    assert [str(item.state) for item in scheduler.list()] == ["CANCELLED"]
    assert len(world.driver.stacks) == 1


def test_cancel_of_pods_of_our_own_frees_them(world: World, submit: Callable[..., str]) -> None:
    app_id = submit(gang="pods")
    world.scheduler().cancel(app_id)
    assert world.cluster.list(kinds.POD, None) == []
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"


def test_cancel_leaves_what_has_ended(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.phase(app_id, "Completed")
    world.scheduler().cancel(app_id)
    assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    world.scheduler().cancel(app_id)
    assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"


ORDERS: list[Any] = [
    ("create", VOLCANO_COMMAND),
    ("patch", VOLCANO_JOB, "status"),
    ("update", VOLCANO_JOB, "status"),
]


@pytest.mark.parametrize(("kind", "calls"), [("volcano", ORDERS), ("mcad", [("delete", APP_WRAPPER)])])
def test_a_cancel_that_the_cluster_refused_leaves_no_trace(
    world: World, submit: Callable[..., str], kind: str, calls: list[Any]
) -> None:
    app_id = submit(kind)
    world.cluster.denied.update(calls)
    with pytest.raises(ClusterError):
        world.scheduler(kind).cancel(app_id)
    entry = RunIndex().find(app_id, kind)
    assert entry is not None
    assert entry.requested is not None
    assert entry.requested.action is RequestedAction.RESUME
    world.cluster.denied.clear()
    world.scheduler(kind).cancel(app_id)
    assert str(world.scheduler(kind).describe(app_id).state) == "CANCELLED"


def test_a_cancel_without_an_answer_is_kept_and_a_failure_afterwards_is_a_failure(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: str) -> None:
        raise ClusterError("no answer", retryable=True, reason="Silent")

    app_id, scheduler = submit(), world.scheduler()
    world.phase(app_id, "Running")
    with monkeypatch.context() as patch:
        patch.setattr(world.cluster, "create", silent)
        with pytest.raises(ClusterError):
            scheduler.cancel(app_id)
    world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True)
    described = scheduler.describe(app_id)
    assert str(described.state) == "RUNNING"
    assert "its cancellation was requested at" in described.msg
    world.cluster.error = None
    world.phase(app_id, "Failed")
    assert [str(item.state) for item in scheduler.list()] == ["FAILED"]
    assert str(scheduler.describe(app_id).state) == "FAILED"


def test_an_appwrapper_that_fails_while_a_cancel_deletes_it_is_cancelled_once_it_is_gone(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit("mcad")
    monkeypatch.setattr(world.cluster, "delete", lambda *_, **__: True)
    world.scheduler("mcad").cancel(app_id)
    wrapper = world.head(app_id, APP_WRAPPER)
    assert wrapper is not None
    wrapper["metadata"]["deletionTimestamp"] = "2026-01-02T11:00:00Z"
    world.cluster.put({**wrapper, "status": {"state": "Failed"}})
    ending = world.scheduler("mcad").describe(app_id)
    assert str(ending.state) == "RUNNING"
    assert "cancelled at" in ending.msg
    world.cluster.remove(APP_WRAPPER, *app_id.split(":"))
    assert str(world.scheduler("mcad").describe(app_id).state) == "CANCELLED"


def test_cancel_of_the_never_heard_of_does_nothing(world: World, kind: str) -> None:
    world.scheduler(kind).cancel("default:none")
    world.scheduler(kind).delete("default:none")


def test_delete_needs_none_of_the_permissions_that_a_refused_cancel_names(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    world.cluster.denied.update(ORDERS)
    with pytest.raises(ClusterError, match="`torchx-pulumi delete` needs none of them"):
        world.scheduler().cancel(app_id)
    world.scheduler().delete(app_id)
    assert RunIndex().find(app_id, "volcano") is None


def test_resume_lets_an_aborted_job_run_again(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    with pytest.raises(InvalidJobError, match="only a cancelled one"):
        scheduler.resume(app_id)
    scheduler.cancel(app_id)
    scheduler.resume(app_id)
    assert str(scheduler.describe(app_id).state) == "PENDING"
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    assert entry.requested is not None
    assert (entry.requested.action, entry.requested.counter) == (RequestedAction.RESUME, 2)


def test_a_resume_that_would_end_the_job_is_refused_and_changes_nothing(
    world: World, submit: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    app_id = submit(given=app(role(max_retries=3)))
    handle = f"pulumi_volcano://torchx/{app_id}"
    for left in (1, 0):
        assert world.command(["cancel", handle]) == 0
        assert world.command(["resume", handle]) == 0
        said = capsys.readouterr().err
        assert f"counts this resume as a retry; left for failures and further resumes: {left}" in said
        assert f"{app_id}: asked to run again" in said
    world.command(["cancel", handle])
    before = world.head(app_id)
    assert world.command(["resume", handle]) != 0
    said = capsys.readouterr().err
    assert "volcano counts a resume as a retry, none is left" in said
    assert "Launch it again, with a higher max_retries" in said
    assert world.head(app_id) == before
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"


def test_a_job_that_is_being_aborted_is_not_asked_twice_and_can_be_resumed(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    scheduler = world.scheduler()
    world.phase(app_id, "Running")
    scheduler.cancel(app_id)
    world.phase(app_id, "Aborting")
    world.cluster.denied.update(ORDERS)
    scheduler.cancel(app_id)
    world.cluster.denied.clear()
    scheduler.resume(app_id)
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    assert entry.requested is not None
    assert entry.requested.action is RequestedAction.RESUME


def test_resume_of_mcad_says_that_it_cannot(world: World, submit: Callable[..., str]) -> None:
    app_id = submit("mcad")
    world.scheduler("mcad").cancel(app_id)
    with pytest.raises(InvalidJobError, match="launch it again"):
        world.scheduler("mcad").resume(app_id)
    with pytest.raises(InvalidJobError, match="not found in the local index"):
        world.scheduler("mcad").resume("default:none")


def test_resume_of_an_app_wrapper_that_waits_says_for_what(world: World, submit: Callable[..., str]) -> None:
    app_id = submit("mcad")
    with pytest.raises(InvalidJobError, match=r"is SUBMITTED \(.+\); only its controller resumes an AppWrapper"):
        world.scheduler("mcad").resume(app_id)
    assert world.cluster.get(APP_WRAPPER, *app_id.split(":")) is not None


def test_delete_leaves_nothing_and_may_be_called_again(world: World, kind: str, submit: Callable[..., str]) -> None:
    app_id = submit(kind)
    scheduler = world.scheduler(kind)
    scheduler.describe(app_id)
    scheduler.delete(app_id)
    scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None
    assert world.driver.stacks == {}
    assert [path.name for path in RunIndex().folder.rglob("*") if path.is_file()] == [".lock"]


def test_delete_where_the_object_is_gone(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    world.scheduler().delete(app_id)
    assert world.scheduler().exists(app_id) is False


def test_delete_without_the_cluster_forgets_nothing_unless_asked(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.cluster.error = ClusterError("the cluster cannot be reached", retryable=True)
    scheduler = world.scheduler()
    with pytest.raises(ClusterError):
        scheduler.delete(app_id)
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    assert (entry.stage, entry.owner) == (Stage.LAUNCHED, None)
    scheduler.delete(app_id, forget_unreachable=True)
    assert scheduler.exists(app_id) is False


def test_an_interrupted_deletion_is_finished_by_the_next(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    index = RunIndex()
    entry = index.find(app_id, "volcano")
    assert entry is not None
    dead = replace(this_process(), pid=1, started="never")
    changed = replace(entry, stage=Stage.DELETING, owner=dead)
    index.update(changed, lambda _: changed)
    world.scheduler().delete(app_id)
    assert world.driver.stacks == {}
    assert world.head(app_id) is None
    assert index.all() == []


def test_what_another_process_works_on_is_waited_for(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit()
    index = RunIndex()
    entry = index.find(app_id, "volcano")
    assert entry is not None
    changed = replace(
        entry, stage=Stage.LAUNCHING, owner=replace(this_process(), host="another", pid=5, boot_id="another")
    )
    index.update(changed, lambda _: changed)
    monkeypatch.setattr(lookup, "BUSY_WAIT_S", 0.02)
    monkeypatch.setattr(lookup, "POLL_S", 0.01)
    with pytest.raises(DeployError, match="process 5 on another"):
        world.scheduler().delete(app_id)
    # Reading does not wait.
    assert world.scheduler().describe(app_id) is not None


def test_close_may_be_called_twice(world: World, submit: Callable[..., str]) -> None:
    scheduler = world.scheduler()
    scheduler.close()
    scheduler.delete(submit())
    scheduler.close()
    scheduler.close()
    assert world.driver.closed == 1


@pytest.mark.parametrize("call", ["describe", "cancel"])
def test_an_app_whose_stack_was_renamed_is_not_forgotten(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://state")
    app_id = submit()
    (entry,) = RunIndex().all()
    moved = replace(entry.place, stack="renamed")
    world.driver.stacks[moved] = world.driver.stacks.pop(entry.place)
    world.cluster.remove(VOLCANO_JOB, *app_id.split(":"))
    getattr(world.scheduler(), call)(app_id)
    assert [known.place for known in RunIndex().all()] == [moved]
