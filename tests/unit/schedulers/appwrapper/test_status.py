"""Status of an AppWrapper of either version, from every kind of observation a cluster was seen to give."""

from __future__ import annotations

import copy
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.schedulers.appwrapper.phases import MCAD_STATES, OPERATOR_PHASES

from tests.unit.schedulers.app_wrappers import (
    condition,
    mcad,
    mcad_condition,
    operators,
    pod,
    unschedulable,
    warning,
)
from tests.unit.schedulers.observed_objects import ENDED, read_mcad, terminated, waiting
from tests.unit.schedulers.volcano.test_status import JSON, paths

GOOD = [pod("trainer-0", "Succeeded", containerStatuses=terminated(0)), pod("trainer-1", "Succeeded")]
BAD = [pod("trainer-0", "Succeeded"), pod("trainer-1", "Failed", containerStatuses=terminated(3))]

STATES = {
    "Pending": "PENDING",
    "Running": "RUNNING",
    "RunningHoldCompletion": "RUNNING",
    "Completed": "SUCCEEDED",
    "Deleted": "FAILED",
    "Failed": "FAILED",
}

PHASES = {
    "Suspended": "PENDING",
    "Resuming": "PENDING",
    "Running": "RUNNING",
    "Resetting": "RUNNING",
    "Suspending": "RUNNING",
    "Succeeded": "SUCCEEDED",
    "Failed": "FAILED",
    "Terminating": "RUNNING",
}


@pytest.mark.parametrize(("word", "state"), STATES.items())
def test_each_state_of_mcad_has_its_state_a_reason_and_a_message(word: str, state: str) -> None:
    status = read_mcad(mcad(word))
    assert (status.state.value, status.phase) == (state, word)
    assert status.reason
    assert status.message


@pytest.mark.parametrize(("word", "state"), PHASES.items())
def test_each_phase_of_the_operator_has_its_state_a_reason_and_a_message(word: str, state: str) -> None:
    status = read_mcad(operators(word))
    assert (status.state.value, status.phase) == (state, word)
    assert status.reason
    assert status.message


def test_every_word_of_the_tables_is_tested() -> None:
    assert (MCAD_STATES.keys(), OPERATOR_PHASES.keys()) == (STATES.keys(), PHASES.keys())


@pytest.mark.parametrize("make", [mcad, operators])
def test_an_app_wrapper_without_a_state_was_just_submitted(make: Any) -> None:
    status = read_mcad(make(None))
    assert (status.state, status.reason) == (JobState.SUBMITTED, Reason.SUBMITTED)


@pytest.mark.parametrize("make", [mcad, operators])
def test_an_unknown_state_is_unknown_and_named(make: Any) -> None:
    status = read_mcad(make("Levitating"))
    assert (status.state, status.reason) == (JobState.UNKNOWN, Reason.UNREADABLE)
    assert "Levitating" in status.message


def test_an_absent_app_wrapper_is_unknown() -> None:
    assert read_mcad(None).reason is Reason.NOT_FOUND


@pytest.mark.parametrize("word", ["Running", "RunningHoldCompletion", "Completed"])
def test_the_end_comes_from_the_pods_whatever_mcad_says(word: str) -> None:
    good, bad = read_mcad(mcad(word), GOOD), read_mcad(mcad(word), BAD)
    assert (good.state, good.reason) == (JobState.SUCCEEDED, Reason.COMPLETED)
    assert (bad.state, bad.reason) == (JobState.FAILED, Reason.EXIT_CODE)
    assert bad.message == "exited with code 3 (1 of 2 replicas; pod app-trainer-1 on node n0)"
    assert [replica.exit_code for replica in bad.roles[0].replicas] == [None, 3]
    assert good.finished_at == datetime(2026, 3, 1, 10, 0, 40, tzinfo=timezone.utc)


