"""Indexed Jobs, a scheduler of the tests, on the real engine, cluster and node; see docs/adding-a-scheduler.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD, SERVICE
from torchx_pulumi.schedulers import registry
from torchx_pulumi_stacks.entrypoints import create_scheduler

from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli
from tests.third_scheduler.conftest import register_indexed_jobs
from tests.third_scheduler.indexed_job.manifests import JOB

pytestmark = pytest.mark.e2e

SCHEDULER = "pulumi_indexed_job"


@pytest.fixture
def runner(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    monkeypatch.setattr(registry, "_MODULES", dict(registry._MODULES))
    register_indexed_jobs()
    cli = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.folder)

    def create(session_name: str, **_: Any) -> Any:
        return create_scheduler("indexed_job", session_name)

    with Runner("e2e", {SCHEDULER: create}) as found:
        yield found


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can write a log")
    return str(cluster.images["busybox"])


def app_of(image: str, script: str, replicas: int = 1) -> AppDef:
    resource = Resource(cpu=0, gpu=0, memMB=0)
    role = Role("trainer", image=image, entrypoint="sh", args=["-c", script], num_replicas=replicas, resource=resource)
    return AppDef("indexed", roles=[role])


def wait_for(runner: Runner, handle: str, state: AppState) -> Any:
    def found() -> Any:
        status = runner.status(handle)
        return status if status is not None and status.state is state else None

    return eventually(found)


def test_replicas_find_rank_0_and_their_logs_and_objects_are_managed(
    runner: Runner, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    script = "echo index $$JOB_COMPLETION_INDEX of $$TORCHX_RANK0_HOST"
    handle = runner.run(app_of(busybox, script, replicas=2), SCHEDULER, {"namespace": namespace})
    app_id = handle.rpartition("/")[2]
    name = app_id.rpartition(":")[2]
    for index in range(2):
        lines = "".join(runner.log_lines(handle, "trainer", index, should_tail=True))
        assert f"index {index} of {name}-0.{name}" in lines
    status = wait_for(runner, handle, AppState.SUCCEEDED)
    assert [[each.id for each in role.replicas] for role in status.roles] == [[0, 1]]
    assert any(found.app_handle == handle for found in runner.list(SCHEDULER))
    assert [len(look.list(kind, namespace)) for kind in (JOB, SERVICE)] == [1, 1]
    runner._scheduler(SCHEDULER).delete(app_id)
    # With `skipAwait`, the provider does not wait until a Job of batch/v1 is gone.
    eventually(lambda: runner.status(handle) is None)
    eventually(lambda: [look.list(kind, namespace) for kind in (JOB, SERVICE, POD)] == [[], [], []])


def test_a_failed_pod_and_a_missing_image_are_diagnosed(runner: Runner, namespace: str, busybox: str) -> None:
    failing = runner.run(app_of(busybox, "echo last words; sleep 2; exit 3"), SCHEDULER, {"namespace": namespace})
    missing = runner.run(app_of(f"{busybox}-missing", "true"), SCHEDULER, {"namespace": namespace})
    assert re.search(r"exited with code 3 \(pod \S+.*\): last words", wait_for(runner, failing, AppState.FAILED).msg)
    eventually(lambda: "cannot be pulled" in runner.status(missing).msg)
    for handle in (failing, missing):
        runner._scheduler(SCHEDULER).delete(handle.rpartition("/")[2])


def test_cancel_ends_the_pods_and_keeps_the_record(
    runner: Runner, namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = runner.run(app_of(busybox, "trap 'exit 143' TERM; sleep 300 & wait"), SCHEDULER, {"namespace": namespace})
    wait_for(runner, handle, AppState.RUNNING)
    runner.cancel(handle)
    assert wait_for(runner, handle, AppState.CANCELLED)
    # A shell that has not set its trap yet ends after the grace period of 30 s.
    eventually(lambda: not look.list(POD, namespace) and not look.list(JOB, namespace), timeout_s=180)
    runner._scheduler(SCHEDULER).delete(handle.rpartition("/")[2])
    assert look.list(SERVICE, namespace) == []
