from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from torchx_pulumi.model.launch_options import OnRunningChange
from torchx_pulumi.model.run_record import RunRecord
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.runs.decision import Action, Decision, beside_retained, decide, launched_replicas

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
RECORD = RunRecord(
    app_id="job-aa",
    job_name="job-aa",
    namespace="default",
    hash="aa",
    digests={"queue": "q", "roles[trainer].image": "1", "roles[trainer].min_replicas": "2"},
    launched={"trainer": 4, "reader": 2},
    replicas={"trainer": 4, "reader": 2},
    attempt=1,
    launched_at="2026-01-01T11:00:00+00:00",
    uid="u",
)
SAME = replace(RECORD, launched={})
OTHER_IMAGE = replace(SAME, digests={**RECORD.digests, "roles[trainer].image": "9"}, hash="bb")
OTHER_MIN = replace(SAME, digests={**RECORD.digests, "roles[trainer].min_replicas": "9"})
RUNNING = JobStatus(
    state=JobState.RUNNING, reason=Reason.NOT_FOUND, message="", started_at=NOW - timedelta(minutes=5, seconds=4)
)
WITH_KUEUE = {**RECORD.digests, "api_version": "v1beta2", "local_queue": "team"}
TAKEN_OVER = replace(RECORD, digests=WITH_KUEUE, hash="bb")
TAKEN_OVER_OTHER_IMAGE = replace(RECORD, digests={**WITH_KUEUE, "roles[trainer].image": "9"}, hash="bb")
FINISHED = JobStatus(state=JobState.SUCCEEDED, reason=Reason.NOT_FOUND, message="")
GONE = None


def decided(
    desired: RunRecord,
    observed: JobStatus | None,
    policy: OnRunningChange = OnRunningChange.FAIL,
    record: RunRecord | None = RECORD,
    **facts: bool,
) -> Decision:
    return decide(record, desired, observed, policy, NOW, **facts)


@pytest.mark.parametrize(
    ("desired", "observed", "policy", "interrupted", "action"),
    [
        (SAME, RUNNING, OnRunningChange.FAIL, False, Action.KEEP),
        (SAME, FINISHED, OnRunningChange.FAIL, False, Action.KEEP),
        (SAME, GONE, OnRunningChange.FAIL, False, Action.DONE_AND_GONE),
        (SAME, GONE, OnRunningChange.REPLACE, False, Action.DONE_AND_GONE),
        (SAME, GONE, OnRunningChange.FAIL, True, Action.LAUNCH),
        (SAME, RUNNING, OnRunningChange.FAIL, True, Action.KEEP),
        (OTHER_MIN, RUNNING, OnRunningChange.FAIL, False, Action.KEEP),
        (OTHER_MIN, GONE, OnRunningChange.FAIL, False, Action.DONE_AND_GONE),
        (OTHER_IMAGE, RUNNING, OnRunningChange.FAIL, False, Action.REFUSE),
        (OTHER_IMAGE, RUNNING, OnRunningChange.REPLACE, False, Action.RELAUNCH),
        (OTHER_IMAGE, RUNNING, OnRunningChange.IGNORE, False, Action.IGNORE),
        (OTHER_IMAGE, FINISHED, OnRunningChange.FAIL, False, Action.RELAUNCH),
        (OTHER_IMAGE, FINISHED, OnRunningChange.IGNORE, False, Action.RELAUNCH),
        (OTHER_IMAGE, GONE, OnRunningChange.FAIL, False, Action.RELAUNCH),
        (OTHER_IMAGE, GONE, OnRunningChange.FAIL, True, Action.RELAUNCH),
    ],
)
def test_what_becomes_of_a_recorded_run(
    desired: RunRecord, observed: JobStatus | None, policy: OnRunningChange, interrupted: bool, action: Action
) -> None:
    assert decided(desired, observed, policy, interrupted=interrupted).action is action


@pytest.mark.parametrize(
    ("desired", "observed", "interrupted", "action"),
    [
        (TAKEN_OVER, RUNNING, False, Action.REFUSE),
        (TAKEN_OVER, FINISHED, False, Action.IGNORE),
        (TAKEN_OVER, GONE, False, Action.DONE_AND_GONE),
        (TAKEN_OVER, GONE, True, Action.LAUNCH),
        (TAKEN_OVER_OTHER_IMAGE, FINISHED, False, Action.RELAUNCH),
        (TAKEN_OVER_OTHER_IMAGE, GONE, False, Action.RELAUNCH),
    ],
)
@pytest.mark.parametrize("policy", [OnRunningChange.FAIL, OnRunningChange.REPLACE])
def test_another_controller_is_no_reason_to_run_a_job_again(
    desired: RunRecord, observed: JobStatus | None, interrupted: bool, action: Action, policy: OnRunningChange
) -> None:
    controllers = frozenset({"api_version", "local_queue"})
    found = decide(RECORD, desired, observed, policy, NOW, interrupted=interrupted, controllers=controllers)
    asked_for = action is Action.REFUSE and policy is OnRunningChange.REPLACE
    assert found.action is (Action.RELAUNCH if asked_for else action)
    assert found.as_launched is (action in (Action.IGNORE, Action.DONE_AND_GONE))
    assert "api_version" in found.message or action is Action.LAUNCH
    # By the same controller, the same fields are another job.
    same = decide(RECORD, desired, observed, policy, NOW, interrupted=interrupted)
    assert same.action in (Action.REFUSE, Action.RELAUNCH)


