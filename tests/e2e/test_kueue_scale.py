"""Many jobs in a full queue of Kueue, and a large one that it admits: the real Kueue, operator and scheduler."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2

from tests.e2e.fleet.test_controller_pages import running
from tests.e2e.kueue_queues import KueueQueues
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli, runner_of
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.extended]

JOBS = 200
"""Jobs that wait in a full queue."""
MOST_S = 120.0
"""Longest time from the last submission until every reason is read."""
MOST_CPU_S = 60.0
"""Most CPU time of a look at all of them."""
START_S = 900
"""Most time in which the pods of a job start."""
WHY = "asks for 1 nvidia.com/gpu; 0 of 4 nvidia.com/gpu are free in ClusterQueue"


@pytest.fixture(scope="module")
def kueue_cluster() -> Iterator[Cluster]:
    """A cluster of fake nodes in which 1,000 pods have time to start."""
    found = Cluster.up(f"scale-{os.getpid()}", real_node=False, features=("appwrapper", "kueue"), pods_ready_s=START_S)
    yield found
    found.down()


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


def launch(runner: Runner, queues: KueueQueues, queue: str, replicas: int, gpu: int = 0, run_for: str = "1h") -> str:
    """Launch a job that ends after a time; return its handle."""
    ends = {"torchx-pulumi/fake-exit-code": "0", "torchx-pulumi/fake-run-for": run_for}
    role = Role(
        name="trainer",
        image="app:1",
        entrypoint="main",
        num_replicas=replicas,
        resource=Resource(cpu=0.2, gpu=gpu, memMB=32),
        metadata={"kubernetes": {"V1Pod": {"metadata": {"annotations": ends}}}},
    )
    options = {"namespace": queues.namespace, "api_version": "v1beta2", "local_queue": queue}
    return str(runner.run(AppDef(name="train", roles=[role]), "pulumi_mcad", options))


def reaches(runner: Runner, handle: str, state: AppState, timeout_s: float = 120.0) -> list[AppState]:
    """Wait until an app is in a state; return the states of its replicas."""
    last: list[Any] = []

    def is_so() -> bool:
        last[:] = [runner.status(handle)]
        return last[0] is not None and last[0].state is state

    try:
        eventually(is_so, timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{handle} is not {state.name}: {last}") from error
    return [replica.state for replica in last[0].roles[0].replicas]


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print figures."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def copy_app(cluster: Cluster, look: KubernetesCluster, cli: TorchxCli, handle: str, copies: int) -> None:
    """Submit copies of a job, and write a copy of its stack for each: a launch of each would take minutes."""
    namespace, _, name = handle.rpartition("/")[2].partition(":")
    backend = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "backend"
    (stack,) = backend.glob(f".pulumi/stacks/torchx/*{name}*.json")
    text, found = stack.read_text(), look.get(APP_WRAPPER_V1BETA2, namespace, name)
    assert found is not None
    metadata = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    body = json.dumps({**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})
    path = f"/apis/{APP_WRAPPER_V1BETA2.api_version}/namespaces/{namespace}/{APP_WRAPPER_V1BETA2.plural}"
    for number in range(copies):
        other = f"{name[:-4]}{number:04d}"
        made = cluster.api.request("POST", path, json.loads(body.replace(name, other)))
        of_other = text.replace(name, other).replace(found["metadata"]["uid"], made["metadata"]["uid"])
        stack.with_name(stack.name.replace(name, other)).write_text(of_other)


def fill(cluster: Cluster, runner: Runner, cli: TorchxCli, queues: KueueQueues, look: KubernetesCluster) -> float:
    """Submit jobs into a queue that another one fills; return the time after the last."""
    queue = queues.make("team", {"cpu": "100", "memory": "100Gi", "nvidia.com/gpu": "4"})
    reaches(runner, launch(runner, queues, queue, replicas=4, gpu=1), AppState.RUNNING)
    copy_app(cluster, look, cli, launch(runner, queues, queue, replicas=1, gpu=1), JOBS - 1)
    return time.monotonic()


def wait_for_reasons(read: Callable[[], list[tuple[str, str]]]) -> None:
    """Wait until each job is read with its reason and numbers; `read` returns the reason and the words of each."""
    last: Counter[str] = Counter()

    def is_told() -> bool:
        nonlocal last
        last = Counter(f"{reason}: {why}" for reason, why in read())
        return sum(count for said, count in last.items() if said.startswith("OverQuota") and WHY in said) == JOBS

    try:
        eventually(is_told, timeout_s=MOST_S)
    except AssertionError as error:
        raise AssertionError(f"not in {MOST_S} s: {last}") from error


def test_one_look_has_the_reason_of_each_of_many_jobs_in_a_full_queue(
    kueue_cluster: Cluster,
    runner: Runner,
    cli: TorchxCli,
    queues: KueueQueues,
    look: KubernetesCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    submitted, figures = fill(kueue_cluster, runner, cli, queues, look), dict[str, float]()

    def read() -> list[tuple[str, str]]:
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        said = json.loads(cli.ours("fleet", "--live", "--json", "--namespace", queues.namespace).out)
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        figures.update(after_s=ended - submitted, look_s=ended - begun, cpu_s=cpu_s)
        return [(app["reason"], app["message"]) for app in said["apps"]]

    wait_for_reasons(read)
    tell(capsys, f"{JOBS} jobs in a full queue, the look with every reason: {figures}")
    assert figures["cpu_s"] < MOST_CPU_S


def test_the_page_has_the_reason_of_each_of_many_jobs_in_a_full_queue(
    kueue_cluster: Cluster,
    runner: Runner,
    cli: TorchxCli,
    queues: KueueQueues,
    look: KubernetesCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running(cli, "--namespace", queues.namespace) as (controller, site):
        submitted = fill(kueue_cluster, runner, cli, queues, look)
        wait_for_reasons(lambda: [(app["reason"], app["cause"]) for app in site.json("/api/v1/apps")["apps"]])
        figures = {"after_s": time.monotonic() - submitted, "controller_cpu_s": controller.cpu_now_s()}
    tell(capsys, f"{JOBS} jobs in a full queue, the page with every reason: {figures}")


def test_a_job_of_1000_replicas_runs_and_ends_under_quota(
    runner: Runner, queues: KueueQueues, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = queues.make("team", {"cpu": "100", "memory": "100Gi", "nvidia.com/gpu": "1"})
    begun = time.monotonic()
    handle = launch(runner, queues, queue, replicas=1000, run_for="60s")
    launched_s = time.monotonic() - begun
    reaches(runner, handle, AppState.RUNNING, timeout_s=START_S)
    ran_s = time.monotonic() - begun
    ends = reaches(runner, handle, AppState.SUCCEEDED, timeout_s=1200)
    ended_s = time.monotonic() - begun
    tell(capsys, f"1,000 replicas: launched {launched_s:.1f} s, RUNNING {ran_s:.1f} s, SUCCEEDED {ended_s:.1f} s")
    assert ends == [AppState.SUCCEEDED] * 1000
