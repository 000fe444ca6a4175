"""Status of a Volcano job, from every kind of observation a cluster was seen to give, whole or in half."""

from __future__ import annotations

import copy
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx_pulumi.model.launch_options import WaitFor
from torchx_pulumi.model.status import JobState, Reason
from torchx_pulumi.runs.waiting import reached
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.volcano.status import PHASES

from tests.unit.schedulers.observed_objects import (
    condition,
    pod,
    pod_group,
    read_gang_pods,
    read_volcano,
    terminated,
    vcjob,
    waiting,
)

TABLE = {
    "Pending": "PENDING",
    "Running": "RUNNING",
    "Restarting": "RUNNING",
    "Aborting": "RUNNING",
    "Terminating": "RUNNING",
    "Completing": "RUNNING",
    "Aborted": "CANCELLED",
    "Completed": "SUCCEEDED",
    "Terminated": "FAILED",
    "Failed": "FAILED",
}


@pytest.mark.parametrize(("phase", "state"), TABLE.items())
def test_each_phase_has_its_state_a_reason_and_a_message(phase: str, state: str) -> None:
    status = read_volcano(vcjob(phase))
    assert (status.state.value, status.phase) == (state, phase)
    assert status.reason
    assert status.message


def test_a_stopped_job_says_once_that_it_can_be_resumed() -> None:
    status = read_volcano(vcjob("Aborted"))
    (one,) = status.diagnoses
    assert (status.message, one.summary, one.resolution.count("resume")) == ("stopped", "stopped", 2)


def test_every_phase_of_the_table_is_tested() -> None:
    assert PHASES.keys() == TABLE.keys()


def test_states_have_the_names_of_torchx() -> None:
    appstate = pytest.importorskip("torchx.specs").AppState
    assert {state.value for state in JobState} == {state.name for state in appstate}


def test_a_job_without_a_phase_was_just_submitted() -> None:
    status = read_volcano(vcjob(None))
    assert (status.state, status.reason) == (JobState.SUBMITTED, Reason.SUBMITTED)


def test_an_unknown_phase_is_unknown_and_named() -> None:
    status = read_volcano(vcjob("Levitating"))
    assert (status.state, status.reason) == (JobState.UNKNOWN, Reason.UNREADABLE)
    assert "Levitating" in status.message


def test_an_absent_job_is_unknown_with_a_reason() -> None:
    assert read_volcano(None).reason is Reason.NOT_FOUND
    assert read_gang_pods(None, []).reason is Reason.NOT_FOUND


def test_replicas_come_with_pod_node_and_role() -> None:
    status = read_volcano(vcjob(tasks=["my-train-0", "my-train-1"]), [pod("my-train-1", node="n3"), pod("my-train-0")])
    (role,) = status.roles
    assert role.name == "my-train"
    assert [(r.id, r.pod, r.node, r.state) for r in role.replicas] == [
        (0, "app-my-train-0-0", "n0", JobState.RUNNING),
        (1, "app-my-train-1-0", "n3", JobState.RUNNING),
    ]
    assert role.counts == {JobState.RUNNING: 2}


def test_a_failed_replica_gives_exit_code_node_and_pod() -> None:
    pods = [pod("trainer-0", "Succeeded"), pod("trainer-1", "Failed", containerStatuses=terminated(3))]
    status = read_volcano(vcjob("Failed"), pods)
    assert (status.state, status.reason) == (JobState.FAILED, Reason.EXIT_CODE)
    assert status.message == "exited with code 3 (1 of 2 replicas; pod app-trainer-1-0 on node n0)"
    assert status.roles[0].replicas[1].exit_code == 3


def test_a_failed_replica_is_named_while_the_job_runs_on() -> None:
    pods = [pod("trainer-0"), pod("trainer-1", "Failed", containerStatuses=terminated(3))]
    status = read_volcano(vcjob("Running"), pods)
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.EXIT_CODE)


def test_out_of_memory_is_not_just_an_exit_code() -> None:
    status = read_volcano(vcjob("Failed"), [pod(phase="Failed", containerStatuses=terminated(137, "OOMKilled"))])
    assert status.reason is Reason.OUT_OF_MEMORY
    assert "memory" in status.message


def test_a_termination_message_is_passed_on() -> None:
    pods = [pod(phase="Failed", containerStatuses=terminated(1, message="ValueError: no data\n"))]
    assert "ValueError: no data" in read_volcano(vcjob("Failed"), pods).message