def test_a_job_never_launched_is_launched() -> None:
    assert decided(SAME, GONE, record=None).action is Action.LAUNCH


@pytest.mark.parametrize("record", [None, RECORD])
def test_an_object_of_somebody_else_is_left_alone(record: RunRecord | None) -> None:
    assert decided(SAME, RUNNING, record=record, owned=False).action is Action.REFUSE


def test_a_refusal_names_field_run_age_and_ways_on() -> None:
    message = decided(OTHER_IMAGE, RUNNING).message
    for part in (
        "roles[trainer].image",
        "job-aa",
        "has been running for 5 min 4 s",
        "on_running_change",
        "`replace`",
        "`ignore`",
    ):
        assert part in message


def test_a_queued_run_is_not_said_to_be_running() -> None:
    assert (
        "which is PENDING, launched 5 min 4 s ago"
        in decided(OTHER_IMAGE, replace(RUNNING, state=JobState.PENDING)).message
    )


def test_a_look_at_the_state_says_so() -> None:
    assert "(as of the last refresh)" in decided(OTHER_IMAGE, RUNNING, live=False).message


def test_a_change_in_place_is_said() -> None:
    assert decided(OTHER_MIN, RUNNING).message == "in place: roles[trainer].min_replicas of run job-aa"
    assert decided(SAME, RUNNING).message == ""


def test_a_change_in_place_of_a_run_that_is_gone_is_a_no_op_that_says_so() -> None:
    message = decided(OTHER_MIN, GONE).message
    assert "roles[trainer].min_replicas has nothing to act on" in message
    assert "`rerun`" in message


def test_more_replicas_or_another_fixed_name_are_named() -> None:
    desired = replace(SAME, digests={**RECORD.digests, "roles[trainer].num_replicas": "8"}, hash="bb")
    assert decided(desired, RUNNING).fields == ["roles[trainer].num_replicas"]
    assert decided(SAME, RUNNING, renamed=True).fields == ["job_name"]


@pytest.mark.parametrize(("count", "end"), [(8, "env[7] would"), (9, "env[7], 1 more would")])
def test_a_message_names_the_first_eight_fields(count: int, end: str) -> None:
    changed = {f"env[{index}]": "9" for index in range(count)}
    message = decided(replace(SAME, digests={**RECORD.digests, **changed}, hash="bb"), RUNNING).message
    assert message.startswith("changing env[0], env[1], ")
    assert f"{end} relaunch" in message


@pytest.mark.parametrize(
    ("replicas", "launched"),
    [
        ({"trainer": 4, "reader": 2}, {"trainer": 4, "reader": 2}),
        ({"trainer": 2, "reader": 2}, {"trainer": 4, "reader": 2}),
        ({"trainer": 8, "reader": 1}, {"trainer": 8, "reader": 1}),
        ({"trainer": 2, "reader": 1, "more": 1}, {"trainer": 2, "reader": 1, "more": 1}),
        ({"reader": 1}, {"reader": 1}),
    ],
)
def test_a_job_that_only_shrank_counts_as_launched_before(replicas: dict[str, int], launched: dict[str, int]) -> None:
    assert launched_replicas(RECORD, replicas) == launched


def test_a_run_whose_object_is_retained_is_not_said_to_be_deleted() -> None:
    relaunch = decided(OTHER_IMAGE, RUNNING, OnRunningChange.REPLACE)
    beside = beside_retained(relaunch, RECORD, "train-x2")
    assert (beside.action, beside.fields) == (Action.RELAUNCH, relaunch.fields)
    assert "deleted" not in beside.message
    assert f"run {RECORD.job_name} stays in the cluster (retain_on_delete), in no stack, and runs on" in beside.message
    refused = beside_retained(relaunch, RECORD, RECORD.job_name)
    assert refused.action is Action.REFUSE
    assert "the new run has its name. Nothing was changed. Set retain_on_delete to False" in refused.message
