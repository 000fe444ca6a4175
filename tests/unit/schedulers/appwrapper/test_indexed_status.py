"""Status of an AppWrapper v1beta2 with Indexed Jobs: by observed pods, by rows, and by the Jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torchx_pulumi.kube.kinds import JOB
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.backend import BACKEND
from torchx_pulumi.schedulers.appwrapper.tasks import place_of
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods.rows import MOST_WHOLE
from torchx_pulumi.schedulers.replicas import replica_of

from tests.fakes import FakeCluster
from tests.unit.builders import role
from tests.unit.schedulers.appwrapper.indexed import job_of, observed, plan, pod_of
from tests.unit.schedulers.observed_objects import ENDED, terminated

V1BETA2 = BACKEND.variants["v1beta2"]
PLAN = plan(role(num_replicas=3), role(name="ps", num_replicas=2), layout="role")
FIRST, OTHERS, PS = "app-trainer-0", "app-trainer-1", "app-ps-0"
ALL = [(FIRST, 0), (OTHERS, 0), (OTHERS, 1), (PS, 0), (PS, 1)]


def see(*pods: Any, phase: str | None = "Running", jobs: Any = (), **status: Any) -> JobStatus:
    return V1BETA2.read_status(ObservedObjects(job_object=observed(PLAN, phase, **status), pods=pods, jobs=jobs))


def states(status: JobStatus) -> dict[str, list[str]]:
    return {role.name: [one.state.value for one in role.replicas] for role in status.roles}


def test_a_replica_is_the_first_one_of_its_job_and_its_index() -> None:
    pods = [pod_of(*place) for place in ALL]
    assert [replica_of(pod) for pod in pods] == [
        *(("trainer", 0), ("trainer", 1), ("trainer", 2)),
        *(("ps", 0), ("ps", 1)),
    ]
    status = see(*reversed(pods))
    assert (status.state, status.reason) == (JobState.RUNNING, Reason.RUNNING)
    assert [one.pod for one in status.roles[0].replicas] == [
        f"app-trainer-{end}-abcde" for end in ("0-0", "1-0", "1-1")
    ]


def test_a_pod_of_a_job_that_no_app_wrapper_has_is_not_read_as_one() -> None:
    given = {"batch.kubernetes.io/job-name": "app-trainer-1", "batch.kubernetes.io/job-completion-index": "1"}
    assert place_of(given) is None
    assert place_of({**given, "workload.codeflare.dev/appwrapper": "app"}) == ("app-trainer-1", 1)


def test_the_pod_of_the_present_attempt_counts() -> None:
    old = pod_of(OTHERS, 0, "Failed", letters="older", containerStatuses=terminated(3))
    new = pod_of(OTHERS, 0, letters="newer")
    new["metadata"]["creationTimestamp"] = ENDED
    status = see(new, old, *(pod_of(*place) for place in ALL if place != (OTHERS, 0)))
    assert (status.state, status.replicas[1].pod) == (JobState.RUNNING, "app-trainer-1-0-newer")
    # Made in the same second.
    old["metadata"] |= {"creationTimestamp": ENDED, "deletionTimestamp": ENDED}
    assert see(new, old).replicas[1].pod == "app-trainer-1-0-newer"


def test_a_replica_without_a_pod_is_read_from_its_job() -> None:
    jobs = [job_of(OTHERS, completedIndexes="0", failedIndexes="1"), job_of(PS, completedIndexes="0-1")]
    status = see(pod_of(FIRST, 0), jobs=jobs)
    assert states(status) == {"trainer": ["RUNNING", "SUCCEEDED", "FAILED"], "ps": ["SUCCEEDED", "SUCCEEDED"]}
    assert status.reason is Reason.POD_GONE
    assert status.message == "the pod was deleted before its end was seen (1 of 5 replicas; replica 2)"
    assert [one.pod for one in status.replicas][1:] == [None] * 4


@pytest.mark.parametrize(
    ("phase", "state"),
    [("Suspended", "PENDING"), ("Resuming", "PENDING"), ("Succeeded", "SUCCEEDED"), ("Failed", "UNKNOWN")],
)
def test_without_pods_and_jobs_the_phase_says_how_replicas_stand(phase: str, state: str) -> None:
    status = see(phase=phase)
    assert states(status) == {"trainer": [state] * 3, "ps": [state] * 2}
    assert all(one.message for one in status.replicas)


def test_a_job_that_is_being_deleted_says_nothing_of_the_next_attempt() -> None:
    going = job_of(OTHERS, failedIndexes="0")
    going["metadata"]["deletionTimestamp"] = ENDED
    assert states(see(phase="Resetting", jobs=[going]))["trainer"] == ["PENDING"] * 3


def test_a_failed_replica_is_explained_and_the_others_are_seen() -> None:
    bad = pod_of(OTHERS, 1, "Failed", containerStatuses=terminated(3))
    status = see(bad, *(pod_of(*place) for place in ALL if place != (OTHERS, 1)), phase="Failed")
    assert (status.state, status.reason, status.exit_code) == (JobState.FAILED, Reason.EXIT_CODE, 3)
    assert status.message == "exited with code 3 (1 of 5 replicas; pod app-trainer-1-1-abcde on node n0)"


class Counting(FakeCluster):
    """A fake that counts what it is asked, and may forbid Jobs."""

    def __init__(self, *objects: Any, forbidden: bool = False) -> None:
        super().__init__(objects)
        self.asked: list[str] = []
        self._forbidden = forbidden

    def list(self, kind: Any, namespace: str | None, selector: Any = None) -> Any:
        self.asked.append(f"list {kind.kind}")
        if kind == JOB and self._forbidden:
            raise ClusterError("no", reason="Forbidden")
        return super().list(kind, namespace, selector)


def test_jobs_are_read_only_where_replicas_lack_pods() -> None:
    whole = Counting(observed(PLAN), *(pod_of(*place) for place in ALL))
    assert V1BETA2.read_status(V1BETA2.observe(whole, "default", "app")).state is JobState.RUNNING
    assert "list Job" not in whole.asked
    objects = [observed(PLAN), pod_of(FIRST, 0), job_of(OTHERS, completedIndexes="0-1")]
    seen = V1BETA2.read_status(V1BETA2.observe(Counting(*objects), "default", "app"))
    assert states(seen) == {"trainer": ["RUNNING", "SUCCEEDED", "SUCCEEDED"], "ps": ["PENDING", "PENDING"]}
    forbidden = V1BETA2.read_status(V1BETA2.observe(Counting(*objects, forbidden=True), "default", "app"))
    assert states(forbidden) == {"trainer": ["RUNNING", "PENDING", "PENDING"], "ps": ["PENDING", "PENDING"]}


def test_pods_of_many_replicas_are_read_as_rows() -> None:
    count = MOST_WHOLE + 100
    large = plan(role(num_replicas=count + 1))
    running = [{"name": "trainer", "ready": True, "state": {"running": {}}}]
    pods = [pod_of(OTHERS, place, containerStatuses=running) for place in range(count)]
    pods[7] = pod_of(OTHERS, 7, "Failed", containerStatuses=terminated(3))
    old = pod_of(OTHERS, 8, letters="zzzzz")
    old["metadata"]["deletionTimestamp"] = ENDED
    for pod in pods:
        pod["spec"]["containers"] = [{"name": pod["status"]["containerStatuses"][0]["name"]}]
    cluster = FakeCluster([observed(large, "Running"), pod_of(FIRST, 0), *pods, old])
    seen = V1BETA2.observe(cluster, "default", "app")
    assert len(seen.pods or ()) < 50
    status = V1BETA2.read_status(seen)
    assert status.roles[0].counts == {JobState.RUNNING: count, JobState.FAILED: 1}
    assert (status.reason, status.replicas[8].id, status.replicas[8].exit_code) == (Reason.EXIT_CODE, 8, 3)
    assert status.replicas[9].pod == "app-trainer-1-8-abcde"


def test_pods_that_may_not_be_listed_leave_the_phase() -> None:
    seen = replace(ObservedObjects(job_object=observed(PLAN)), pods=None)
    assert V1BETA2.read_status(seen).state is JobState.RUNNING