def test_an_image_that_cannot_be_pulled_is_the_reason_though_the_gang_is_scheduled() -> None:
    said = 'Back-off pulling image "img:1": ErrImagePull: not found'
    pods = [pod(phase="Pending", containerStatuses=waiting("ImagePullBackOff", said))]
    status = read_volcano(vcjob("Pending"), pods, pod_group("Running", condition("Scheduled", "2026-03-01T10:00:01Z")))
    assert (status.state, status.reason) == (JobState.PENDING, Reason.IMAGE_UNAVAILABLE)
    assert "img:1" in status.message
    assert "not found" in status.message
    assert status.roles[0].replicas[0].restarts == 2


def test_a_missing_secret_is_a_refused_container() -> None:
    pods = [pod(phase="Pending", containerStatuses=waiting("CreateContainerConfigError", 'secret "s" not found'))]
    status = read_volcano(vcjob("Pending"), pods)
    assert (status.reason, 'secret "s" not found' in status.message) == (Reason.CONTAINER_REFUSED, True)


def test_an_unschedulable_gang_gives_the_text_of_its_pod_group() -> None:
    group = pod_group("Inqueue", condition("Unschedulable", "2026-03-01T10:00:01Z", "8/8 tasks in gang unschedulable"))
    status = read_volcano(vcjob("Pending"), [], group)
    assert (status.state, status.reason, status.message) == (
        JobState.PENDING,
        Reason.UNSCHEDULABLE,
        "no node for it now: 8/8 tasks in gang unschedulable",
    )


def test_a_stale_unschedulable_condition_is_not_believed() -> None:
    group = pod_group(
        "Running",
        condition("Unschedulable", "2026-03-01T10:00:01Z", "0/0 tasks in gang unschedulable"),
        condition("Scheduled", "2026-03-01T10:00:02Z"),
    )
    assert read_volcano(vcjob("Pending"), [], group).reason is not Reason.UNSCHEDULABLE


def test_a_gang_that_the_queue_has_not_admitted_names_the_queue() -> None:
    status = read_volcano(vcjob("Pending"), [], pod_group("Pending"))
    assert (status.reason, "'default'" in status.message) == (Reason.WAITING_IN_QUEUE, True)
    for phase, admitted in (("Pending", "False"), ("Unknown", "True")):
        status = read_volcano(vcjob("Pending"), [], pod_group(phase))
        assert {c.type: c.status for c in status.conditions}["Admitted"] == admitted


def test_an_evicted_pod_says_so() -> None:
    pods = [pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")]
    status = read_volcano(vcjob("Failed"), pods)
    assert (status.reason, "low on resource" in status.message) == (Reason.EVICTED, True)


def disrupted(reason: str) -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "preempted"}]


@pytest.mark.parametrize(
    ("phase", "status", "reason"),
    [
        ("Failed", {"containerStatuses": terminated(143)}, Reason.EXIT_CODE),
        ("Failed", {"containerStatuses": terminated(137, "OOMKilled")}, Reason.OUT_OF_MEMORY),
        ("Failed", {"containerStatuses": waiting("ImagePullBackOff", "not found")}, Reason.FAILED),
        ("Failed", {}, Reason.FAILED),
        ("Running", {"containerStatuses": waiting("ImagePullBackOff", "not found")}, Reason.IMAGE_UNAVAILABLE),
        ("Running", {"containerStatuses": terminated(128, "StartError")}, Reason.RUNNING),
    ],
)
def test_the_reason_of_a_replica_comes_from_its_containers_and_not_from_a_disruption(
    phase: str, status: dict[str, Any], reason: Reason
) -> None:
    pods = [pod(phase=phase, conditions=disrupted("PreemptionByScheduler"), **status)]
    replica = read_volcano(vcjob("Running"), pods).roles[0].replicas[0]
    assert replica.reason is reason


def test_a_pod_that_volcano_counts_as_succeeded_does_not_complete_the_job() -> None:
    counts = {"trainer-0": {"phase": {"Succeeded": 1}}}
    replica = read_volcano(vcjob("Running", status={"taskStatusCount": counts})).roles[0].replicas[0]
    assert (replica.state, replica.message) == (JobState.SUCCEEDED, "the scheduler counts the pod as succeeded")


