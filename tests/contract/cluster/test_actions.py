"""What every cluster does when it is told to, fake or real."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME, VOLCANO_POD_GROUP, VOLCANO_QUEUE

from tests.contract.cluster.conftest import World, phase_of
from tests.fakes import FakeCluster

Manifest = dict[str, Any]


def account(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def eventually(true: Callable[[], bool], what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 240
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


@pytest.fixture
def name() -> str:
    return f"made-{uuid4().hex[:6]}"


def test_what_is_created_is_there_and_has_a_uid(world: World, name: str) -> None:
    made = world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name))
    assert made["metadata"]["uid"]
    found = world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name)
    assert found is not None
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_dry_run_makes_nothing(world: World, name: str) -> None:
    made = world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name), dry_run=True)
    assert made["metadata"]["name"] == name
    assert world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name) is None


def test_a_name_that_is_taken_is_told_apart(world: World, name: str) -> None:
    world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name))
    with pytest.raises(ClusterError, match="already exists") as caught:
        world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name))
    assert caught.value.reason == "AlreadyExists"
    assert not caught.value.retryable


def test_deleting_is_done_once_and_only_to_the_object_that_is_meant(world: World, name: str) -> None:
    made = world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name))
    assert not world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name, uid=str(uuid4()))
    assert world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name) is not None
    assert world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name, uid=made["metadata"]["uid"])
    gone = lambda: world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name) is None  # noqa: E731
    eventually(gone, lambda: "still there")
    assert not world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name)


def test_an_object_is_replaced_only_as_it_was_read(world: World, name: str) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {}}
    made = world.cluster.create(kinds.LEASE, world.namespace, lease)
    changed = world.cluster.replace(kinds.LEASE, world.namespace, {**made, "spec": {"holderIdentity": "one"}})
    assert changed["spec"]["holderIdentity"] == "one"
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    with pytest.raises(ClusterError) as late:
        world.cluster.replace(kinds.LEASE, world.namespace, {**made, "spec": {"holderIdentity": "two"}})
    assert late.value.reason == "Conflict"
    assert world.cluster.get(kinds.LEASE, world.namespace, name) == changed
    assert world.cluster.delete(kinds.LEASE, world.namespace, name)
    eventually(lambda: world.cluster.get(kinds.LEASE, world.namespace, name) is None, lambda: "still there")
    with pytest.raises(ClusterError) as gone:
        world.cluster.replace(kinds.LEASE, world.namespace, changed)
    assert gone.value.reason == "Conflict"


def test_what_these_credentials_may_do_is_known(world: World) -> None:
    assert world.cluster.allowed("create", VOLCANO_JOB, world.namespace)
    assert world.cluster.allowed("get", kinds.POD, world.namespace, "log")
    assert world.cluster.allowed("list", kinds.POD, None)


def test_a_cluster_has_a_version_an_address_and_an_identity(world: World) -> None:
    assert world.cluster.version().startswith("v1.")
    assert world.cluster.api_server.startswith("https://")
    assert len(world.cluster.identity) == 12


class Job:
    """A Volcano Job of one pod, which runs for some seconds in a real cluster, and until `end` in a fake one."""

    def __init__(self, world: World, name: str, *, seconds: int = 600, queue: str = "default", **spec: Any) -> None:
        self.cluster, self.namespace, self.name = world.cluster, world.namespace, name
        self.fake = world.cluster if isinstance(world.cluster, FakeCluster) else None
        some_pod = self.cluster.get(kinds.POD, self.namespace, "a")
        assert some_pod is not None
        image = some_pod["spec"]["containers"][0]["image"]
        command = ["sh", "-c", f"trap 'exit 0' TERM; sleep {seconds} & wait"]
        container = {"name": "main", "image": image, "command": command}
        template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
        tasks = [{"name": "t", "replicas": 1, "template": template}]
        made = {"apiVersion": VOLCANO_JOB.api_version, "kind": "Job", "metadata": {"name": name}}
        made["spec"] = {"schedulerName": "volcano", "queue": queue, "minAvailable": 1, "tasks": tasks, **spec}
        self.uid = self.cluster.create(VOLCANO_JOB, self.namespace, made)["metadata"]["uid"]

    def start(self) -> None:
        """Wait until it runs, with a PodGroup."""
        if self.fake is not None:
            where = {"namespace": self.namespace}
            pod = {"name": f"{self.name}-t-0", "labels": {VOLCANO_JOB_NAME: self.name}, **where}
            self.fake.put({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "status": {"phase": "Running"}})
            group = {"apiVersion": VOLCANO_POD_GROUP.api_version, "kind": "PodGroup"}
            self.fake.put({**group, "metadata": {"name": f"{self.name}-{self.uid}", **where}})
            self.fake.put({**self.seen(), "status": {"state": {"phase": "Running"}}})
        eventually(lambda: self.phase() == "Running", self.seen)
        assert self.has_group()

    def end(self) -> None:
        """Wait until its pod has ended with exit code 0."""
        if self.fake is not None:
            (pod,) = self.pods()
            self.fake.write_status(kinds.POD, self.namespace, {**pod, "status": {"phase": "Succeeded"}})
        eventually(lambda: [phase_of(pod) for pod in self.pods()] == ["Succeeded"], self.pods)

    def seen(self) -> Manifest:
        return self.cluster.get(VOLCANO_JOB, self.namespace, self.name) or {}

    def phase(self) -> str:
        return str(((self.seen().get("status") or {}).get("state") or {}).get("phase"))

    def retries(self) -> int:
        return int((self.seen().get("status") or {}).get("retryCount") or 0)

    def pods(self) -> list[Manifest]:
        return list(self.cluster.list(kinds.POD, self.namespace, {VOLCANO_JOB_NAME: self.name}))

    def has_group(self) -> bool:
        return self.cluster.get(VOLCANO_POD_GROUP, self.namespace, f"{self.name}-{self.uid}") is not None

    def delete(self) -> None:
        assert self.cluster.delete(VOLCANO_JOB, self.namespace, self.name, uid=self.uid)
        for pod in self.pods() if self.fake is not None else []:
            self.cluster.delete(kinds.POD, self.namespace, pod["metadata"]["name"])
        # Other tests list the pods of the namespace.
        eventually(lambda: not self.pods(), self.pods)


@pytest.fixture
def queue(world: World, name: str) -> Iterator[str]:
    queue = {
        "apiVersion": VOLCANO_QUEUE.api_version,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1},
    }
    world.cluster.create(VOLCANO_QUEUE, None, queue)
    if not isinstance(world.cluster, FakeCluster):
        # Its controller opens it.
        made = lambda: world.cluster.get(VOLCANO_QUEUE, None, name) or {}  # noqa: E731
        eventually(lambda: (made().get("status") or {}).get("state") == "Open", made)
    yield name
    world.cluster.delete(VOLCANO_QUEUE, None, name)


@pytest.mark.parametrize(("most", "phases"), [(1, ("Failed",)), (2, ("Pending", "Running"))])
def test_a_resume_counts_as_a_retry_and_ends_a_job_that_has_none_left(
    world: World, name: str, queue: str, most: int, phases: tuple[str, ...]
) -> None:
    job = Job(world, name, queue=queue, maxRetry=most)
    try:
        job.start()
        assert CONTROL.restarts_left(job.seen()) == most - 1
        CONTROL.suspend(world.cluster, world.namespace, name, job.uid)
        eventually(lambda: job.phase() == "Aborted", job.seen)
        eventually(lambda: not job.has_group(), job.seen)
        assert job.retries() == 0
        CONTROL.resume(world.cluster, world.namespace, name, job.uid)
        eventually(lambda: job.phase() in phases, job.seen)
        assert job.retries() == 1
        assert CONTROL.restarts_left(job.seen()) == most - 2
    finally:
        job.delete()


def test_a_job_that_succeeded_has_no_pod_group_any_more(world: World, name: str, queue: str) -> None:
    job = Job(world, name, queue=queue, seconds=5)
    try:
        job.start()
        job.end()
        eventually(lambda: job.phase() == "Completed", job.seen)
        eventually(lambda: not job.has_group(), job.seen)
    finally:
        job.delete()


def test_nobody_looks_at_a_job_whose_queue_is_gone(world: World, name: str, queue: str) -> None:
    job = Job(world, name, queue=queue, seconds=10)
    try:
        job.start()
        world.cluster.delete(VOLCANO_QUEUE, None, queue)
        eventually(lambda: world.cluster.get(VOLCANO_QUEUE, None, queue) is None, lambda: queue)
        job.end()
        time.sleep(0 if job.fake is not None else 10)
        assert job.phase() == "Running"
        assert job.has_group()
        # Only an abort needs no queue.
        CONTROL.suspend(world.cluster, world.namespace, name, job.uid)
        eventually(lambda: job.phase() == "Aborted", job.seen)
        CONTROL.resume(world.cluster, world.namespace, name, job.uid)
        eventually(lambda: job.phase() == "Restarting", job.seen)
        assert job.retries() == 1
    finally:
        job.delete()


def test_nothing_is_created_of_a_kind_that_nobody_defines(world: World, name: str) -> None:
    nobodys = kinds.Kind(group="nobody.example.com", version="v1", kind="Thing", plural="things")
    with pytest.raises(ClusterError, match="does not serve Thing"):
        world.cluster.create(nobodys, world.namespace, {"metadata": {"name": name}})
