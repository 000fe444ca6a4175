"""What others saw of an app, and asked of it, is read from its stack; a cancellation is written there."""

from __future__ import annotations

import getpass
import itertools
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from torchx_pulumi.apps.answer import StackChange
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.app_entry import RunEntry
from torchx_pulumi.model.errors import ClusterError, DeployError, JobFailedError
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.requested import Requested, RequestedAction, read_requested
from torchx_pulumi.outputs.reader import read_schema
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.recording import RunRecords
from torchx_pulumi.runs.waiting import wait_until
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.control import VolcanoControl
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.observe import observe_app

from .conftest import World
from .test_ends import in_stack

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
AWAY = ClusterError("the cluster cannot be reached", retryable=True)


class Steps:
    """A clock whose time does not pass."""

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, _: float, /) -> None:
        raise AssertionError("waited")


def seen_by_another(world: World, app_id: str, state: str, reason: str, **changes: Any) -> None:
    """Write to the stack what somebody else saw of the app later."""
    (stack,) = (one for one in world.driver.stacks.values() if one.entry.app_id == app_id)
    replica = {
        "id": 0.0,
        "pod": "p",
        "state": state,
        "reason": reason,
        "message": "",
        "exit_code": 3.0,
        "restarts": 0.0,
    }
    stack.outputs["torchx"]["observed"] = {
        "state": state,
        "reason": reason,
        "message": f"it {state}".lower(),
        "attempt": 1.0,
        "uid": stack.entry.uid,
        "observed_at": "2100-01-01T00:00:00Z",
        "queued_at": "2026-01-01T00:00:00Z",
        "finished_at": "2100-01-01T00:00:00Z",
        "roles": [{"name": "trainer", "replicas": [replica], "omitted": 0.0, "counts": {str(state): 1.0}}],
        "diagnoses": [],
        "conditions": [],
        "source": "live",
        **changes,
    }


def requested_in(world: World) -> Any:
    """Return the request that the only stack notes."""
    (stack,) = world.driver.stacks.values()
    return stack.outputs["torchx"].get("requested")


def request(action: RequestedAction, counter: int, uid: str | None) -> Requested:
    return Requested(action=action, at="2026-01-01T00:00:00Z", by="somebody", counter=counter, uid=uid)


def gone(world: World, app_id: str) -> None:
    namespace, _, name = app_id.partition(":")
    for kind in (VOLCANO_JOB, APP_WRAPPER):
        if world.cluster.get(kind, namespace, name) is not None:
            world.cluster.remove(kind, namespace, name)


def away(world: World, _: str) -> None:
    world.cluster.error = AWAY


def running(world: World, kind: str, submit: Callable[..., str]) -> str:
    """Launch an app that was seen running here."""
    app_id = submit(kind, ttl_seconds_after_finished=5) if kind == "volcano" else submit(kind)
    if kind == "volcano":
        world.phase(app_id, "Running")
    world.scheduler(kind).describe(app_id)
    return app_id