def test_without_pods_the_counts_of_the_job_speak() -> None:
    counts = {"trainer-0": {"phase": {"Succeeded": 1}}, "trainer-1": {"phase": {"Failed": 1}}}
    status = read_volcano(vcjob("Failed", status={"taskStatusCount": counts}))
    assert [r.state for r in status.roles[0].replicas] == [JobState.SUCCEEDED, JobState.FAILED]


def test_a_cancelled_job_has_cancelled_replicas_when_its_pods_are_gone() -> None:
    assert read_volcano(vcjob("Aborted")).roles[0].counts == {JobState.CANCELLED: 2}


def test_surplus_tasks_are_no_replicas() -> None:
    job = vcjob()
    job["spec"]["tasks"][1]["replicas"] = 0
    assert [r.id for r in read_volcano(job).roles[0].replicas] == [0]


def test_times_are_aware_and_the_end_is_known_for_a_finished_job_only() -> None:
    pods = [pod(phase="Succeeded", containerStatuses=terminated(0, "Completed"))]
    done = read_volcano(vcjob("Completed"), pods)
    assert done.queued_at == datetime(2026, 3, 1, 10, tzinfo=timezone.utc)
    assert done.started_at == datetime(2026, 3, 1, 10, 0, 5, tzinfo=timezone.utc)
    assert done.finished_at == datetime(2026, 3, 1, 10, 0, 40, tzinfo=timezone.utc)
    assert read_volcano(vcjob("Running"), pods).finished_at is None


def test_retries_are_attempts() -> None:
    assert read_volcano(vcjob("Running", status={"retryCount": 2})).attempt == 3


def test_gang_pods_run_while_one_runs_and_fail_when_all_have_ended() -> None:
    bad = pod("trainer-1", "Failed", containerStatuses=terminated(3))
    going = read_gang_pods(pod_group(), [pod("trainer-0"), bad])
    assert (going.state, going.reason) == (JobState.RUNNING, Reason.EXIT_CODE)
    over = read_gang_pods(pod_group(), [pod("trainer-0", "Succeeded"), bad])
    assert (over.state, over.reason, over.finished_at is not None) == (JobState.FAILED, Reason.EXIT_CODE, True)
    good = read_gang_pods(pod_group(), [pod("trainer-0", "Succeeded"), pod("trainer-1", "Succeeded")])
    assert (good.state, good.reason) == (JobState.SUCCEEDED, Reason.COMPLETED)


def test_gang_pods_that_wait_name_the_queue_of_the_pod_group() -> None:
    status = read_gang_pods(pod_group(None), [pod(phase="Pending", node=None)])
    assert (status.reason, "'q1'" in status.message) == (Reason.WAITING_IN_QUEUE, True)


def gang(members: int = 4, *conditions: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    group = pod_group(phase, *conditions)
    return {**group, "spec": {**group["spec"], "minMember": members}}


NAMES = {"trainer": [f"app-trainer-{index}-0" for index in range(4)]}
SCHEDULED = condition("Scheduled", "2026-03-01T10:00:03Z")


@pytest.mark.parametrize("expected", [None, NAMES])
def test_three_pods_that_succeeded_are_no_success_where_the_fourth_is_gone(expected: Any) -> None:
    three = [pod(f"trainer-{index}", "Succeeded", containerStatuses=terminated(0)) for index in range(3)]
    status = read_gang_pods(gang(), three, expected)
    assert (status.state, status.reason) == (JobState.FAILED, Reason.POD_GONE)
    assert "1 of 4 pods were deleted before their end was seen; 3 succeeded" in status.message
    if expected:
        assert (status.roles[0].replicas[3].pod, status.roles[0].replicas[3].reason) == (
            "app-trainer-3-0",
            Reason.POD_GONE,
        )
    whole = [*three, pod("trainer-3", "Succeeded")]
    assert read_gang_pods(gang(), whole, expected).state is JobState.SUCCEEDED
    failed = read_gang_pods(gang(), [*three[:2], pod("trainer-2", "Failed", containerStatuses=terminated(3))], expected)
    assert (failed.state, failed.reason) == (JobState.FAILED, Reason.EXIT_CODE)
    assert "exited with code 3" in failed.message


@pytest.mark.parametrize(
    ("group", "expected", "state"),
    [
        (gang(4, phase="Pending"), None, "SUBMITTED"),
        (gang(4, SCHEDULED), None, "FAILED"),
        (gang(4, phase="Pending"), NAMES, "FAILED"),
    ],
)
def test_a_gang_whose_pods_are_all_gone_has_ended_unless_none_was_made_yet(
    group: Any, expected: Any, state: str
) -> None:
    assert read_gang_pods(group, [], expected).state.value == state


@pytest.mark.parametrize("expected", [None, NAMES])
def test_one_of_four_that_runs_is_no_running_gang(expected: Any) -> None:
    pods = [pod("trainer-0"), *(pod(f"trainer-{index}", "Pending") for index in (1, 2, 3))]
    status = read_gang_pods(gang(), pods, expected)
    assert (status.state, status.message) == (
        JobState.PENDING,
        "1 of the 4 replicas that it needs at once have started",
    )
    assert read_gang_pods(gang(1), pods, expected).state is JobState.RUNNING
    assert not reached(status, WaitFor.RUNNING)


@pytest.mark.parametrize("expected", [None, NAMES])
def test_a_gang_with_fewer_pods_than_it_needs_has_failed(expected: Any) -> None:
    status = read_gang_pods(gang(), [pod("trainer-0")], expected)
    assert (status.state, status.reason) == (JobState.FAILED, Reason.POD_GONE)


def test_a_gang_that_still_has_as_many_pods_as_it_needs_runs_and_names_the_pod_that_is_gone() -> None:
    status = read_gang_pods(gang(3), [pod(f"trainer-{index}") for index in range(3)], NAMES)
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.POD_GONE)
    assert not reached(status, WaitFor.RUNNING)


