"""What every cluster does when it is told to, fake or real."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.schedulers.volcano.control import CONTROL
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB, VOLCANO_JOB_NAME

from tests.contract.cluster.conftest import World

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


def test_an_object_is_deleted_only_as_it_was_read(world: World, name: str) -> None:
    made = world.cluster.create(kinds.SERVICE_ACCOUNT, world.namespace, account(name))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    for wrong in ({"uid": uid, "version": "1"}, {"uid": str(uuid4()), "version": version}):
        with pytest.raises(ClusterError) as caught:
            world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name, **wrong)
        assert caught.value.reason == "Conflict"
    assert world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name) is not None
    assert world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name, uid=uid, version=version)
    # A foreground deletion changes the object, and it is there until a controller has removed it.
    eventually(lambda: world.cluster.get(kinds.SERVICE_ACCOUNT, world.namespace, name) is None, lambda: "still there")
    assert not world.cluster.delete(kinds.SERVICE_ACCOUNT, world.namespace, name, uid=uid, version=version)


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


def test_a_job_is_aborted_and_resumed(world: World, name: str) -> None:
    def phase() -> str:
        job = world.cluster.get(VOLCANO_JOB, world.namespace, name) or {}
        return str(((job.get("status") or {}).get("state") or {}).get("phase"))

    def pods() -> Any:
        return world.cluster.list(kinds.POD, world.namespace, {VOLCANO_JOB_NAME: name})

    some_pod = world.cluster.get(kinds.POD, world.namespace, "a")
    assert some_pod is not None
    image = some_pod["spec"]["containers"][0]["image"]
    container = {"name": "main", "image": image, "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    job = {
        "apiVersion": VOLCANO_JOB.api_version,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": 1,
            "tasks": [{"name": "t", "replicas": 1, "template": template}],
        },
    }
    uid = world.cluster.create(VOLCANO_JOB, world.namespace, job)["metadata"]["uid"]
    try:
        if type(world.cluster).__name__ != "FakeCluster":
            eventually(lambda: phase() == "Running", phase)
        CONTROL.suspend(world.cluster, world.namespace, name, uid)
        eventually(lambda: phase() == "Aborted", phase)
        CONTROL.resume(world.cluster, world.namespace, name, uid)
        eventually(lambda: phase() in ("Pending", "Running"), phase)
    finally:
        deleted = world.cluster.delete(VOLCANO_JOB, world.namespace, name, uid=uid)
        # Other tests list the pods of the namespace.
        eventually(lambda: not pods(), pods)
    assert deleted


def test_nothing_is_created_of_a_kind_that_nobody_defines(world: World, name: str) -> None:
    nobodys = kinds.Kind(group="nobody.example.com", version="v1", kind="Thing", plural="things")
    with pytest.raises(ClusterError, match="does not serve Thing"):
        world.cluster.create(nobodys, world.namespace, {"metadata": {"name": name}})
