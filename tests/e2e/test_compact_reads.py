"""Compact runs on the real cluster: status, list, logs and cancel of runs whose tasks have several replicas."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

import pytest
from torchx import specs
from torchx.runner import get_runner
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.status import JobState, JobStatus
from torchx_pulumi.schedulers import find_backend
from torchx_pulumi.schedulers.diagnosis.evidence import ObservedObjects
from torchx_pulumi.schedulers.pods import rows
from torchx_pulumi.schedulers.volcano import observe
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.fleet.controller_fleet import FAKE_NODE
from tests.e2e.fleet.controller_world import World
from tests.e2e.project import eventually

pytestmark = pytest.mark.e2e

MANY = int(os.environ.get("TORCHX_PULUMI_REPLICAS", "60"))
"""Replicas of the large run; 300 in the long run."""


def submitted(world: World, image: str, replicas: int, *, script: str | None = None, **options: Any) -> str:
    """Launch a run on the real node with a script, else on fake nodes until it is cancelled; return its handle."""
    role = specs.Role(
        name="trainer",
        image=image,
        entrypoint="sh",
        args=["-c", script or "true"],
        num_replicas=replicas,
        resource=specs.Resource(cpu=1, gpu=0, memMB=64),
        metadata={} if script else {"kubernetes": {"spec": FAKE_NODE}},
    )
    given = {"namespace": world.namespace, "queue": "default", "reserved_millicpu": 980, "reserved_memmb": 48}
    with get_runner() as runner:
        return str(runner.run(specs.AppDef(name="train", roles=[role]), "pulumi_volcano", {**given, **options}))


def read(look: KubernetesCluster, namespace: str, name: str) -> tuple[JobStatus, ObservedObjects]:
    variant = find_backend("volcano").variants["job"]
    seen = variant.observe(look, namespace, name)
    return variant.read_status(seen, datetime.now(timezone.utc)), seen


def is_running(look: KubernetesCluster, namespace: str, name: str, replicas: int) -> bool:
    """Return whether all pods run, and Volcano's controller has counted them; it takes one after the other."""
    status, _ = read(look, namespace, name)
    return status.state is JobState.RUNNING and status.roles[0].counts == {JobState.RUNNING: replicas}


def short(status: JobStatus) -> list[tuple[int, str | None, str, str, str | None]]:
    return [(one.id, one.pod, one.state.value, one.reason.value, one.node) for one in status.replicas]


@pytest.mark.counted
def test_a_run_of_many_replicas_is_read_and_cancelled(
    world: World, look: KubernetesCluster, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submitted(world, image, MANY)
    name = handle.rpartition(":")[2]
    job = look.get(VOLCANO_JOB, world.namespace, name)
    assert job is not None
    assert [task["replicas"] for task in job["spec"]["tasks"]] == [1, MANY - 1]
    with get_runner() as runner:
        eventually(lambda: is_running(look, world.namespace, name, MANY), timeout_s=400)
        described = runner.status(handle)
        assert described is not None
        assert described.state is specs.AppState.RUNNING
        (role,) = described.roles
        assert [one.id for one in role.replicas] == [*range(MANY)]
        assert {one.state for one in role.replicas} == {specs.AppState.RUNNING}
        assert all(one.hostname for one in role.replicas)

        # The same facts where only some pods are read as a whole.
        whole, all_pods = read(look, world.namespace, name)
        monkeypatch.setattr(rows, "MOST_WHOLE", 20)
        monkeypatch.setattr(observe, "MOST_WHOLE", 20)
        status, seen = read(look, world.namespace, name)
        assert all_pods.rows is None
        assert len(seen.rows or ()) == MANY
        assert len(seen.pods or ()) < MANY
        assert short(status) == short(whole)
        assert (status.state, status.reason, status.message) == (whole.state, whole.reason, whole.message)

        failed = f"{name}-trainer-1-40"
        ends = {"metadata": {"annotations": {"torchx-pulumi/fake-exit-code": "3"}}}
        path = f"/api/v1/namespaces/{world.namespace}/pods/{failed}"
        world.server.ask("PATCH", path, ends, kind="merge-patch+json")
        eventually(lambda: read(look, world.namespace, name)[0].roles[0].counts.get(JobState.FAILED) == 1)
        status, _ = read(look, world.namespace, name)
        (replica,) = [one for one in status.replicas if one.state is JobState.FAILED]
        assert (replica.id, replica.pod, replica.exit_code) == (41, failed, 3)
        assert f"exited with code 3 (1 of {MANY} replicas; pod {failed} on node {replica.node})" in status.message
        monkeypatch.undo()

        assert handle in [app.app_handle for app in runner.list("pulumi_volcano")]
        runner.cancel(handle)
        eventually(lambda: (found := runner.status(handle)) and found.state is specs.AppState.CANCELLED, timeout_s=400)
        labels = find_backend("volcano").pod_selector(name)
        running = [
            pod for pod in look.list(POD, world.namespace, labels) if pod["status"]["phase"] in ("Pending", "Running")
        ]
        assert all(pod["metadata"].get("deletionTimestamp") for pod in running)


def test_the_log_of_each_replica_of_a_task_is_read(world: World, image: str) -> None:
    script = "echo host $HOSTNAME; echo other; sleep 2; exit $((${HOSTNAME##*-} == 1))"
    handle = submitted(world, image, 3, script=script, layout="role")
    name = handle.rpartition(":")[2]
    with get_runner() as runner:
        eventually(lambda: all(len(lines(runner, handle, replica)) == 2 for replica in range(3)))
        hosts = [f"host {name}-{task}\n" for task in ("trainer-0-0", "trainer-1-0", "trainer-1-1")]
        assert [lines(runner, handle, replica) for replica in range(3)] == [[host, "other\n"] for host in hosts]
        assert lines(runner, handle, 2, regex="host") == [hosts[2]]
        found = eventually(lambda: status_of(runner, handle, specs.AppState.FAILED))
        assert [one.id for one in found.roles[0].replicas if one.state is specs.AppState.FAILED] == [2]
        runner.cancel(handle)


def lines(runner: Any, handle: str, replica: int, regex: str | None = None) -> list[str]:
    try:
        found = list(runner.log_lines(handle, "trainer", replica, regex))
    except ClusterError:
        # The container has not started.
        return []
    return [line.split(" ", 1)[1] for line in found]


def status_of(runner: Any, handle: str, state: Any) -> Any:
    """Return the status of a run once a replica is in a state."""
    found = runner.status(handle)
    return found if any(one.state is state for one in found.roles[0].replicas) else None