def test_what_is_expected_of_another_size_of_the_gang_is_not_believed() -> None:
    grown = [pod(f"trainer-{index}", "Succeeded") for index in range(4)]
    assert read_gang_pods(gang(), grown, {"trainer": NAMES["trainer"][:2]}).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, "SUBMITTED"),
        ({"running": 3, "succeeded": 1}, "RUNNING"),
        ({"succeeded": 4}, "RUNNING"),
        ({"succeeded": 3, "failed": 1}, "RUNNING"),
        ({"failed": 1}, "RUNNING"),
    ],
)
def test_without_its_pods_a_gang_shows_no_end(counts: dict[str, int], state: str) -> None:
    group = gang()
    group["status"].update(counts)
    status = read_gang_pods(group, None)
    assert (status.state.value, "pods were not read" in status.message) == (state, True)
    assert read_gang_pods(group, None, NAMES).state.value == state


def test_an_elastic_job_that_completed_without_one_replica_says_so() -> None:
    seen = [
        pod("trainer-0", "Succeeded", containerStatuses=terminated(0)),
        pod("trainer-1", "Failed", containerStatuses=terminated(3)),
    ]
    status = read_volcano(vcjob("Completed"), seen)
    assert (status.state, status.reason) == (JobState.SUCCEEDED, Reason.COMPLETED)
    assert (
        "1 of 2 replicas succeeded; exited with code 3 (1 of 2 replicas; pod app-trainer-1-0 on node n0)"
        in status.message
    )
    counts = {"taskStatusCount": {"trainer-0": {"phase": {"Succeeded": 1}}, "trainer-1": {"phase": {"Failed": 1}}}}
    assert "1 of 2 replicas succeeded" in read_volcano(vcjob("Completed", status=counts)).message
    assert read_volcano(vcjob("Completed"), seen[:1]).message == "all replicas exited with code 0"
    gone = read_volcano(vcjob("Completed", status={"succeeded": 1, "failed": 1}), [])
    assert gone.message == "completed, and Volcano counts 1 failed pods"


@pytest.mark.parametrize(("phase", "reason"), [("Restarting", Reason.RESTARTING), ("Aborting", Reason.STOPPING)])
def test_a_job_that_restarts_or_stops_says_so_while_failed_pods_are_visible(phase: str, reason: Reason) -> None:
    status = read_volcano(vcjob(phase), [pod("trainer-0", "Failed", containerStatuses=terminated(3))])
    assert (status.state, status.reason) == (JobState.RUNNING, reason)
    assert "exited with code 3" in status.message