@pytest.mark.parametrize("lose", [gone, away])
@pytest.mark.parametrize(("state", "reason"), [("SUCCEEDED", "Completed"), ("FAILED", "ExitCode")])
def test_an_end_that_only_the_stack_has_is_the_end(
    world: World,
    kind: str,
    submit: Callable[..., str],
    lose: Callable[[World, str], None],
    state: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = running(world, kind, submit)
    lose(world, app_id)
    seen_by_another(world, app_id, state, reason)
    written: list[Any] = []
    monkeypatch.setattr(world.driver, "record", lambda *given: written.append(given))
    scheduler = world.scheduler(kind)
    assert [str(item.state) for item in scheduler.list()] == [state]
    described = scheduler.describe(app_id)
    assert str(described.state) == state
    if state == "FAILED":
        assert "it failed" in described.structured_error_msg
        assert str(described.roles_statuses[0].replicas[0].state) == "FAILED"
    (entry,) = RunIndex().all()
    context = world.context()

    def read() -> Any:
        return observe_app(context, entry).status

    if state == "SUCCEEDED":
        assert wait_until(read, WaitFor.COMPLETED, timeout_s=None, progress=print, clock=Steps()).state == state
    else:
        with pytest.raises(JobFailedError, match="ExitCode: it failed"):
            wait_until(read, WaitFor.COMPLETED, timeout_s=None, progress=print, clock=Steps())
    # It is in the stack already.
    assert written == []


def test_the_stack_is_read_once_for_an_end_and_not_again(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    gone(world, app_id)
    seen_by_another(world, app_id, "SUCCEEDED", "Completed")
    reads: list[Any] = []
    answer = world.driver.answer
    monkeypatch.setattr(world.driver, "answer", lambda entry: reads.append(entry) or answer(entry))
    for _ in range(2):
        assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"
        assert [str(item.state) for item in world.scheduler().list()] == ["SUCCEEDED"]
    assert len(reads) == 1


def test_a_job_that_is_there_is_read_from_the_cluster_alone(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    seen_by_another(world, app_id, "FAILED", "ExitCode")
    monkeypatch.setattr(world.driver, "answer", lambda _: pytest.fail("the stack was read"))
    monkeypatch.setattr(world.driver, "record", lambda *_: pytest.fail("the stack was written"))
    assert str(world.scheduler().describe(app_id).state) == "RUNNING"
    assert [str(item.state) for item in world.scheduler().list()] == ["RUNNING"]


def test_while_the_cluster_is_away_the_later_state_of_the_stack_is_shown(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    world.scheduler().describe(app_id)
    away(world, app_id)
    seen_by_another(world, app_id, "RUNNING", "Running")
    described = world.scheduler().describe(app_id)
    assert str(described.state) == "RUNNING"
    assert "as of 2100-01-01T00:00:00Z: it running; it may have changed since: the cluster cannot" in described.msg


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "of-another-run"},
        {"uid": None},
        {"resource_version": "1", "state": "PENDING"},
        {"state": "UNKNOWN", "reason": "NotFound"},
        {"state": "BROKEN"},
        {"state": ["SUCCEEDED"]},
        {"state": {"is": "SUCCEEDED"}},
        {"roles": "none"},
        {"attempt": "first"},
    ],
)
def test_what_is_not_newer_or_not_of_this_run_or_not_readable_changes_nothing(
    world: World, submit: Callable[..., str], changes: dict[str, Any]
) -> None:
    app_id = running(world, "volcano", submit)
    gone(world, app_id)
    seen_by_another(world, app_id, **{"state": "SUCCEEDED", "reason": "Completed", **changes})
    described = world.scheduler().describe(app_id)
    assert str(described.state) == "UNKNOWN"
    assert "last seen RUNNING" in described.msg


def test_a_stack_that_cannot_be_read_changes_nothing(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise DeployError("the backend is away")

    app_id = running(world, "volcano", submit)
    monkeypatch.setattr(world.driver, "answer", refuse)
    away(world, app_id)
    assert str(world.scheduler().describe(app_id).state) == "RUNNING"
    assert [str(item.state) for item in world.scheduler().list()] == ["RUNNING"]
    world.cluster.error = None
    gone(world, app_id)
    assert "last seen RUNNING" in world.scheduler().describe(app_id).msg


def test_an_end_from_before_the_deletion_of_the_pods_is_read_from_the_stack(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit(gang="pods")
    for pod in world.cluster.list(kinds.POD, None):
        world.cluster.remove(kinds.POD, "default", pod["metadata"]["name"])
    seen_by_another(world, app_id, "FAILED", "OutOfMemory")
    assert "OutOfMemory" in world.scheduler().describe(app_id).msg


@pytest.mark.parametrize("kind", ["volcano", "mcad"])
def test_a_cancellation_is_in_the_stack_before_the_cluster_is_asked(
    world: World, kind: str, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, kind, submit)
    state = str(world.scheduler(kind).describe(app_id).state)
    noted: list[Any] = []
    for name in ("create", "delete"):
        real = getattr(world.cluster, name)
        monkeypatch.setattr(
            world.cluster,
            name,
            lambda *a, real=real, **k: noted.append((in_stack(world), requested_in(world))) or real(*a, **k),
        )
    world.scheduler(kind).cancel(app_id)
    seen, asked = noted[0]
    (entry,) = RunIndex().all()
    assert (seen["state"], seen["reason"], seen["uid"]) == (state, "Cancelled", entry.uid)
    assert (entry.requested, entry.request_written) == (read_requested(asked), True)
    assert seen["message"] == f"cancelled at {asked['at']}"
    jsonschema.validate(seen, {"$defs": read_schema()["$defs"], "$ref": "#/$defs/Observed"})
    (stack,) = world.driver.stacks.values()
    assert stack.outputs["reason"] == "Cancelled"
    assert str(world.scheduler(kind).describe(app_id).state) == "CANCELLED"
    assert in_stack(world)["state"] == "CANCELLED"


def test_what_others_observe_after_a_request_does_not_replace_it(world: World, submit: Callable[..., str]) -> None:
    app_id = running(world, "mcad", submit)
    world.scheduler("mcad").cancel(app_id)
    seen_by_another(world, app_id, "RUNNING", "Running")
    assert str(world.scheduler("mcad").describe(app_id).state) == "CANCELLED"
    assert in_stack(world)["state"] == "CANCELLED"


def test_a_request_that_got_in_between_gets_the_number_before(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    record, count = world.driver.record, itertools.count()
    (entry,) = RunIndex().all()

    def after_another(given: RunEntry, change: StackChange) -> Written:
        if next(count) == 0:
            record(given, StackChange(uid=change.uid, request=request(RequestedAction.RESUME, 1, entry.uid)))
        return record(given, change)

    monkeypatch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", (0.0,))
    monkeypatch.setattr(world.driver, "record", after_another)
    world.scheduler().cancel(app_id)
    asked = requested_in(world)
    assert (asked["action"], asked["counter"], asked["by"]) == ("cancel", 2, getpass.getuser())
    assert in_stack(world)["reason"] == "Cancelled"


def test_a_cancellation_that_the_cluster_refused_is_taken_back(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    app_id = running(world, kind, submit)

    def refuse(*_: Any, **__: Any) -> None:
        raise ClusterError("it may not be cancelled", reason="Forbidden")

    with monkeypatch.context() as patch:
        patch.setattr(VolcanoControl, "suspend", refuse)
        patch.setattr(world.cluster, "delete", refuse)
        with pytest.raises(ClusterError, match="may not be cancelled"):
            world.scheduler(kind).cancel(app_id)
    assert in_stack(world)["reason"] != "Cancelled"
    asked = requested_in(world)
    assert (asked["action"], asked["counter"]) == ("resume", 2)
    gone(world, app_id)
    assert str(world.scheduler(kind).describe(app_id).state) == "UNKNOWN"


def test_a_resumption_that_the_cluster_refused_leaves_no_trace(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ClusterError("it may not be resumed", reason="Forbidden")

    app_id = running(world, "volcano", submit)
    world.scheduler().cancel(app_id)
    cancelled = requested_in(world)
    monkeypatch.setattr(VolcanoControl, "resume", refuse)
    with pytest.raises(ClusterError, match="may not be resumed"):
        world.scheduler().resume(app_id)
    assert requested_in(world) == cancelled
    assert str(world.scheduler().describe(app_id).state) == in_stack(world)["state"] == "CANCELLED"


def test_a_request_whose_stack_is_busy_is_tried_again(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app_id, tried = running(world, "volcano", submit), []
    record = world.driver.record

    def busy(*given: Any) -> Written:
        tried.append(given)
        return Written(outcome=Recorded.DEFERRED) if len(tried) < 3 else record(*given)

    monkeypatch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(world.driver, "record", busy)
    with caplog.at_level(logging.WARNING):
        world.scheduler().cancel(app_id)
    assert (len(tried), caplog.messages) == (3, [])
    assert in_stack(world)["reason"] == "Cancelled"


NEXT: dict[str, Callable[[Any, str], Any]] = {
    "status": lambda scheduler, app_id: scheduler.describe(app_id),
    "list": lambda scheduler, _: scheduler.list(),
    "cancel": lambda scheduler, app_id: scheduler.cancel(app_id),
    "log": lambda scheduler, app_id: scheduler.logs.replicas(app_id),
}


@pytest.fixture
def unwritten(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> str:
    """Cancel an app while its stack is locked."""
    app_id = running(world, "mcad", submit)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", ())
        patch.setattr(world.driver, "record", lambda *_: Written(outcome=Recorded.DEFERRED))
        world.scheduler("mcad").cancel(app_id)
    (entry,) = RunIndex().all()
    assert world.head(app_id, APP_WRAPPER) is None
    assert f"stack {entry.place.stack} in file://" in caplog.text
    assert "does not say yet that it was cancelled at" in caplog.text
    assert "The next `torchx status` of this user writes it" in caplog.text
    assert (requested_in(world), entry.requested is None, entry.request_written) == (None, False, False)
    caplog.clear()
    return app_id


@pytest.mark.parametrize("command", NEXT)
def test_a_cancellation_that_could_not_be_written_is_written_by_the_next_command(
    world: World, unwritten: str, command: str
) -> None:
    NEXT[command](world.scheduler("mcad"), unwritten)
    (entry,) = RunIndex().all()
    assert (entry.requested, entry.request_written) == (read_requested(requested_in(world)), True)
    assert in_stack(world)["state"] == "CANCELLED"


def test_a_resumption_after_a_cancellation_that_could_not_be_written_takes_its_number(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id, scheduler = running(world, "volcano", submit), world.scheduler()
    with monkeypatch.context() as patch:
        patch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", ())
        patch.setattr(world.driver, "record", lambda *_: Written(outcome=Recorded.LEFT))
        scheduler.cancel(app_id)
    scheduler.resume(app_id)
    assert (requested_in(world)["action"], requested_in(world)["counter"]) == ("resume", 1)
    assert (in_stack(world)["state"], in_stack(world)["reason"]) == ("PENDING", "Restarting")
    assert str(scheduler.describe(app_id).state) == "PENDING"


def test_a_cancellation_that_was_overtaken_before_it_was_written_is_dropped_with_a_line(
    world: World, unwritten: str, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = RunIndex().all()
    other = request(RequestedAction.RESUME, 1, entry.uid)
    world.driver.record(entry, StackChange(uid=entry.uid or "", request=other))
    with caplog.at_level(logging.WARNING):
        assert str(world.scheduler("mcad").describe(unwritten).state) == "UNKNOWN"
    assert "is not written any more; its stack says: asked to run again at 2026-01-01T00:00:00Z" in caplog.text
    (entry,) = RunIndex().all()
    assert (entry.requested, entry.request_written) == (other, True)
    caplog.clear()
    world.scheduler("mcad").describe(unwritten)
    assert caplog.text == ""


@pytest.mark.parametrize("look_between", [True, False])
def test_a_resume_takes_the_cancellation_back(world: World, submit: Callable[..., str], look_between: bool) -> None:
    at = [NOW]
    scheduler = world.scheduler(now=lambda: at[0])
    app_id = running(world, "volcano", submit)
    scheduler.cancel(app_id)
    at[0] += timedelta(minutes=1)
    if look_between:
        assert str(scheduler.describe(app_id).state) == "CANCELLED"
    at[0] += timedelta(minutes=1)
    scheduler.resume(app_id)
    resumed = in_stack(world)
    assert (resumed["state"], resumed["reason"]) == ("PENDING", "Restarting")
    assert resumed["message"].startswith("asked to run again at 2026-01-01T00:0")
    assert (requested_in(world)["action"], requested_in(world)["counter"]) == ("resume", 2)
    at[0] += timedelta(minutes=1)
    world.phase(app_id, "Running", retryCount=1)
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    gone(world, app_id)
    assert str(scheduler.describe(app_id).state) == "UNKNOWN"


@pytest.fixture
def colleague(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Go on as another user of the same backend."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://state")
    return lambda name: monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / name))


@pytest.mark.parametrize("seen_since", [True, False])
def test_what_another_one_cancelled_is_cancelled_where_its_objects_are_gone(
    world: World, colleague: Callable[[str], None], submit: Callable[..., str], seen_since: bool
) -> None:
    colleague("alice")
    app_id = running(world, "mcad", submit)
    colleague("bob")
    world.scheduler("mcad").describe(app_id)
    colleague("alice")
    wrapper = world.head(app_id, APP_WRAPPER)
    assert wrapper is not None
    world.scheduler("mcad").cancel(app_id)
    colleague("bob")
    if seen_since:
        # The cluster may take a while to delete it.
        world.cluster.put(wrapper)
        world.scheduler("mcad").describe(app_id)
        gone(world, app_id)
    described = world.scheduler("mcad").describe(app_id)
    assert str(described.state) == "CANCELLED"
    assert "cancelled at" in described.msg
    assert in_stack(world)["state"] == "CANCELLED"


def test_what_another_one_cancelled_and_failed_by_that_is_cancelled(
    world: World, colleague: Callable[[str], None], submit: Callable[..., str]
) -> None:
    colleague("alice")
    app_id = running(world, "volcano", submit)
    world.cluster.put({**(world.head(app_id) or {}), "status": {"state": {"phase": "Running"}}})
    world.scheduler().cancel(app_id)
    world.phase(app_id, "Terminated")
    colleague("bob")
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"
    assert in_stack(world)["state"] == "CANCELLED"
    colleague("alice")
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"


@pytest.mark.parametrize(
    ("killed", "state", "then"),
    [
        ((VolcanoControl, "resume"), "CANCELLED", "CANCELLED"),
        # The cluster has the request by then, and the next attempt is not what was cancelled.
        ((RunRecords, "request"), "PENDING", "FAILED"),
    ],
    ids=["before", "after"],
)
def test_a_resume_that_is_killed_leaves_a_run_as_the_cluster_has_it(
    world: World,
    colleague: Callable[[str], None],
    submit: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    killed: tuple[Any, str],
    state: str,
    then: str,
) -> None:
    def kill(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    colleague("alice")
    app_id = running(world, "volcano", submit)
    world.scheduler().cancel(app_id)
    with monkeypatch.context() as patch:
        patch.setattr(*killed, kill)
        with pytest.raises(KeyboardInterrupt):
            world.scheduler().resume(app_id)
    for name in ("alice", "bob", "alice"):
        colleague(name)
        assert [str(item.state) for item in world.scheduler().list()] == [state]
        assert str(world.scheduler().describe(app_id).state) == state
    if state == "PENDING":
        world.phase(app_id, "Failed", retryCount=1)
    assert str(world.scheduler().describe(app_id).state) == in_stack(world)["state"] == then


def test_an_end_after_a_resume_by_another_one_is_read_where_the_cancelled_run_was_seen(
    world: World, colleague: Callable[[str], None], submit: Callable[..., str]
) -> None:
    colleague("alice")
    app_id = running(world, "volcano", submit)
    world.scheduler().cancel(app_id)
    assert str(world.scheduler().describe(app_id).state) == "CANCELLED"
    colleague("bob")
    world.scheduler().resume(app_id)
    world.phase(app_id, "Completed")
    assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"
    gone(world, app_id)
    colleague("alice")
    assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"
