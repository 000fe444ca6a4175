"""AppWrappers v1beta2 that TorchX launches into a queue of Kueue: the real Kueue, operator and scheduler, fake GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, KUEUE_PRIORITY

from tests.e2e.app_wrappers import AppWrappers
from tests.e2e.kueue_queues import PRIORITY, KueueQueues
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.mcad_project import is_state as is_job_state
from tests.e2e.project import Project, changes, eventually
from tests.e2e.torchx_cli import TorchxCli, runner_of
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def runner(cli: TorchxCli, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    with runner_of(cli, monkeypatch) as found:
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
    runner: Runner, cli: TorchxCli, queues: KueueQueues, look: KubernetesCluster
) -> None:
    queue = queues.make("team", {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"})
    first = launch(runner, queues.namespace, queue, gpus=3, run_for="1h")
    eventually(lambda: is_state(runner, first, AppState.RUNNING))
    second = launch(runner, queues.namespace, queue, gpus=2, run_for="15s")
    name = second.rpartition(":")[2]

    def said(kind: str) -> str | None:
        return queues.condition(queues.workload(name), kind).get("status")

    eventually(lambda: said("QuotaReserved") == "False")
    eventually(lambda: is_state(runner, second, AppState.PENDING))
    message = queues.condition(queues.workload(name), "QuotaReserved")["message"]
    assert "insufficient unused quota for nvidia.com/gpu" in message
    head = look.get(APP_WRAPPER_V1BETA2, queues.namespace, name) or {}
    assert (head["spec"]["suspend"], head["status"]["phase"]) == (True, "Suspended")
    assert len(look.list(POD, queues.namespace)) == 3
    why = "asks for 2 nvidia.com/gpu; 1 of 4 nvidia.com/gpu are free in ClusterQueue"
    assert why in cli.torchx("status", second).text
    apps = json.loads(cli.ours("fleet", "--json", "--namespace", queues.namespace).out)["apps"]
    assert {one["reason"] for one in apps} == {"Running", "OverQuota"}
    refused = cli.ours("resume", second, code=None).text
    assert f"is PENDING ({why}" in refused
    assert "only its controller resumes an AppWrapper; wait until jobs of its queue end" in refused
    never = cli.torchx(
        *("run", "--dryrun", "--workspace", "", "-s", "pulumi_mcad"),
        *("-cfg", f"namespace={queues.namespace},api_version=v1beta2,local_queue={queue}"),
        *("utils.echo", "--num_replicas", "9", "--image", "app:1"),
        code=None,
    )
    assert "can never admit the job" in never.text

    runner.cancel(first)
    eventually(lambda: is_state(runner, second, AppState.RUNNING))
    eventually(lambda: is_state(runner, second, AppState.SUCCEEDED))
    eventually(lambda: said("Finished") == "True")
    pods = [pod["spec"] for pod in look.list(POD, queues.namespace) if pod["metadata"]["name"].startswith(name)]
    # Kueue has added what the flavor says.
    assert [pod["nodeSelector"] for pod in pods] == [{"torchx-pulumi/node": "fake"}] * 2


def test_an_up_without_a_change_leaves_a_job_alone_that_kueue_holds_or_has_preempted(
    kueue_cluster: Cluster, queues: KueueQueues, make_project: Callable[..., Project], look: KubernetesCluster
) -> None:
    queues.create(PRIORITY, "minor", {}, value=1)
    queues.create(PRIORITY, "major", {}, value=100)
    quota = {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"}
    queue = queues.make("team", quota, preemption={"withinClusterQueue": "LowerPriority"})
    jobs = AppWrappers(kueue_cluster, queues.namespace, APP_WRAPPER_V1BETA2)
    resource = {"cpu": 0.2, "gpu": 1}
    role = {"num_replicas": 2, "resource": {**resource, "memory_mb": 16}}
    program = McadProject(
        make_project(program=MCAD_PROGRAM),
        "app:1",
        api_version="v1beta2",
        local_queue=queue,
        labels={KUEUE_PRIORITY: "minor"},
    )
    project = program.project

    def leaves_it_alone() -> None:
        assert changes(project.up()).keys() == {"unchanged"}
        assert changes(project.up("--refresh")).keys() == {"unchanged"}

    program.job(role={**role, "num_replicas": 5})
    assert "can never admit the job: it asks for 5 nvidia.com/gpu in all" in project.preview(fails=True)

    others = {"num_replicas": 3, "resource": {**resource, "memMB": 16}, "args": ["-c", "sleep 3600"]}
    major = {KUEUE_PRIORITY: "major"}
    first = jobs.submit(others, local_queue=queue, labels=major)
    eventually(lambda: jobs.phase(first) == "Running")
    program.job(role=role)
    seen = program.until(lambda seen: bool(seen["reason"] == "OverQuota"))
    assert "asks for 2 nvidia.com/gpu; 1 of 4 nvidia.com/gpu are free" in seen["message"]
    uid = project.output("train")["uid"]
    leaves_it_alone()
    program.job(role={**role, "args": ["-c", "sleep 7200"]})
    assert "on_running_change" in project.preview(fails=True)

    program.job(role=role)
    jobs.delete(first)
    program.until(is_job_state("RUNNING"))
    leaves_it_alone()
    urgent = jobs.submit(others, local_queue=queue, labels=major)
    seen = program.until(lambda seen: bool(seen["reason"] == "Preempted"))
    assert f"to make room for AppWrapper {queues.namespace}/{urgent}" in seen["message"]
    leaves_it_alone()
    jobs.delete(urgent)
    seen = program.until(is_job_state("RUNNING"))
    assert "evicted by Kueue once (Preempted 1)" in seen["message"]
    assert project.output("train")["uid"] == uid
    project.destroy()
    assert look.list(APP_WRAPPER_V1BETA2, queues.namespace) == []
