"""Status of compact runs: tasks with several replicas, from whole pods, from rows, and from the job's own counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.kube.pod_list import PodList
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.pods.rows import MOST_FAILED, MOST_WHOLE, OF_EACH
from torchx_pulumi.schedulers.replicas import replica_of
from torchx_pulumi.schedulers.volcano.observe import telling_pods

from tests.fakes import FakeCluster
from tests.unit.schedulers.observed_objects import read_volcano, terminated, waiting
from tests.unit.schedulers.volcano.compact import Manifest, compact_job, pod_of

JOB = find_backend("volcano").variants["job"]
TASKS = {"trainer-0": 1, "trainer-1": 3, "ps-0": 2}


def states(status: JobStatus) -> dict[str, list[tuple[int, str | None, str]]]:
    return {role.name: [(one.id, one.pod, one.state.value) for one in role.replicas] for role in status.roles}


def test_a_replica_is_the_first_one_of_its_task_and_its_place() -> None:
    pods = [pod_of("trainer-1", place) for place in (2, 0, 1)] + [pod_of("trainer-0", 0), pod_of("ps-0", 1, "Pending")]
    status = read_volcano(compact_job(TASKS), pods)
    assert states(status) == {
        "trainer": [
            (0, "app-trainer-0-0", "RUNNING"),
            (1, "app-trainer-1-0", "RUNNING"),
            (2, "app-trainer-1-1", "RUNNING"),
            (3, "app-trainer-1-2", "RUNNING"),
        ],
        "ps": [(0, "app-ps-0-0", "PENDING"), (1, "app-ps-0-1", "PENDING")],
    }


def test_a_failed_replica_of_a_task_is_named() -> None:
    pods = [pod_of("trainer-1", 0), pod_of("trainer-1", 1, "Failed", containerStatuses=terminated(3))]
    status = read_volcano(compact_job({"trainer-1": 2}, "Failed"), pods)
    assert status.message == "exited with code 3 (1 of 2 replicas; pod app-trainer-1-1 on node n0)"
    assert [one.exit_code for one in status.replicas] == [None, 3]


@pytest.mark.parametrize(
    ("phase", "counts", "expected"),
    [
        # The same for all: known of each.
        ("Running", {"Running": 3}, [("app-t-0-0", "RUNNING"), ("app-t-0-1", "RUNNING"), ("app-t-0-2", "RUNNING")]),
        # So many of each, and not which.
        ("Running", {"Failed": 1, "Running": 2}, [(None, "RUNNING"), (None, "RUNNING"), (None, "FAILED")]),
        ("Pending", {"Pending": 1}, [(None, "PENDING"), (None, "PENDING"), (None, "PENDING")]),
        # What is not counted follows from the job.
        ("Completed", {"Succeeded": 2}, [(None, "SUCCEEDED"), (None, "SUCCEEDED"), (None, "SUCCEEDED")]),
        ("Aborted", {}, [("app-t-0-0", "CANCELLED"), ("app-t-0-1", "CANCELLED"), ("app-t-0-2", "CANCELLED")]),
        ("Failed", {"Failed": 1}, [(None, "FAILED"), (None, "UNKNOWN"), (None, "UNKNOWN")]),
        ("Pending", {"Wandering": 3}, [("app-t-0-0", "PENDING"), ("app-t-0-1", "PENDING"), ("app-t-0-2", "PENDING")]),
        # More than are requested: pods of replicas that an elastic job gave up.
        ("Running", {"Running": 9}, [("app-t-0-0", "RUNNING"), ("app-t-0-1", "RUNNING"), ("app-t-0-2", "RUNNING")]),
    ],
)
def test_replicas_without_a_pod_are_those_that_the_job_counts(
    phase: str, counts: Mapping[str, int], expected: list[tuple[str | None, str]]
) -> None:
    status = read_volcano(compact_job({"t-0": 3}, phase, {"t-0": counts}), None)
    assert [(one.pod, one.state.value) for one in status.replicas] == expected
    assert all(one.message for one in status.replicas)


def test_counted_pods_that_were_read_are_not_given_to_others() -> None:
    job = compact_job({"t-0": 4}, "Running", {"t-0": {"Running": 3, "Failed": 1}})
    failed = pod_of("t-0", 2, "Failed", containerStatuses=terminated(3))
    status = read_volcano(job, [failed, pod_of("t-0", 0)])
    assert [(one.pod, one.state.value) for one in status.replicas] == [
        ("app-t-0-0", "RUNNING"),
        ("app-t-0-1", "RUNNING"),
        ("app-t-0-2", "FAILED"),
        ("app-t-0-3", "RUNNING"),
    ]


def test_replicas_that_an_elastic_job_gave_up_are_left_out() -> None:
    status = read_volcano(compact_job({"t-0": 2, "t-2": 0}), [pod_of("t-0", place) for place in range(4)])
    assert [one.id for one in status.replicas] == [0, 1]


def test_a_pod_that_an_elastic_job_gave_up_is_not_taken_for_the_one_that_is_left() -> None:
    observed = read_volcano(compact_job({"trainer-0": 1, "trainer-1": 1}), [pod_of("trainer-1", 2)])
    assert [(one.id, one.pod) for one in observed.roles[0].replicas] == [(0, "app-trainer-0-0"), (1, "app-trainer-1-0")]
    assert {one.state for one in observed.roles[0].replicas} == {JobState.PENDING}


def test_an_absurd_number_of_replicas_is_read_up_to_a_limit() -> None:
    assert len(read_volcano(compact_job({"t-0": 10**12})).replicas) == 10_000


def test_pods_that_may_not_be_listed_are_read_by_name_first_those_of_failed_tasks() -> None:
    job = compact_job(
        {"a-0": 40, "b-0": 2, "c-0": 3}, "Running", {"b-0": {"Running": 1, "Failed": 1}, "a-0": {"Pending": 40}}
    )
    names = telling_pods(job)
    assert names[:3] == ["app-b-0-0", "app-b-0-1", "app-a-0-0"]
    assert len(names) == 16
    cluster = FakeCluster(
        [job, pod_of("b-0", 1, "Failed", containerStatuses=terminated(3)), pod_of("b-0", 0)],
        denied=[("list", kinds.POD)],
    )
    status = JOB.read_status(JOB.observe(cluster, "default", "app"))
    assert "exited with code 3" in status.message
    assert {one.pod for one in status.replicas if one.state is JobState.FAILED} == {"app-b-0-1"}


@pytest.mark.parametrize(
    ("pod", "replica"),
    [(pod_of("trainer-1", 2), ("trainer", 3)), (pod_of("my-role-1001", 7), ("my-role", 1008))],
)
def test_a_pod_without_the_label_of_a_replica_is_known_by_its_task(pod: Manifest, replica: tuple[str, int]) -> None:
    assert replica_of(pod) == replica


def test_a_job_object_has_the_pod_of_every_replica() -> None:
    found = JOB.pod_templates(compact_job(TASKS))
    assert [name for name, _ in found] == [
        *("app-trainer-0-0", "app-trainer-1-0", "app-trainer-1-1", "app-trainer-1-2", "app-ps-0-0", "app-ps-0-1"),
    ]


# More pods than are read as a whole.

COUNT = MOST_WHOLE + 100


class Recording(FakeCluster):
    """A fake that keeps what it returned of pods."""

    def __init__(self, objects: list[Manifest]) -> None:
        super().__init__(objects)
        self.asked: list[str] = []

    def get(self, kind: Any, namespace: str | None, name: str) -> Any:
        self.asked.append(f"get {kind.kind}")
        return super().get(kind, namespace, name)

    def list(self, kind: Any, namespace: str | None, selector: Any = None) -> Any:
        self.asked.append(f"list {kind.kind}")
        return super().list(kind, namespace, selector)

    def list_pods(self, namespace: str, selector: Any, **options: Any) -> PodList:
        found = super().list_pods(namespace, selector, **options)
        self.asked[-1] = f"pods {options.get('whole')} {options.get('phase')}"
        return found


def big(job_phase: str = "Running", **changed: Manifest) -> Recording:
    """Return a cluster with a run of many pods, all of which run, except those that are given by their name."""
    ran = [{"name": "t-0", "ready": True, "state": {"running": {"startedAt": "2026-03-01T10:00:05Z"}}}]
    pods = {f"app-t-0-{place}": pod_of("t-0", place, containerStatuses=ran) for place in range(COUNT)}
    return Recording([compact_job({"t-0": COUNT}, job_phase), *(pods | changed).values()])


def see(cluster: FakeCluster, expected: int = 0) -> tuple[JobStatus, Any]:
    known = {"t": [f"app-t-0-{place}" for place in range(expected)]} if expected else None
    seen = JOB.observe(cluster, "default", "app", known)
    return JOB.read_status(seen), seen


def test_a_run_of_many_pods_has_every_replica_and_few_whole_pods() -> None:
    cluster = big()
    status, seen = see(cluster)
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.RUNNING)
    assert status.roles[0].counts == {JobState.RUNNING: COUNT}
    assert [one.id for one in status.replicas] == [*range(COUNT)]
    assert all(one.node == "n0" and one.message == "running" for one in status.replicas)
    assert len(seen.pods) == OF_EACH
    assert status.started_at is not None
    assert [one for one in cluster.asked if one.startswith("pods")] == [f"pods {MOST_WHOLE} None"]


def test_a_run_that_is_known_to_have_many_pods_is_not_read_as_a_whole() -> None:
    cluster = big()
    status, _ = see(cluster, expected=COUNT)
    assert len(status.replicas) == COUNT
    assert [one for one in cluster.asked if one.startswith("pods")] == ["pods 0 None"]


def test_few_pods_of_a_run_that_had_many_are_read_as_a_whole() -> None:
    cluster = Recording([compact_job({"t-0": COUNT}), pod_of("t-0", 7)])
    status, seen = see(cluster, expected=COUNT)
    assert (len(seen.pods), seen.rows) == (1, None)
    assert status.replicas[7].state is JobState.RUNNING


def test_failed_pods_of_many_are_diagnosed_with_their_exit_code() -> None:
    failed = {f"app-t-0-{place}": pod_of("t-0", place, "Failed", containerStatuses=terminated(3)) for place in (7, 90)}
    status, _ = see(big("Failed", **failed))
    assert status.message == f"exited with code 3 (2 of {COUNT} replicas; pod app-t-0-7 on node n0)"
    assert {(one.id, one.exit_code) for one in status.replicas if one.state is JobState.FAILED} == {(7, 3), (90, 3)}


def test_where_not_all_failed_pods_are_read_a_diagnosis_says_so() -> None:
    many = MOST_FAILED + 50
    failed = {
        f"app-t-0-{place}": pod_of("t-0", place, "Failed", containerStatuses=terminated(3)) for place in range(many)
    }
    status, seen = see(big("Failed", **failed))
    assert status.roles[0].counts[JobState.FAILED] == many
    assert f"exited with code 3 (at least {MOST_FAILED} of {COUNT} replicas; pod " in status.message
    unread = [one for one in status.replicas if one.state is JobState.FAILED and one.exit_code is None]
    assert len(unread) == 50
    assert {(one.reason, "do not say why" in one.message) for one in unread} == {(Reason.EXIT_CODE, False)}
    assert not any("do not say why" in one.summary for one in status.diagnoses)
    assert len(seen.pods) <= MOST_FAILED + OF_EACH


def test_a_pod_whose_first_container_completed_is_not_taken_for_a_success() -> None:
    two = [*terminated(0, "Completed"), {"name": "side", "state": {"terminated": {"exitCode": 9, "reason": "Error"}}}]
    found = pod_of("t-0", 5, "Failed", containerStatuses=two)
    found["spec"]["containers"].append({"name": "side", "image": "img:2"})
    status, _ = see(big("Running", **{"app-t-0-5": found}))
    assert status.replicas[5].state is JobState.FAILED


def test_a_few_stuck_pods_among_many_that_wait_are_found() -> None:
    pods = {f"app-t-0-{place}": pod_of("t-0", place, "Pending", node=None) for place in range(COUNT)}
    said = 'Back-off pulling image "img:1": ErrImagePull: not found'
    pods["app-t-0-599"] = pod_of("t-0", 599, "Pending", containerStatuses=waiting("ImagePullBackOff", said))
    status, _ = see(big("Pending", **pods))
    assert status.reason is Reason.IMAGE_UNAVAILABLE
    assert (
        f"(1 of {COUNT} replicas; pod " in status.message or f"(at least 1 of {COUNT} replicas; pod " in status.message
    )
    assert status.roles[0].counts == {JobState.PENDING: COUNT}


def test_a_row_that_does_not_say_is_read_from_the_counts_of_the_job() -> None:
    going = {}
    for place in range(COUNT):
        found = pod_of("t-0", place)
        found["metadata"]["deletionTimestamp"] = "2026-03-01T11:00:00Z"
        going[f"app-t-0-{place}"] = found
    cluster = big("Aborting", **going)
    cluster.put(compact_job({"t-0": COUNT}, "Aborting", {"t-0": {"Running": COUNT}}))
    status, _ = see(cluster)
    assert status.roles[0].counts == {JobState.RUNNING: COUNT}


def test_a_finished_run_of_many_pods_has_the_times_of_the_job() -> None:
    done = {
        f"app-t-0-{place}": pod_of("t-0", place, "Succeeded", containerStatuses=terminated(0, "Completed"))
        for place in range(COUNT)
    }
    status, seen = see(big("Completed", **done))
    assert (status.state, status.roles[0].counts) == (JobState.SUCCEEDED, {JobState.SUCCEEDED: COUNT})
    assert status.finished_at is not None
    assert replace(status, roles=()) == replace(JOB.read_status(seen), roles=())