def test_completed_with_failed_pods_is_failed_though_the_pods_are_gone() -> None:
    status = read_mcad(mcad("Completed", Succeeded=1, failed=1))
    assert (status.state, status.reason) == (JobState.FAILED, Reason.FAILED)
    assert "1 of 2 replicas failed" in status.message


def test_completed_without_failed_pods_is_succeeded() -> None:
    status = read_mcad(mcad("Completed", Succeeded=2))
    assert status.state is JobState.SUCCEEDED
    assert status.roles[0].counts == {JobState.SUCCEEDED: 2}


@pytest.mark.parametrize("pods", [(), None])
@pytest.mark.parametrize("counts", [{"Succeeded": 2}, {"Succeeded": 1, "failed": 1}, {"Succeeded": 1, "running": 1}])
def test_counts_of_mcad_are_no_end_while_it_says_that_it_runs(pods: Any, counts: dict[str, int]) -> None:
    assert read_mcad(mcad("RunningHoldCompletion", **counts), pods).state is JobState.RUNNING


def test_a_run_goes_on_while_one_pod_does_and_names_the_one_that_failed() -> None:
    status = read_mcad(mcad(), [pod("trainer-0"), BAD[1]])
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.EXIT_CODE)


def test_dispatched_pods_that_wait_are_pending_though_mcad_says_running() -> None:
    pods = [unschedulable("trainer-0", "0/5 nodes are available"), unschedulable("trainer-1", "0/5 nodes")]
    status = read_mcad(mcad("Running", mcad_condition("Dispatched", "AppWrapperRunnable")), pods)
    assert (status.state, status.reason) == (JobState.PENDING, Reason.UNSCHEDULABLE)
    assert status.message.startswith("no node for it now: 0/5 nodes are available")
    assert "Dispatched" not in status.message


def test_an_image_that_cannot_be_pulled_is_the_first_reason() -> None:
    bad = pod("trainer-1", "Pending", containerStatuses=waiting("ImagePullBackOff", "Back-off pulling image"))
    status = read_mcad(mcad(), [unschedulable("trainer-0", "no room"), bad])
    assert (status.state, status.reason) == (JobState.PENDING, Reason.IMAGE_UNAVAILABLE)
    assert "Back-off pulling image" in status.message
    assert status.diagnoses[1].detail == "no room"
    assert [one.reason for one in status.diagnoses] == [Reason.IMAGE_UNAVAILABLE, Reason.UNSCHEDULABLE]


def test_waiting_in_line_says_where() -> None:
    status = read_mcad(mcad("Pending", mcad_condition("Queueing", "AwaitingHeadOfLine"), queuejobstate="Queueing"))
    assert (status.state, status.reason, status.message) == (
        JobState.PENDING,
        Reason.WAITING_IN_QUEUE,
        "waiting in MCAD's line: its place is not known: Queueing: AwaitingHeadOfLine",
    )
    assert {c.type: c.status for c in status.conditions}["Admitted"] == "False"


def test_a_job_that_does_not_fit_says_so() -> None:
    said = mcad_condition("Backoff", "AppWrapperNotRunnable.", "Insufficient resources to dispatch AppWrapper.")
    status = read_mcad(mcad("Pending", said, queuejobstate="Backoff"))
    assert status.reason is Reason.UNSCHEDULABLE
    assert status.message == (
        "no node for it now: not enough resources: "
        "Backoff: AppWrapperNotRunnable: Insufficient resources to dispatch AppWrapper"
    )


def test_the_newest_condition_is_believed() -> None:
    old = mcad_condition("Backoff", "Old", at="2026-03-01T10:00:00.5Z")
    new = mcad_condition("HeadOfLine", "New", at="2026-03-01T10:00:02Z")
    assert "New" in read_mcad(mcad("Pending", new, old)).message


