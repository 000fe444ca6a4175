"""The end of a run: seen once by whichever call, it is in the index and in the stack, and says the same for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from torchx import specs
from torchx_pulumi.apps import answer
from torchx_pulumi.apps.judge import judge
from torchx_pulumi.apps.look import Look
from torchx_pulumi.kube.kinds import POD, Kind
from torchx_pulumi.model import labels
from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.runs import recording
from torchx_pulumi.runs.driver import Recorded, Written
from torchx_pulumi.runs.index import RunIndex
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.torchx_adapter.observe import observe_app

from .conftest import CONFIG, World, app
from .test_reading import pod

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def in_stack(world: World) -> Any:
    (stack,) = world.driver.stacks.values()
    return stack.outputs["torchx"]["observed"]


def fail(world: World, app_id: str, codes: tuple[int, ...] = (3,)) -> None:
    """Let the replicas of a job end with exit codes."""
    name = app_id.partition(":")[2]
    for index, code in enumerate(codes):
        ended = {
            "exitCode": code,
            "startedAt": "2026-01-01T00:00:10Z",
            "finishedAt": f"2026-01-01T00:01:0{index}Z",
        }
        status = [{"name": "trainer-0", "state": {"terminated": ended}}]
        world.cluster.put(pod(f"{name}-trainer-{index}-0", name, "Failed", containerStatuses=status))
    world.phase(app_id, "Failed")


@pytest.mark.parametrize("call", ["describe", "list"])
def test_whichever_call_sees_the_end_first_writes_it_to_the_stack(
    world: World, submit: Callable[..., str], call: str
) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    ask = {"describe": lambda: world.scheduler().describe(app_id), "list": lambda: world.scheduler().list()}[call]
    ask()
    assert in_stack(world) == {}
    fail(world, app_id)
    ask()
    seen = in_stack(world)
    assert (seen["state"], seen["reason"], seen["uid"]) == ("FAILED", "ExitCode", world.head(app_id)["metadata"]["uid"])
    assert seen["diagnoses"][0]["summary"]
    assert (seen["started_at"], seen["finished_at"]) == ("2026-01-01T00:00:10Z", "2026-01-01T00:01:00Z")
    replica = seen["roles"][0]["replicas"][0]
    assert (replica["started_at"], replica["finished_at"]) == (seen["started_at"], seen["finished_at"])


def test_an_end_is_written_once(world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = submit()
    world.phase(app_id, "Completed")
    asked: list[Any] = []
    record = world.driver.record
    monkeypatch.setattr(world.driver, "record", lambda *given: asked.append(given) or record(*given))
    for _ in range(3):
        world.scheduler().describe(app_id)
        world.scheduler().list()
    assert len(asked) == 1


def test_the_status_of_a_run_that_goes_on_is_that_of_the_look(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    entry = RunIndex().find(app_id, "volcano")
    assert entry is not None
    snapshot = observe_app(world.scheduler()._context, entry)
    assert snapshot.status is snapshot.look.status


def test_an_answer_is_judged_once_and_once_more_under_the_lock_of_the_stack(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    for place in (recording, answer):

        def count(look: Look, *more: Any, place: str = place.__name__) -> Any:
            judged.append(place.rpartition(".")[2])
            return judge(look, *more)

        monkeypatch.setattr(place, "judge", count)

    def calls() -> list[str]:
        judged.clear()
        world.scheduler().describe(app_id)
        return [*judged]

    app_id = submit()
    world.phase(app_id, "Running")
    assert calls() == calls() == ["recording"]
    fail(world, app_id)
    assert calls() == ["recording", "answer"]
    assert calls() == ["recording"]


@pytest.mark.parametrize(
    ("outcome", "wait_s"), [(Recorded.DEFERRED, 5), (DeployError("the backend is away"), 5), (Recorded.LEFT, 3600)]
)
def test_an_end_that_could_not_be_written_is_written_later(
    world: World, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, outcome: Any, wait_s: float
) -> None:
    app_id, at, asked = submit(), [NOW], []

    def record(*given: Any) -> Written:
        asked.append(given)
        if isinstance(outcome, Exception):
            raise outcome
        return Written(outcome=outcome)

    really = world.driver.record
    monkeypatch.setattr(world.driver, "record", record)
    fail(world, app_id)
    scheduler = world.scheduler(now=lambda: at[0])
    assert scheduler.describe(app_id).state == specs.AppState.FAILED
    at[0] += timedelta(seconds=wait_s - 1)
    scheduler.describe(app_id)
    assert len(asked) == 1
    monkeypatch.setattr(world.driver, "record", really)
    at[0] += timedelta(seconds=1)
    # Meanwhile the cluster has forgotten it; what was noted is written.
    world.cluster.delete(VOLCANO_JOB, "default", app_id.partition(":")[2])
    assert scheduler.describe(app_id).state == specs.AppState.FAILED
    assert (in_stack(world)["state"], in_stack(world)["source"]) == ("FAILED", "record")
    assert in_stack(world)["roles"][0]["replicas"][0]["exit_code"] == 3


@pytest.mark.parametrize("kind", ["mcad"])
def test_a_cancelled_app_whose_object_is_gone_is_cancelled_in_its_stack(
    world: World, submit: Callable[..., str], kind: str
) -> None:
    app_id = submit(kind)
    world.scheduler(kind).describe(app_id)
    world.scheduler(kind).cancel(app_id)
    assert world.scheduler(kind).describe(app_id).state == specs.AppState.CANCELLED
    assert in_stack(world)["state"] == "CANCELLED"


def test_an_app_that_a_list_saw_succeed_has_succeeded_for_ever(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.phase(app_id, "Completed")
    assert [item.state for item in world.scheduler().list()] == [specs.AppState.SUCCEEDED]
    world.cluster.delete(VOLCANO_JOB, "default", app_id.partition(":")[2])
    assert [item.state for item in world.scheduler().list()] == [specs.AppState.SUCCEEDED]
    assert world.scheduler().describe(app_id).state == specs.AppState.SUCCEEDED


@pytest.mark.parametrize("phase", ["Running", "Completed"])
def test_with_labels_of_the_callers_own_status_and_list_agree(world: World, phase: str) -> None:
    info = world.scheduler().submit_dryrun(app(), CONFIG["volcano"])
    info.request.resource["metadata"]["labels"] = {"team": "a"}
    app_id = world.scheduler().schedule(info)
    world.phase(app_id, phase)
    (listed,) = world.scheduler().list()
    assert listed.state == world.scheduler().describe(app_id).state


def test_the_exit_code_of_the_replica_that_failed_first_reaches_torchx(
    world: World, submit: Callable[..., str]
) -> None:
    app_id = submit()
    # The second replica was told to stop because the first one had failed.
    fail(world, app_id, (137, 143))
    described = world.scheduler().describe(app_id)
    assert json.loads(described.structured_error_msg)["message"]["errorCode"] == 137
    codes = [
        json.loads(replica.structured_error_msg)["message"]["errorCode"]
        for replica in described.roles_statuses[0].replicas
    ]
    assert codes == [137, 143]
    world.cluster.delete(VOLCANO_JOB, "default", app_id.partition(":")[2])
    remembered = world.scheduler().describe(app_id)
    assert json.loads(remembered.structured_error_msg)["message"]["errorCode"] == 137


def test_an_observation_has_the_times_and_the_uid_of_what_was_seen(world: World, submit: Callable[..., str]) -> None:
    app_id = submit()
    world.phase(app_id, "Running")
    world.scheduler().describe(app_id)
    (entry,) = RunIndex().all()
    seen = RunIndex().observation(entry)
    head = world.head(app_id)
    assert seen is not None
    assert head is not None
    assert (seen["uid"], seen["queued_at"]) == (head["metadata"]["uid"], head["metadata"]["creationTimestamp"])


def being_deleted(world: World, app_id: str, kind: Kind, **status: Any) -> None:
    """Let `kubectl delete` begin: the kubelet ends the pods, and the job object stays until they are gone."""
    job_object = world.head(app_id, kind)
    assert job_object is not None
    job_object["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    world.cluster.put({**job_object, "status": {**(job_object.get("status") or {}), **status}})


@pytest.mark.parametrize("finished_at", [None, "2026-01-01T00:01:56Z", "2026-01-01T00:02:01Z"])
@pytest.mark.parametrize("command", ["describe", "list"])
def test_a_run_that_is_deleted_with_kubectl_did_not_fail(
    world: World, submit: Callable[..., str], finished_at: str | None, command: str
) -> None:
    app_id, scheduler = submit("mcad"), world.scheduler("mcad")
    name = app_id.partition(":")[2]

    def state() -> str:
        return str(scheduler.describe(app_id).state if command == "describe" else scheduler.list()[0].state)

    wrapper = world.head(app_id, APP_WRAPPER)
    assert wrapper is not None
    world.cluster.put({**wrapper, "status": {"state": "Running"}})
    (entry,) = RunIndex().all()
    # The image cannot be pulled, or the node's clock is behind that of the API server.
    ended = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": finished_at}
    for number, pod_name in enumerate(entry.pods["trainer"]):
        found = pod(pod_name, name, "Pending" if number else "Running")
        found["metadata"]["labels"] |= {labels.UNIQUE_NAME: name}
        world.cluster.put(found)
    assert state() in ("PENDING", "RUNNING")
    being_deleted(world, app_id, APP_WRAPPER)
    for pod_name in entry.pods["trainer"]:
        dying = world.cluster.get(POD, "default", pod_name)
        assert dying is not None
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
        status = [{"name": "trainer-0", "state": {"terminated": ended}}]
        world.cluster.put({**dying, "status": {"phase": "Failed", "containerStatuses": status}})
    assert state() == "RUNNING"
    assert "Stopping" in scheduler.describe(app_id).msg
    for pod_name in entry.pods["trainer"]:
        world.cluster.remove(POD, "default", pod_name)
    assert state() == "RUNNING"
    world.cluster.remove(APP_WRAPPER, "default", name)
    assert state() == "UNKNOWN"
    assert scheduler.describe(app_id).msg.startswith("NotFound: ")
    assert in_stack(world).get("state") != "FAILED"


def test_while_the_stack_is_locked_a_pod_that_is_gone_is_no_end(world: World, submit: Callable[..., str]) -> None:
    app_id, scheduler = submit(gang="pods"), world.scheduler()
    (entry,) = RunIndex().all()
    for running in world.cluster.list(POD, None):
        world.cluster.put({**running, "status": {"phase": "Running"}})
    first, *_ = entry.pods["trainer"]
    world.cluster.remove(POD, "default", first)
    world.driver.locked[entry.place] = ["pulumi up by somebody"]
    assert str(scheduler.describe(app_id).state) == "RUNNING"
    assert in_stack(world) == {}
    world.driver.locked.clear()
    assert str(scheduler.describe(app_id).state) == "FAILED"
    assert (in_stack(world)["state"], in_stack(world)["reason"]) == ("FAILED", "PodGone")
