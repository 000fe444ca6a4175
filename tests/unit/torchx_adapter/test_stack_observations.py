"""What others saw of an app, and asked of it, is read from its stack; a cancellation is written there."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.errors import ClusterError, DeployError, JobFailedError
from torchx_pulumi.outputs.newer import is_newer
from torchx_pulumi.outputs.reader import read_schema
from torchx_pulumi.runs.driver import Recorded
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.runs.waiting import WaitGoal, wait_until
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
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
        "message": f"it {state.lower()}",
        "attempt": 1.0,
        "uid": stack.entry.uid,
        "observed_at": "2100-01-01T00:00:00Z",
        "queued_at": "2026-01-01T00:00:00Z",
        "finished_at": "2100-01-01T00:00:00Z",
        "roles": [{"name": "trainer", "replicas": [replica], "omitted": 0.0, "counts": {state: 1.0}}],
        "diagnoses": [],
        "conditions": [],
        "source": "live",
        **changes,
    }


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
        assert wait_until(read, WaitGoal.COMPLETED, timeout_s=None, progress=print, clock=Steps()).state == state
    else:
        with pytest.raises(JobFailedError, match="ExitCode: it failed"):
            wait_until(read, WaitGoal.COMPLETED, timeout_s=None, progress=print, clock=Steps())
    # It is in the stack already.
    assert written == []


def test_the_stack_is_read_once_for_an_end_and_not_again(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    gone(world, app_id)
    seen_by_another(world, app_id, "SUCCEEDED", "Completed")
    reads: list[Any] = []
    observed = world.driver.observed
    monkeypatch.setattr(world.driver, "observed", lambda entry: reads.append(entry) or observed(entry))
    for _ in range(2):
        assert str(world.scheduler().describe(app_id).state) == "SUCCEEDED"
        assert [str(item.state) for item in world.scheduler().list()] == ["SUCCEEDED"]
    assert len(reads) == 1


def test_a_job_that_is_there_is_read_from_the_cluster_alone(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    seen_by_another(world, app_id, "FAILED", "ExitCode")
    monkeypatch.setattr(world.driver, "observed", lambda _: pytest.fail("the stack was read"))
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
        {"observed_at": "2000-01-01T00:00:00Z", "state": "PENDING"},
        {"state": "UNKNOWN", "reason": "NotFound"},
        {"state": "BROKEN"},
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
    monkeypatch.setattr(world.driver, "observed", refuse)
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
            world.cluster, name, lambda *a, real=real, **k: noted.append(in_stack(world)) or real(*a, **k)
        )
    world.scheduler(kind).cancel(app_id)
    seen = noted[0]
    (entry,) = RunIndex().all()
    assert (seen["state"], seen["reason"], seen["uid"]) == (state, "Cancelled", entry.uid)
    assert seen["message"] == f"cancelled at {entry.cancelled_at}"
    jsonschema.validate(seen, {"$defs": read_schema()["$defs"], "$ref": "#/$defs/Observed"})
    (stack,) = world.driver.stacks.values()
    assert stack.outputs["reason"] == "Cancelled"
    assert str(world.scheduler(kind).describe(app_id).state) == "CANCELLED"
    assert in_stack(world)["state"] == "CANCELLED"


def test_a_cancellation_is_newer_than_what_a_clock_that_is_ahead_wrote(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = running(world, "volcano", submit)
    seen_by_another(world, app_id, "RUNNING", "Running")
    world.scheduler().cancel(app_id)
    assert (in_stack(world)["reason"], in_stack(world)["observed_at"]) == ("Cancelled", "2100-01-01T00:00:01Z")


def test_a_cancellation_is_newer_than_what_a_controller_writes_at_the_same_time(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = running(world, "volcano", submit)
    record, count = world.driver.record, itertools.count()

    def after_a_controller(*given: Any) -> Recorded:
        if next(count) == 0:
            seen_by_another(world, app_id, "RUNNING", "Running")
        return record(*given)

    monkeypatch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", (0.0,))
    monkeypatch.setattr(world.driver, "record", after_a_controller)
    world.scheduler().cancel(app_id)
    assert (in_stack(world)["reason"], in_stack(world)["observed_at"]) == ("Cancelled", "2100-01-01T00:00:01Z")


def test_a_cancellation_that_the_cluster_refused_is_taken_back(world: World, submit: Callable[..., str]) -> None:
    app_id = running(world, "mcad", submit)
    world.cluster.denied.add(("delete", APP_WRAPPER))
    with pytest.raises(ClusterError):
        world.scheduler("mcad").cancel(app_id)
    assert in_stack(world)["reason"] != "Cancelled"


def test_a_cancellation_whose_stack_is_busy_is_tried_again_and_then_said(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app_id, tried = running(world, "volcano", submit), []
    record = world.driver.record

    def busy(*given: Any) -> Recorded:
        tried.append(given)
        return Recorded.DEFERRED if len(tried) < 3 else record(*given)

    monkeypatch.setattr("torchx_pulumi.runs.recording.REQUEST_PAUSES_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(world.driver, "record", busy)
    with caplog.at_level(logging.WARNING):
        world.scheduler().cancel(app_id)
    assert (len(tried), caplog.messages) == (3, [])
    assert in_stack(world)["reason"] == "Cancelled"
    monkeypatch.setattr(world.driver, "record", lambda *_: Recorded.DEFERRED)
    second = running(world, "mcad", submit)
    with caplog.at_level(logging.WARNING):
        world.scheduler("mcad").cancel(second)
    assert "the stack does not say yet that it was cancelled at" in caplog.text
    assert world.head(second, APP_WRAPPER) is None


@pytest.mark.parametrize("look_between", [True, False])
def test_a_resume_takes_the_cancellation_back(world: World, submit: Callable[..., str], look_between: bool) -> None:
    at = [NOW]
    scheduler = world.scheduler(now=lambda: at[0])
    app_id = running(world, "volcano", submit)
    scheduler.cancel(app_id)
    at[0] += timedelta(minutes=1)
    if look_between:
        assert str(scheduler.describe(app_id).state) == "CANCELLED"
    cancelled = in_stack(world)
    at[0] += timedelta(minutes=1)
    scheduler.resume(app_id)
    resumed = in_stack(world)
    assert (resumed["state"], resumed["reason"]) == ("PENDING", "Restarting")
    assert resumed["message"].startswith("resumed at 2026-01-01T00:0")
    assert is_newer(resumed, cancelled)
    at[0] += timedelta(minutes=1)
    world.phase(app_id, "Running")
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
