"""The life of one app under the real Kueue, as the fleet's controller, its page and the commands tell it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2, WORKLOAD

from tests.e2e.app_wrappers import AppWrappers
from tests.e2e.fleet.cluster_watch import Server
from tests.e2e.fleet.controller_process import StackWatch
from tests.e2e.fleet.test_controller_pages import Site, running
from tests.e2e.kueue_queues import PRIORITY, KueueQueues
from tests.e2e.mcad_project import MCAD_PROGRAM, McadProject
from tests.e2e.mcad_project import is_state as is_job_state
from tests.e2e.project import Project, eventually
from tests.e2e.torchx_cli import TorchxCli
from tools.local_cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.kueue]

COMPONENT = """
from torchx import specs

def fake(replicas: int) -> specs.AppDef:
    resource = specs.Resource(cpu=1, gpu=1, memMB=64)
    role = specs.Role("trainer", image="app:1", entrypoint="main", num_replicas=replicas, resource=resource)
    return specs.AppDef("train", [role])
"""
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
REFUSED = "must be false with local_queue: Kueue suspends and resumes the job"
HELD = {"role": {"resource": {"cpu": 0.2, "gpu": 1, "memory_mb": 16}, "args": ["-c", "sleep 3600"]}}


@pytest.fixture
def kubeconfig(kueue_cluster: Cluster) -> Path:
    return Path(kueue_cluster.kubeconfig)


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    (tmp_path / "mine.py").write_text(COMPONENT)
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def stacks(cli: TorchxCli) -> Iterator[StackWatch]:
    backend = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "backend"
    backend.mkdir(parents=True)
    watch = StackWatch(backend)
    yield watch
    watch.close()


class Life:
    """One app that `torchx run` has launched, as the page and its stack have it."""

    def __init__(self, site: Site, stacks: StackWatch, queues: KueueQueues, app_id: str) -> None:
        self.app_id, self.name = app_id, app_id.rpartition(":")[2]
        self._site, self._stacks, self._queues = site, stacks, queues
        self.delays: list[str] = []
        """States, and the seconds from the Workload until the reason is on the page, and all of it in the stack."""

    def shown(self) -> dict[str, Any]:
        """Return the app as the page has it; empty before that."""
        listed = self._site.json("/api/v1/apps")["apps"]
        found = next((one for one in listed if one["app_id"] == self.app_id), None)
        return {} if found is None else dict(self._site.json(f"/api/v1/apps/{found['id']}"))

    def tells(self, state: str, reason: str, words: str, workload: str) -> dict[str, Any]:
        """Wait until a condition of the Workload is True, or with `!` False, then for the page, and for the stack."""
        wanted, kind = ("False", workload[1:]) if workload.startswith("!") else ("True", workload)

        def is_said() -> bool:
            found = self._queues.workload(self.name)
            return self._queues.condition(found, kind).get("status") == wanted

        eventually(is_said)
        return self.reaches(state, reason, words)

    def reaches(self, state: str, reason: str, words: str = "") -> dict[str, Any]:
        """Wait until page and stack have a state and a reason, in these words; return the app as the page has it."""
        began, took = time.monotonic(), []
        last: list[Any] = [None, None]

        def on_page() -> bool:
            last[0] = self.shown()
            # While its pods are stopped, the reason is another one.
            return bool(last[0].get("reason") == reason or (words and words in last[0].get("message", "")))

        def whole_on_page() -> bool:
            last[0] = self.shown()
            return is_so(last[0])

        def in_stack() -> bool:
            written = self._stacks.last(self.app_id)
            last[1] = {} if written is None else written.observed
            return is_so(last[1])

        def is_so(found: Any) -> bool:
            return (found.get("state"), found.get("reason")) == (state, reason) and words in found["message"]

        for claim in (on_page, whole_on_page, in_stack):
            try:
                eventually(claim)
            except AssertionError as error:
                seen = [{key: (one or {}).get(key) for key in ("state", "reason", "message")} for one in last]
                raise AssertionError(f"{state} ({reason}: {words}) is not told: page, stack: {seen}") from error
            took.append(time.monotonic() - began)
        self.delays.append(f"{state} ({reason}) {took[0]:.1f} s, {took[2]:.1f} s")
        return dict(last[0])


def launch(cli: TorchxCli, queue: str, namespace: str, replicas: int, label: str) -> str:
    """Launch an app of one GPU for each replica, which runs until it is ended; return its id."""
    options = f"namespace={namespace},api_version=v1beta2,local_queue={queue},labels={PRIORITY_LABEL}={label}"
    said = cli.torchx(
        *("run", "--workspace", "", "-s", "pulumi_mcad", "-cfg", options),
        *("mine.py:fake", "--replicas", str(replicas)),
    )
    return said.handle.rpartition("/")[2]


@pytest.mark.parametrize(("replicas", "end"), [(2, "CANCELLED"), (9, "SUCCEEDED")])
def test_page_and_stack_tell_each_turn_of_the_life_of_an_app(
    cli: TorchxCli,
    stacks: StackWatch,
    queues: KueueQueues,
    jobs: AppWrappers,
    kubeconfig: Path,
    replicas: int,
    end: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queues.create(PRIORITY, "minor", {}, value=1)
    queues.create(PRIORITY, "major", {}, value=100)
    quota = {"cpu": "100", "memory": "100Gi", "nvidia.com/gpu": str(replicas + 1)}
    queue = queues.make("team", quota, preemption={"withinClusterQueue": "LowerPriority"})
    two = {"num_replicas": 2, **HELD["role"]}
    before = jobs.submit(two, local_queue=queue, labels={PRIORITY_LABEL: "major"})
    eventually(lambda: jobs.phase(before) == "Running")
    with running(cli, "--namespace", queues.namespace) as (controller, site):
        eventually(lambda: site.ask("/readyz", {})[0] == 200)
        app_id = launch(cli, queue, queues.namespace, replicas, "minor")
        life = Life(site, stacks, queues, app_id)
        gpu = "nvidia.com/gpu"
        why = f"asks for {replicas} {gpu}; {replicas - 1} of {replicas + 1} {gpu} are free in ClusterQueue '{queue}'"
        waits = life.tells("PENDING", "OverQuota", why, "!QuotaReserved")
        assert (waits["queue"], waits["attempt"]) == (queue, 1)
        listed = json.loads(cli.ours("fleet", "--json", "--namespace", queues.namespace).out)["apps"]
        assert [(one["app_id"], one["queue"], one["reason"]) for one in listed] == [(app_id, queue, "OverQuota")]
        jobs.delete(before)
        life.tells("RUNNING", "Running", "", "Admitted")
        urgent = jobs.submit(two, local_queue=queue, labels={PRIORITY_LABEL: "major"})
        room = f"to make room for AppWrapper {queues.namespace}/{urgent}"
        life.tells("PENDING", "Preempted", room, "Evicted")
        # It is in its queue again a moment later, which is no other reason: only its Workload tells it.
        eventually(lambda: [one["reason"] for one in life.shown()["diagnoses"]] == ["Preempted", "OverQuota"])
        jobs.delete(urgent)
        once = "running; evicted by Kueue once (Preempted 1), admitted again at 20"
        assert life.tells("RUNNING", "Running", once, "Admitted")["attempt"] == 1
        workload = queues.workload(life.name)["metadata"]["name"]
        queues.patch(WORKLOAD, workload, {"spec": {"active": False}})
        life.tells("PENDING", "Suspended", "deactivated", "Evicted")
        resumed = cli.ours("resume", app_id, code=None).text
        assert "is PENDING (its Workload is deactivated in Kueue" in resumed
        assert f"kubectl patch workload -n {queues.namespace} {workload}" in resumed
        queues.patch(WORKLOAD, workload, {"spec": {"active": True}})
        life.tells("RUNNING", "Running", "running; evicted by Kueue 2 times (Preempted 1, Deactivated 1)", "Admitted")
        if end == "CANCELLED":
            cli.ours("cancel", app_id)
            life.reaches("CANCELLED", "Cancelled")
            assert "cannot be resumed; launch it again" in cli.ours("resume", app_id, code=None).text
        else:
            succeed(Server(kubeconfig), jobs, life.name, replicas)
            life.reaches("SUCCEEDED", "Completed")
        assert life.shown()["queue"] == queue
        assert "Traceback" not in controller.said()
    with capsys.disabled():
        sys.stdout.write(f"\n{replicas} replicas, from the Workload to page and stack: {'; '.join(life.delays)}\n")


def succeed(server: Server, jobs: AppWrappers, name: str, replicas: int) -> None:
    """End the pods of a job on fake nodes."""
    eventually(lambda: [pod["status"].get("phase") for pod in jobs.pods(name)] == ["Running"] * replicas)
    for pod in jobs.pods(name):
        path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}"
        ends = {"metadata": {"annotations": {"torchx-pulumi/fake-exit-code": "0"}}}
        server.ask("PATCH", path, ends, kind="merge-patch+json")


def test_a_job_of_kueue_is_neither_suspended_nor_resumed_by_us(
    cli: TorchxCli,
    queues: KueueQueues,
    jobs: AppWrappers,
    make_project: Callable[..., Project],
    look: KubernetesCluster,
) -> None:
    queue = queues.make("team", {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "4"})
    options = f"namespace={queues.namespace},api_version=v1beta2,local_queue={queue},suspend=True"
    dry_run = cli.torchx(
        *("run", "--dryrun", "--workspace", "", "-s", "pulumi_mcad", "-cfg", options),
        *("utils.echo", "--image", "app:1"),
        code=None,
    )
    assert REFUSED in dry_run.text
    program = McadProject(make_project(program=MCAD_PROGRAM), "app:1", api_version="v1beta2", local_queue=queue)
    project = program.project
    program.job(suspend=True, **HELD)
    assert REFUSED in project.preview(fails=True)
    program.job(**HELD)
    program.until(is_job_state("RUNNING"))
    seen = project.output("train")
    program.job(suspend=True, **HELD)
    assert REFUSED in project.preview(fails=True)

    # By hand: Kueue lets go on what it has admitted.
    jobs.patch(seen["job_name"], {"suspend": True})

    def goes_on() -> bool:
        found = look.get(APP_WRAPPER_V1BETA2, queues.namespace, seen["job_name"]) or {}
        return (found["spec"].get("suspend", False), found["status"]["phase"]) == (False, "Running")

    eventually(goes_on)
    program.job(**HELD)
    program.until(is_job_state("RUNNING"))
    assert project.output("train")["uid"] == seen["uid"]

    # What holds a job back without deleting it is its Workload.
    workload = queues.workload(seen["job_name"])["metadata"]["name"]
    queues.patch(WORKLOAD, workload, {"spec": {"active": False}})
    held = program.until(lambda seen: bool((seen["state"], seen["reason"]) == ("PENDING", "Suspended")))
    assert "its Workload is deactivated in Kueue" in held["message"]
    assert look.list(POD, queues.namespace) == []
    queues.patch(WORKLOAD, workload, {"spec": {"active": True}})
    program.until(is_job_state("RUNNING"))
    project.destroy()
