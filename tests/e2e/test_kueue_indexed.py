"""AppWrappers v1beta2 of any size under the real Kueue: Indexed Jobs on fake nodes and on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner
from torchx.specs import AppDef, AppState, Resource, Role
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import JOB, POD
from torchx_pulumi.model.status import JobState, JobStatus, Reason
from torchx_pulumi.schedulers.appwrapper.objects import WORKLOAD

from tests.e2e.app_wrappers import AppWrappers, shell
from tests.e2e.kueue_queues import KueueQueues
from tests.e2e.project import eventually
from tests.e2e.torchx_cli import TorchxCli, runner_of
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]

QUOTA = {"cpu": "100", "memory": "100Gi", "nvidia.com/gpu": "32"}
KEY = "workload.codeflare.dev.appwrapper/"
FIND_RANK_0 = """
if [ ${replica_id} = 0 ]; then
  echo 0 waits
  # A pod that has ended has no name any more: rank 0 stays until each of the others has reached it.
  for i in 1 2 3 4 5 6 7 8; do echo welcome | nc -l -p 29500; done
  exit
fi
until [ "$(nc -w 30 $TORCHX_MCAD_TRAINER_0_HOSTS 29500 < /dev/null 2> /dev/null)" = welcome ]; do sleep 1; done
echo "${replica_id} found $TORCHX_MCAD_TRAINER_0_HOSTS"
sleep 2
"""
QUICK = {f"{KEY}retryPausePeriodDuration": "1s"}
"""Annotation: the operator does not pause before a retry."""


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


@pytest.fixture
def runner(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    with runner_of(TorchxCli(pulumi_env, tmp_path, kubeconfig), monkeypatch) as found:
        yield found


@pytest.fixture
def jobs(kueue_cluster: Cluster, jobs: AppWrappers) -> AppWrappers:
    if not kueue_cluster.settings.real_node:
        pytest.skip(f"no real node: {kueue_cluster.settings.why_no_real_node}")
    return jobs


def is_state(runner: Runner, handle: str, state: AppState) -> bool:
    status = runner.status(handle)
    return status is not None and status.state is state


def seen(queues: KueueQueues, name: str, state: JobState) -> JobStatus:
    """Wait until a job is in a state; return its status."""
    last: list[JobStatus] = []

    def is_so() -> bool:
        last[:] = [queues.status(name)]
        return last[0].state is state

    try:
        eventually(is_so)
    except AssertionError as error:
        raise AssertionError(f"{last[0].state} {last[0].reason}: {last[0].message}") from error
    return last[0]


@pytest.mark.parametrize(("replicas", "made"), [(1, 0), (9, 2), (20, 2), (100, 2)])
def test_a_job_of_any_size_runs_under_quota(
    runner: Runner, queues: KueueQueues, look: KubernetesCluster, replicas: int, made: int
) -> None:
    queue = queues.make("team", QUOTA)
    ends = {"torchx-pulumi/fake-exit-code": "0", "torchx-pulumi/fake-run-for": "5s"}
    role = Role(
        name="trainer",
        image="app:1",
        entrypoint="main",
        num_replicas=replicas,
        resource=Resource(cpu=0.2, gpu=0, memMB=32),
        metadata={"kubernetes": {"V1Pod": {"metadata": {"annotations": ends}}}},
    )
    options = {"namespace": queues.namespace, "api_version": "v1beta2", "local_queue": queue}
    handle = str(runner.run(AppDef(name="train", roles=[role]), "pulumi_mcad", options))
    eventually(lambda: is_state(runner, handle, AppState.SUCCEEDED))
    assert len(look.list(JOB, queues.namespace)) == made
    described = runner.status(handle)
    assert described is not None
    states = [one.state for one in described.roles[0].replicas]
    assert states == [AppState.SUCCEEDED] * replicas
    assert len({pod["spec"]["nodeName"] for pod in look.list(POD, queues.namespace)}) >= 1


def real_queue(queues: KueueQueues) -> str:
    """Make a queue whose pods go to the real node."""
    return queues.make("real", {"cpu": "4", "memory": "4Gi"}, nodes="real")


def small(script: str, **role: Any) -> dict[str, Any]:
    return shell(script, resource={"cpu": 0.11, "gpu": 0, "memMB": 1032}, **role)


def test_each_replica_of_a_job_reads_its_id_and_rank_0_is_found(queues: KueueQueues, jobs: AppWrappers) -> None:
    name = jobs.submit(small(FIND_RANK_0, num_replicas=9), local_queue=real_queue(queues))
    status = seen(queues, name, JobState.SUCCEEDED)
    said = [jobs.logs(one.pod or "").splitlines() for one in status.replicas]
    assert said == [["0 waits"], *([f"{rank} found {name}-trainer-0-0.{name}"] for rank in range(1, 9))]
    assert all((one.pod or "").startswith(f"{name}-trainer-0-{one.id}-") for one in status.replicas)


def test_when_a_replica_fails_all_last_lines_are_kept(queues: KueueQueues, jobs: AppWrappers) -> None:
    script = "echo line of $HOSTNAME; case $HOSTNAME in *-trainer-1-3) sleep 20; exit 3;; esac; sleep 600"
    name = jobs.submit(small(script, num_replicas=9), local_queue=real_queue(queues))
    status = seen(queues, name, JobState.FAILED)
    assert (status.reason, status.exit_code) == (Reason.EXIT_CODE, 3)
    assert f"exited with code 3 (1 of 9 replicas; pod {name}-trainer-1-3-" in status.message
    # A slow node may not answer with the log at first.
    eventually(lambda: "line of" in queues.status(name).diagnoses[0].detail)
    assert [one.state for one in status.replicas] == [
        JobState.FAILED if one.id == 4 else JobState.RUNNING for one in status.replicas
    ]
    assert all("line of" in jobs.logs(one.pod or "") for one in status.replicas)


def test_torchx_reads_the_log_of_each_replica(
    runner: Runner, queues: KueueQueues, jobs: AppWrappers, look: KubernetesCluster, kueue_cluster: Cluster
) -> None:
    role = Role(
        name="trainer",
        image=kueue_cluster.images["busybox"],
        entrypoint="sh",
        args=["-c", "echo line of ${replica_id}; sleep 3"],
        num_replicas=9,
        resource=Resource(cpu=0.11, gpu=0, memMB=1032),
    )
    options = {"namespace": queues.namespace, "api_version": "v1beta2", "local_queue": real_queue(queues)}
    handle = str(runner.run(AppDef(name="train", roles=[role]), "pulumi_mcad", options))
    followed = [line.rstrip() for line in runner.log_lines(handle, "trainer", 7, should_tail=True)]
    assert [line.endswith("line of 7") for line in followed] == [True]
    eventually(lambda: is_state(runner, handle, AppState.SUCCEEDED))
    (line,) = runner.log_lines(handle, "trainer", 8)
    assert line.rstrip().endswith("line of 8")
    name = handle.rpartition(":")[2]
    look.delete(POD, queues.namespace, queues.status(name).replicas[8].pod or "")
    eventually(lambda: len(jobs.pods(name)) == 8)
    assert queues.status(name).replicas[8].state is JobState.SUCCEEDED
    with pytest.raises(Exception, match=r"replica trainer/8 of app .* has no pod"):
        list(runner.log_lines(handle, "trainer", 8))


@pytest.mark.parametrize("lost", ["trainer-0", "trainer-1"])
def test_a_retry_covers_a_deleted_pod_also_of_rank_0(
    queues: KueueQueues, jobs: AppWrappers, look: KubernetesCluster, lost: str
) -> None:
    queue = real_queue(queues)
    name = jobs.submit(small("sleep 600", num_replicas=9, max_retries=1), local_queue=queue, annotations=QUICK)
    seen(queues, name, JobState.RUNNING)
    eventually(lambda: all(one.state is JobState.RUNNING for one in queues.status(name).replicas))
    before = {one.pod for one in queues.status(name).replicas}
    victim = next(pod or "" for pod in before if (pod or "").startswith(f"{name}-{lost}-0-"))
    look.delete(POD, queues.namespace, victim)
    eventually(lambda: queues.status(name).attempt == 2)

    def is_back() -> bool:
        after = queues.status(name).replicas
        pods = {one.pod for one in after}
        return all(one.state is JobState.RUNNING for one in after) and not pods & before

    eventually(is_back)
    look.delete(POD, queues.namespace, next(one.pod or "" for one in queues.status(name).replicas))
    over = seen(queues, name, JobState.FAILED)
    assert (over.reason, over.attempt) == (Reason.RETRIES_EXHAUSTED, 2)


def test_a_job_of_jobs_is_stopped_and_started_by_its_queue(
    queues: KueueQueues, jobs: AppWrappers, look: KubernetesCluster
) -> None:
    queue = real_queue(queues)
    name = jobs.submit(small("sleep 600", num_replicas=9), local_queue=queue)
    seen(queues, name, JobState.RUNNING)
    eventually(lambda: len(jobs.pods(name)) == 9)
    workload = queues.workload(name)["metadata"]["name"]
    queues.patch(WORKLOAD, workload, {"spec": {"active": False}})
    eventually(lambda: look.list(POD, queues.namespace) == look.list(JOB, queues.namespace) == [])
    seen(queues, name, JobState.PENDING)
    queues.patch(WORKLOAD, workload, {"spec": {"active": True}})
    eventually(lambda: len(jobs.pods(name)) == 9)
    seen(queues, name, JobState.RUNNING)


def test_a_job_of_jobs_without_a_queue_is_suspended_and_resumed_in_place(
    queues: KueueQueues, jobs: AppWrappers, look: KubernetesCluster
) -> None:
    name = jobs.submit(small("sleep 600", num_replicas=9), suspend=True)
    assert seen(queues, name, JobState.PENDING).reason is Reason.SUSPENDED
    for _ in range(2):
        jobs.patch(name, {"suspend": False})
        seen(queues, name, JobState.RUNNING)
        eventually(lambda: len(jobs.pods(name)) == 9)
        jobs.patch(name, {"suspend": True})
        eventually(lambda: queues.status(name).reason is Reason.SUSPENDED)
        assert look.list(POD, queues.namespace) == look.list(JOB, queues.namespace) == []