def test_reasons_for_waiting_are_merged_and_said_once() -> None:
    waits = [{"podname": "app-trainer-0", "conditions": [{"type": "PodScheduled", "message": "no gpu"}]}]
    groups = [{"metadata": {"name": "app-pg0"}, "status": {"phase": "Pending"}}]
    events = [warning("FailedScheduling", "no gpu"), warning("FailedMount", "claim is absent")]
    wrapper = mcad("Pending", mcad_condition("HeadOfLine", "FrontOfQueue."), pendingpodconditions=waits)
    status = read_mcad(wrapper, [], groups, events)
    assert status.reason is Reason.UNSCHEDULABLE
    assert status.diagnoses[0].detail.split("; ") == [
        "pod app-trainer-0: no gpu",
        "HeadOfLine: FrontOfQueue",
        "PodGroup app-pg0 is Pending",
        "FailedScheduling: no gpu",
    ]


def test_a_gang_that_was_refused_gives_the_reason_that_the_scheduler_hides_in_its_events() -> None:
    pods = [unschedulable(t, "0/1 nodes are available: 1 optimistic rejection in PostFilter.") for t in ("trainer-0",)]
    events = [
        warning("FailedScheduling", "0/1 nodes are available: 1 optimistic rejection in PostFilter."),
        warning("FailedScheduling", "pre-filter pod cannot find enough sibling pods"),
        warning("FailedScheduling", "0/3 nodes are available: 2 Insufficient cpu."),
    ]
    status = read_mcad(mcad(), pods, [], events)
    assert status.reason is Reason.UNSCHEDULABLE
    assert status.message.startswith(
        "no node for it now: not enough cpu: 0/3 nodes are available: 2 Insufficient cpu. / "
    )


def test_what_was_said_before_pods_had_a_node_is_no_reason_any_more() -> None:
    backoff = mcad_condition("Backoff", "AppWrapperNotRunnable.", "Insufficient resources to dispatch AppWrapper.")
    wrapper = mcad("Pending", backoff, queuejobstate="Backoff")
    groups = [{"metadata": {"name": "app-pg0"}, "status": {"phase": "Pending"}}]
    about = [
        {
            **warning("FailedScheduling", "0/3 nodes are available: 2 Insufficient cpu."),
            "involvedObject": {"name": name},
        }
        for name in ("app-trainer-0", "app")
    ]
    placed = [pod(task, "Pending") for task in ("trainer-0", "trainer-1")]
    status = read_mcad(wrapper, placed, groups, about)
    assert (status.state, status.reason, status.diagnoses) == (JobState.PENDING, Reason.STARTING, ())
    assert status.message == (
        "placed on its node; the container is being created (2 of 2 replicas; pod app-trainer-0 on node n0)"
    )
    assert {one.type: one.status for one in status.conditions}["Admitted"] == "True"
    # Of one of two pods, only what was said about it is old.
    status = read_mcad(mcad(), [placed[0], unschedulable("trainer-1", "no gpu")], [], about[:1])
    assert (status.reason, "Insufficient" in status.message) == (Reason.UNSCHEDULABLE, False)
    # Pods that run already, while MCAD has not looked again.
    running = [pod("trainer-0"), pod("trainer-1")]
    status = read_mcad(wrapper, running, groups, about)
    assert (status.state, status.reason, status.diagnoses) == (JobState.PENDING, Reason.STARTING, ())
    assert status.message == "its pods have nodes; MCAD's controller reports 'Pending'"
    # A requeued AppWrapper whose pods end waits in the queue again.
    ending = [{**each, "metadata": {**each["metadata"], "deletionTimestamp": ENDED}} for each in running]
    assert "Insufficient resources" in read_mcad(wrapper, ending).message


def test_pods_that_no_scheduler_looks_at_name_it() -> None:
    waits = pod("trainer-0", "Pending", node=None)
    waits["spec"]["schedulerName"] = "nope"
    status = read_mcad(mcad(tasks=("trainer-0",)), [waits])
    assert (status.state, "scheduler 'nope' has not looked" in status.message) == (JobState.PENDING, True)


