"""AppWrappers v1beta2 that TorchX launches into a queue of Kueue: the real Kueue, operator and scheduler, fake GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2

from tests.e2e.kueue_queues import KueueQueues
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli, runner_of
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


@pytest.fixture
def queues(kueue_cluster: Cluster, namespace: str) -> KueueQueues:
    return KueueQueues(kueue_cluster, namespace)


@pytest.fixture
def runner(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    with runner_of(TorchxCli(pulumi_env, tmp_path, kubeconfig), monkeypatch) as found:
        yield found


def launch(runner: Runner, namespace: str, queue: str, gpus: int, run_for: str) -> str:
    """Launch a job of one replica for each GPU, which ends after a time; return its handle."""
    ends = {"torchx-pulumi/fake-exit-code": "0", "torchx-pulumi/fake-run-for": run_for}
    role = Role(
        name="trainer",
        image="app:1",
        entrypoint="main",
        num_replicas=gpus,
        resource=Resource(cpu=1, gpu=1, memMB=64),
        metadata={"kubernetes": {"V1Pod": {"metadata": {"annotations": ends}}}},
    )
    options = {"namespace": namespace, "api_version": "v1beta2", "local_queue": queue}
    return str(runner.run(AppDef(name="train", roles=[role]), "pulumi_mcad", options))


def is_state(runner: Runner, handle: str, state: AppState) -> bool:
    status = runner.status(handle)
    return status is not None and status.state is state


def test_a_job_waits_for_quota_and_runs_once_there_is_room(
    runner: Runner, queues: KueueQueues, look: KubernetesCluster
) -> None:
    queue = queues.make("team", {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"})
    first = launch(runner, queues.namespace, queue, gpus=3, run_for="1h")
    eventually(lambda: is_state(runner, first, AppState.RUNNING))
    second = launch(runner, queues.namespace, queue, gpus=2, run_for="5s")
    name = second.rpartition(":")[2]

    def said(kind: str) -> str | None:
        return queues.condition(queues.workload(name), kind).get("status")

    eventually(lambda: said("QuotaReserved") == "False")
    message = queues.condition(queues.workload(name), "QuotaReserved")["message"]
    assert "insufficient unused quota for nvidia.com/gpu" in message
    head = look.get(APP_WRAPPER_V1BETA2, queues.namespace, name) or {}
    assert (head["spec"]["suspend"], head["status"]["phase"]) == (True, "Suspended")
    assert is_state(runner, second, AppState.PENDING)
    assert len(look.list(POD, queues.namespace)) == 3

    runner.cancel(first)
    eventually(lambda: is_state(runner, second, AppState.RUNNING))
    eventually(lambda: is_state(runner, second, AppState.SUCCEEDED))
    eventually(lambda: said("Finished") == "True")
    pods = [pod["spec"] for pod in look.list(POD, queues.namespace) if pod["metadata"]["name"].startswith(name)]
    # Kueue has added what the flavor says.
    assert [pod["nodeSelector"] for pod in pods] == [{"torchx-pulumi/node": "fake"}] * 2
