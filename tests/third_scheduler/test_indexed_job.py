"""A package and a registry line are enough for a scheduler: render, launch, status, logs, diagnosis, cancel, delete."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import torchx_pulumi
from torchx_pulumi.kube import kinds
from torchx_pulumi.model.errors import InvalidJobError

from tests.third_scheduler.conftest import World, app, ended, role
from tests.third_scheduler.indexed_job.manifests import JOB

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_outside_of_its_package_names_the_third_scheduler() -> None:
    words = ["git", "-C", str(ROOT), "grep", "-ilE", "indexed_?job", "--", "sdk", "components", "stacks", "tools"]
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == ""


def test_render_makes_one_job_and_the_service_of_its_replicas() -> None:
    manifest = torchx_pulumi.render(app(), "indexed_job", {"active_deadline_s": "60"}, app_id="train-x1")
    job, service = manifest["items"]
    assert (job["apiVersion"], job["kind"], service["kind"]) == ("batch/v1", "Job", "Service")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 60)
    container = spec["template"]["spec"]["containers"][0]
    assert container["command"] == ["main", "--id", "train-x1"]
    assert {"name": "TORCHX_RANK0_HOST", "value": "train-x1-0.train-x1"} in container["env"]
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()


def test_what_an_indexed_job_cannot_run_is_refused_with_all_problems() -> None:
    two = app(role(args=["--rank", "${replica_id}"]), role(name="reader"))
    with pytest.raises(InvalidJobError) as caught:
        torchx_pulumi.render(two, "indexed_job", {"active_deadline_s": -1, "queue": "gold"}, app_id="Wrong")
    said = str(caught.value)
    for part in ("has 2 roles, must have 1", "JOB_COMPLETION_INDEX", "active_deadline_s", "queue", "app_id"):
        assert part in said


def test_the_options_of_the_dataclass_are_the_run_options(world: World) -> None:
    shown = repr(world.scheduler.run_opts())
    assert "active_deadline_s" in shown
    assert "Seconds after which the job is stopped" in shown
    assert "queue=" not in shown


def test_a_launch_is_described_listed_and_deleted(world: World) -> None:
    app_id = world.launch()
    assert world.job(app_id) is not None
    assert world.cluster.get(kinds.SERVICE, *app_id.split(":")) is not None
    assert str(world.scheduler.describe(app_id).state) == "SUBMITTED"
    for index in range(2):
        world.pod(app_id, index)
    described = world.scheduler.describe(app_id)
    assert str(described.state) == "RUNNING"
    assert described.roles == app().roles
    assert [replica.id for replica in described.roles_statuses[0].replicas] == [0, 1]
    assert [str(row.state) for row in world.scheduler.list()] == ["RUNNING"]
    world.end(app_id, "Complete")
    assert str(world.scheduler.describe(app_id).state) == "SUCCEEDED"
    world.scheduler.delete(app_id)
    assert world.scheduler.describe(app_id) is None
    assert world.cluster.list(JOB, None) == world.cluster.list(kinds.SERVICE, None) == []


def test_the_logs_of_a_replica_are_those_of_its_pod_whatever_its_name(world: World) -> None:
    app_id = world.launch()
    names = [world.pod(app_id, index) for index in range(2)]
    world.cluster._logs = {("default", name): [f"from {name}"] for name in names}
    for index, name in enumerate(names):
        (line,) = world.scheduler.log_iter(app_id, "trainer", index)
        assert line.endswith(f"from {name}\n")
    world.end(app_id, "Complete")
    (line,) = world.scheduler.log_iter(app_id, "trainer", 1, should_tail=True)
    assert line.endswith(f"from {names[1]}\n")


def test_a_failed_pod_is_diagnosed_with_its_last_lines(world: World) -> None:
    app_id = world.launch()
    world.pod(app_id, 0, **ended(0))
    failed = world.pod(app_id, 1, **ended(3))
    world.cluster._logs = {("default", failed): ["last words"]}
    world.end(app_id, "Failed", "Job has reached the specified backoff limit")
    described = world.scheduler.describe(app_id)
    assert str(described.state) == "FAILED"
    assert "exited with code 3" in described.msg
    assert "last words" in described.msg
    assert failed in described.msg


def test_an_image_that_cannot_be_pulled_is_diagnosed(world: World) -> None:
    app_id = world.launch()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    world.pod(app_id, 0, phase="Pending", containerStatuses=[{"name": "trainer-0", "image": "img:1", "state": waiting}])
    described = world.scheduler.describe(app_id)
    assert str(described.state) == "PENDING"
    assert "img:1" in described.msg


def test_a_replaced_pod_is_not_taken_for_a_second_replica(world: World) -> None:
    app_id = world.launch(app(role(num_replicas=1, max_retries=2)))
    world.pod(app_id, 0, **ended(1))
    newer: Any = {**world.cluster.list(kinds.POD, "default")[0]}
    newer["metadata"] = {**newer["metadata"], "name": "newer", "creationTimestamp": "2026-01-01T00:02:00Z"}
    world.cluster.put({**newer, "status": {"phase": "Running"}})
    described = world.scheduler.describe(app_id)
    assert str(described.state) == "RUNNING"
    assert len(described.roles_statuses[0].replicas) == 1


def test_cancel_deletes_the_job_and_keeps_the_stack(world: World) -> None:
    app_id = world.launch()
    world.pod(app_id, 0)
    world.scheduler.cancel(app_id)
    world.scheduler.cancel(app_id)
    assert world.job(app_id) is None
    assert world.cluster.list(kinds.POD, None) == []
    assert str(world.scheduler.describe(app_id).state) == "CANCELLED"
    with pytest.raises(InvalidJobError):
        world.scheduler.resume(app_id)
    assert len(world.driver.stacks) == 1


def test_a_job_that_exceeds_its_deadline_says_so(world: World) -> None:
    app_id = world.launch(active_deadline_s=1)
    world.end(app_id, "Failed", "Job was active longer than specified deadline")
    described = world.scheduler.describe(app_id)
    assert str(described.state) == "FAILED"
    assert "longer than specified deadline" in described.msg


def test_a_status_without_pods_is_read_from_the_job_alone() -> None:
    from torchx_pulumi.schedulers import find_backend
    from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects

    job = {"metadata": {"name": "x", "uid": "1"}, "status": {}}
    variant = find_backend("indexed_job").variants["job"]
    status = variant.read_status(ObservedObjects(job_object=job), datetime.now(timezone.utc))
    assert status.state.value == "SUBMITTED"