def test_deleted_is_a_failure_only_while_the_object_is_not_being_deleted() -> None:
    # MCAD gives this state to an AppWrapper that was requeued as often as it may be, and to one that is being deleted.
    exhausted, removed = read_mcad(mcad("Deleted")), read_mcad(mcad("Deleted", deleted=True))
    assert (exhausted.state, exhausted.reason) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED)
    assert (removed.state, removed.reason) == (JobState.UNKNOWN, Reason.NOT_FOUND)


def test_an_app_wrapper_that_is_being_deleted_is_stopping() -> None:
    status = read_mcad(mcad(deleted=True), [pod("trainer-0"), pod("trainer-1")])
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.STOPPING)


def test_a_failure_with_retries_left_is_not_the_end() -> None:
    status = read_mcad(mcad(retries=2, numberOfRequeueings=1), BAD)
    assert (status.state, status.reason, status.attempt) == (JobState.RUNNING, Reason.RESTARTING, 2)
    assert "retry 2 of 2" in status.message


def test_a_failure_without_retries_left_is_the_end() -> None:
    status = read_mcad(mcad(retries=2, numberOfRequeueings=2), BAD)
    assert (status.state, status.reason) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED)
    assert "exited with code 3" in status.message


@pytest.mark.parametrize("state", ["Pending", "Running"])
def test_more_requeues_than_allowed_are_a_failure_though_mcad_goes_on(state: str) -> None:
    status = read_mcad(mcad(state, retries=1, numberOfRequeueings=2), [pod("trainer-0"), pod("trainer-1")])
    assert (status.state, status.reason) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED)
    assert status.message.startswith("started again 2 times, of which 1 were allowed")


def test_a_job_that_succeeds_in_its_last_retry_succeeded() -> None:
    assert read_mcad(mcad(retries=1, numberOfRequeueings=1), GOOD).state is JobState.SUCCEEDED


def test_two_roles_of_an_app_wrapper_are_kept_apart() -> None:
    tasks = ("trainer-0", "trainer-1", "reader-0")
    status = read_mcad(mcad(tasks=tasks), [pod("trainer-1"), pod("reader-0", "Failed")])
    assert [(role.name, [r.state.value for r in role.replicas]) for role in status.roles] == [
        ("trainer", ["PENDING", "RUNNING"]),
        ("reader", ["FAILED"]),
    ]


def test_pods_of_others_do_not_count() -> None:
    status = read_mcad(mcad(), [*GOOD, pod("other-0", "Failed")])
    assert status.state is JobState.SUCCEEDED


@pytest.mark.parametrize("pods", [GOOD, BAD])
def test_the_operators_phase_alone_tells_the_end(pods: Any) -> None:
    assert read_mcad(operators(), pods).state is JobState.RUNNING
    assert read_mcad(operators("Succeeded"), pods).state is JobState.SUCCEEDED
    failed = read_mcad(operators("Failed"), BAD)
    assert (failed.state, failed.reason) == (JobState.FAILED, Reason.EXIT_CODE)


MISSING = condition("Unhealthy", "True", "MissingComponent", "Only found 2 deployed components, but was expecting 3")
LEAVES = pod("trainer-1")
LEAVES["metadata"]["deletionTimestamp"] = ENDED
TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}
DRAINED = {"phase": "Running", "conditions": [TARGET]}