@pytest.mark.parametrize("phase", ["Running", "Pending", None])
def test_a_job_that_is_being_deleted_says_so(phase: str | None) -> None:
    job = vcjob(phase)
    job["metadata"]["deletionTimestamp"] = "2026-03-01T10:01:00Z"
    status = read_volcano(job, [pod()])
    assert (status.reason, status.message) == (Reason.STOPPING, "the job is being deleted")
    group = gang(1)
    group["metadata"]["deletionTimestamp"] = "2026-03-01T10:01:00Z"
    assert read_gang_pods(group, [pod()]).reason is Reason.STOPPING
    job["status"]["state"] = {"phase": "Completed"}
    assert read_volcano(job).reason is Reason.COMPLETED


def test_without_its_pods_a_job_goes_by_its_own_counts() -> None:
    counts = {"taskStatusCount": {"trainer-0": {"phase": {"Running": 1}}}}
    status = read_volcano(vcjob("Running", status=counts), None)
    assert [(one.state, one.message) for one in status.roles[0].replicas] == [
        (JobState.RUNNING, "the scheduler counts the pod as running"),
        (JobState.PENDING, "its pod was not read"),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [prefix] if prefix else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths(inner, (*prefix, key))
    return found


@given(data=st.data())
def test_half_filled_objects_never_raise(data: st.DataObject) -> None:
    whole = [
        vcjob("Failed", status={"taskStatusCount": {"trainer-0": {"phase": {"Failed": 1}}}}),
        pod(phase="Failed", containerStatuses=terminated(3)),
        pod(
            "trainer-1",
            "Pending",
            containerStatuses=waiting("ImagePullBackOff", "no"),
            conditions=[{"type": "PodScheduled"}],
        ),
        pod_group("Inqueue", condition("Unschedulable", "2026-03-01T10:00:01Z", "no room")),
    ]
    broken = copy.deepcopy(whole)
    *way, last = data.draw(st.sampled_from(paths(broken)).filter(lambda path: len(path) > 1))
    target: Any = broken
    for key in way:
        target = target[key]
    target[last] = data.draw(JSON)
    job, first, second, group = broken
    for status in (read_volcano(job, [first, second], group), read_gang_pods(group, [first, second])):
        assert isinstance(status.state, JobState)
        assert status.reason
        assert status.message


@given(job=JSON, one=JSON, group=JSON)
def test_anything_at_all_reads_as_a_state(job: Any, one: Any, group: Any) -> None:
    assert read_volcano(job, [one], group).message
    assert read_gang_pods(group, [one]).message


COMPLETES = {"event": "TaskCompleted", "action": "CompleteJob"}
FAILS = {"event": "PodFailed", "action": "TerminateJob"}
FAILED = terminated(3)


def ordered_job(phase: str, gang: int, **changes: dict[str, Any]) -> dict[str, Any]:
    """Return a job of one master and two workers, with changes of their tasks; `gang` is its minAvailable."""
    made = vcjob(phase, tasks=["master-0", "worker-0", "worker-1"])
    made["spec"]["minAvailable"] = gang
    for task in made["spec"]["tasks"]:
        task.update(changes.get(task["name"].split("-")[0], {}))
    return made


@pytest.mark.parametrize(
    ("phase", "pods", "state", "reason", "workers", "message"),
    [
        (
            "Running",
            [pod("master-0"), pod("worker-0"), pod("worker-1", "Succeeded")],
            "RUNNING", "Running", ["RUNNING Running", "SUCCEEDED Completed"], "running",
        ),
        (
            "Running",
            [pod("master-0", "Succeeded"), pod("worker-0"), pod("worker-1")],
            "RUNNING", "Stopping", ["RUNNING Running"] * 2,
            "role master has succeeded, which completes the job; the other replicas are being stopped",
        ),
        (
            "Completing",
            [pod("master-0", "Succeeded"), pod("worker-0")],
            "RUNNING", "Stopping", ["RUNNING Running", "PENDING WaitingForPods"],
            "role master has succeeded, which completes the job; the other replicas are being stopped",
        ),
        (
            "Completed",
            [pod("master-0", "Succeeded")],
            "SUCCEEDED", "Completed", ["CANCELLED RoleEnded"] * 2,
            "role master has succeeded, which completes the job; other replicas: 2 stopped",
        ),
        (
            "Completed",
            [pod("master-0", "Succeeded"), pod("worker-0", "Failed", containerStatuses=FAILED)],
            "SUCCEEDED", "Completed", ["FAILED ExitCode", "CANCELLED RoleEnded"],
            "role master has succeeded, which completes the job; other replicas: 1 stopped, 1 failed before",
        ),
        (
            "Terminated",
            [pod("master-0", "Failed", containerStatuses=FAILED)],
            "FAILED", "ExitCode", ["CANCELLED RoleEnded"] * 2, "exited with code 3 (pod app-master-0-0 on node n0)",
        ),
    ],
)  # fmt: skip
def test_a_job_ends_with_one_of_its_roles(
    phase: str, pods: list[Any], state: str, reason: str, workers: list[str], message: str
) -> None:
    status = read_volcano(ordered_job(phase, 3, master={"policies": [COMPLETES, FAILS]}), pods)
    assert (status.state.value, status.reason.value) == (state, reason)
    assert [f"{one.state.value} {one.reason.value}" for one in status.roles[1].replicas] == workers
    assert message in status.message


@pytest.mark.parametrize(
    ("phase", "worker", "pods", "state", "reason", "message"),
    [
        ("Running", {}, [pod("master-0")], "RUNNING", "Running", "running"),
        (
            "Pending", {}, [pod("master-0", "Pending")],
            "PENDING", "WaitingForPods", "",
        ),
        (
            "Running", {}, [pod("master-0", "Succeeded"), pod("worker-0", "Succeeded"), pod("worker-1")],
            "RUNNING", "Running", "running",
        ),
        (
            "Completed", {},
            [pod("master-0", "Succeeded"), *(pod(f"worker-{n}", "Failed", containerStatuses=FAILED) for n in (0, 1))],
            "FAILED", "ExitCode", "exited with code 3 (2 of 3 replicas; pod app-worker-0-0 on node n0)",
        ),
        (
            "Completed", {"minAvailable": 0},
            [pod("master-0", "Succeeded"), pod("worker-0", "Succeeded"), pod("worker-1", "Failed")],
            "SUCCEEDED", "Completed", "2 of 3 replicas succeeded",
        ),
        ("Completed", {}, [pod("master-0", "Succeeded")], "SUCCEEDED", "Completed", "all replicas exited with code 0"),
    ],
)  # fmt: skip
def test_a_job_with_a_role_that_waits_is_judged_by_its_roles(
    phase: str, worker: dict[str, Any], pods: list[Any], state: str, reason: str, message: str
) -> None:
    depends = {"dependsOn": {"name": ["master-0"]}, **worker}
    status = read_volcano(ordered_job(phase, 1, worker=depends), pods)
    assert (status.state.value, status.reason.value) == (state, reason)
    assert message in status.message


def test_a_role_that_waits_says_for_what() -> None:
    def waiting_on(*workers: dict[str, Any]) -> Any:
        return read_volcano(
            ordered_job("Running", 2, master={"dependsOn": {"name": ["worker-0", "worker-1"]}}), workers
        )

    status = waiting_on(pod("worker-0"), pod("worker-1", "Pending"))
    (launcher,) = status.roles[0].replicas
    assert (launcher.state, launcher.reason) == (JobState.PENDING, Reason.WAITING_FOR_ROLE)
    assert launcher.message == "its role starts after another one"
    assert status.message == "role master starts after worker (1 of 2 run)"
    assert waiting_on(pod("worker-0"), pod("worker-1")).roles[0].replicas[0].reason is Reason.WAITING_FOR_PODS
    counted = ordered_job("Running", 2, master={"dependsOn": {"name": ["worker-0", "gone"]}})
    counted["status"]["taskStatusCount"] = {"worker-0": {"phase": {"Running": 1}}}
    assert read_volcano(counted, None).roles[0].replicas[0].reason is Reason.WAITING_FOR_PODS


def test_a_job_whose_controller_missed_the_end_of_its_role_says_how_to_end_it() -> None:
    ended = pod("master-0", "Succeeded", containerStatuses=terminated(0, "Completed"))
    job = ordered_job("Running", 3, master={"policies": [COMPLETES]})
    for minute, reasons in ((1, [Reason.STOPPING]), (2, [Reason.STOPPING, Reason.CONTROLLER_ABSENT])):
        at = datetime(2026, 3, 1, 10, minute, 30, tzinfo=timezone.utc)
        seen = ObservedObjects(job_object=job, pods=[ended, pod("worker-0"), pod("worker-1")], at=at)
        diagnoses = find_backend("volcano").variants["job"].read_status(seen).diagnoses
        assert [one.reason for one in diagnoses] == reasons
    assert "torchx-pulumi cancel" in diagnoses[1].detail