@pytest.mark.parametrize(
    ("pods", "reason", "said"),
    [
        ([pod("trainer-0")], Reason.POD_GONE, "app-trainer-1 was deleted before the end of the job"),
        # The other one fails because the first is gone.
        (
            [pod("trainer-0", "Failed", containerStatuses=terminated(1))],
            Reason.POD_GONE,
            "app-trainer-1 was deleted before the end of the job",
        ),
        ([pod("trainer-0"), LEAVES], Reason.POD_GONE, "app-trainer-1 was deleted before the end of the job"),
        ([pod("trainer-0"), {**LEAVES, "status": DRAINED}], Reason.EVICTED, "was evicted, as when a node is drained"),
        # Later the operator deletes all pods, and which were missing is not known. A Service may have been.
        ([], Reason.FAILED, "MissingComponent: Only found 2 deployed components"),
        (GOOD, Reason.FAILED, "MissingComponent: Only found 2 deployed components"),
    ],
)
def test_an_operators_job_that_a_deleted_pod_ended_names_it_and_its_retries_are_no_cause(
    pods: Any, reason: Reason, said: str
) -> None:
    for retries in (3, 1):
        status = read_mcad(operators("Failed", MISSING, retries=retries, resettingCount=1), pods)
        assert (status.state, status.reason) == (JobState.FAILED, reason)
        assert said in status.message
        if reason is not Reason.FAILED:
            assert "max_retries of an AppWrapper v1beta2 does not cover a deleted pod" in status.diagnoses[0].resolution


def test_an_operators_job_out_of_retries_says_so() -> None:
    status = read_mcad(operators("Failed", retries=2, resettingCount=2), BAD)
    assert (status.state, status.reason, status.attempt) == (JobState.FAILED, Reason.RETRIES_EXHAUSTED, 3)


def test_suspended_by_hand_and_waiting_for_kueue_are_told_apart() -> None:
    by_hand = read_mcad(operators("Suspended", suspend=True))
    assert (by_hand.state, by_hand.reason) == (JobState.PENDING, Reason.SUSPENDED)
    queued = read_mcad(operators("Suspended", suspend=True, queue="team-a"))
    assert (queued.reason, "'team-a'" in queued.message) == (Reason.WAITING_IN_QUEUE, True)


def test_operators_pods_that_wait_give_their_reason() -> None:
    ready = condition("PodsReady", "False", "InsufficientPodsReady", "2 pods pending; 0 pods running")
    status = read_mcad(
        operators("Running", ready), [unschedulable(task, "no gpu") for task in ("trainer-0", "trainer-1")]
    )
    assert (status.state, status.reason) == (JobState.PENDING, Reason.UNSCHEDULABLE)
    assert "no gpu" in status.message
    unseen = read_mcad(
        operators("Running", ready), [pod(task, "Pending", node=None) for task in ("trainer-0", "trainer-1")]
    )
    assert (unseen.state, "2 pods pending" in unseen.message) == (JobState.PENDING, True)


@given(data=st.data())
def test_half_filled_objects_never_raise(data: st.DataObject) -> None:
    waits = [{"podname": "app-trainer-0", "conditions": [{"type": "PodScheduled", "message": "no gpu"}]}]
    whole = [
        mcad(
            "Pending", mcad_condition("Backoff", "R", "M"), retries=2, numberOfRequeueings=1, pendingpodconditions=waits
        ),
        operators("Suspended", condition("Unhealthy", "True", "R", "M"), retries=1, queue="q", resettingCount=1),
        BAD[1],
        unschedulable("trainer-0", "no room"),
        {"metadata": {"name": "g"}, "status": {"phase": "Pending"}},
        warning("R", "M"),
    ]
    broken = copy.deepcopy(whole)
    *way, last = data.draw(st.sampled_from(paths(broken)).filter(lambda path: len(path) > 1))
    target: Any = broken
    for key in way:
        target = target[key]
    target[last] = data.draw(JSON)
    first, second, one, other, group, event = broken
    for wrapper in (first, second):
        status = read_mcad(wrapper, [one, other], [group], [event])
        assert isinstance(status.state, JobState)
        assert status.reason
        assert status.message


@given(wrapper=JSON, one=JSON, group=JSON, event=JSON)
def test_anything_at_all_reads_as_a_state(wrapper: Any, one: Any, group: Any, event: Any) -> None:
    assert read_mcad(wrapper, [one], [group], [event]).message
