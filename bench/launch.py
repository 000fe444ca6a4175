"""From the call to the job object in the cluster: TorchX's own scheduler, plain Automation API code, and ours.

All three launch the same two replicas on the same running local cluster (one is started where none runs), each in a
process of its own, with the same provider and an own file backend; their rounds alternate. A watch outside of them says
when the job object is there. The first launch of a process loads what it needs, the second has it. Wants: at most 0.35
of the plain code, once loaded; at most 2.2 of TorchX's, each in a fresh process, as `torchx run` is one.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROUNDS = 3
WANTED_OF_PLAIN = 0.35
WANTED_OF_TORCHX = 2.2
WAYS = ("torchx", "plain", "ours")
NAMES = {"torchx": "TorchX's scheduler", "plain": "plain Automation API code", "ours": "ours"}
TIMEOUT_S = 120.0


def main() -> int:
    """Measure, print a line per way and one at the end; 1 where a want is missed."""
    from tools.bootstrap import pulumi_environment

    with running_cluster() as kubeconfig, tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, **pulumi_environment(), "KUBECONFIG": kubeconfig}
        namespace = f"bench-{uuid.uuid4().hex[:6]}"
        kubectl_namespace(kubeconfig, namespace, create=True)
        try:
            jobs = Watched(kubeconfig, namespace)
            fresh: dict[str, list[float]] = {way: [] for way in WAYS}
            later: dict[str, list[float]] = {way: [] for way in WAYS}
            started: dict[str, int] = {}
            for number in range(ROUNDS):
                for way in WAYS:
                    worker = start(way, env, namespace, Path(folder) / f"{way}-{number}")
                    for taken in (fresh, later):
                        begun, started[way] = one_round(worker)
                        taken[way].append(jobs.next_after(begun) - begun)
                    worker.communicate(timeout=TIMEOUT_S)
        finally:
            kubectl_namespace(kubeconfig, namespace, create=False)
    return report({way: statistics.median(taken) for way, taken in fresh.items()}, later, started)


def report(fresh: dict[str, float], all_later: dict[str, list[float]], started: dict[str, int]) -> int:
    """Print what was measured."""
    later = {way: statistics.median(taken) for way, taken in all_later.items()}
    for way in WAYS:
        print(
            f"launch, {NAMES[way]}: {fresh[way]:.2f} s to the job object in a fresh process, {later[way]:.2f} s once "
            f"all is loaded; {started[way]} process(es) started"
        )
    plain, torchx = later["ours"] / later["plain"], fresh["ours"] / fresh["torchx"]
    met = plain <= WANTED_OF_PLAIN and torchx <= WANTED_OF_TORCHX
    print(
        f"bench launch: {'met' if met else 'MISSED'}: {plain:.2f} of plain code once loaded (want {WANTED_OF_PLAIN}; "
        f"{fresh['ours'] / fresh['plain']:.2f} fresh), {torchx:.2f} of TorchX's in a fresh process, as `torchx run` is "
        f"one (want {WANTED_OF_TORCHX}; {later['ours'] / later['torchx']:.0f} once loaded)"
    )
    return 0 if met else 1


@contextmanager
def running_cluster() -> Iterator[str]:
    """Yield the kubeconfig of a running local cluster, or of one that is started and ended here."""
    from tools.local_cluster import Cluster

    for name in filter(None, (os.environ.get("TORCHX_PULUMI_TEST_CLUSTER"), "default", "dev")):
        found = Cluster.find(name)
        if found is not None:
            yield str(found.kubeconfig)
            return
    cluster = Cluster.up(name=f"bench-{os.getpid()}")
    try:
        yield str(cluster.kubeconfig)
    finally:
        cluster.down()


def kubectl_namespace(kubeconfig: str, name: str, *, create: bool) -> None:
    """Make or delete the namespace of the runs."""
    from kubernetes import client, config

    api = client.CoreV1Api(config.new_client_from_config(kubeconfig))
    if create:
        api.create_namespace({"metadata": {"name": name}})
    else:
        api.delete_namespace(name)


def start(way: str, env: dict[str, str], namespace: str, folder: Path) -> subprocess.Popen[str]:
    """Start the process of one way; it launches once for every line that it is given."""
    (folder / "backend").mkdir(parents=True)
    own = {
        "XDG_STATE_HOME": str(folder / "state"),
        "PULUMI_BACKEND_URL": f"file://{folder}/backend",
        "PULUMI_CONFIG_PASSPHRASE": "correct horse battery staple",
    }
    words = [sys.executable, "-m", "bench.launch", way, namespace]
    return subprocess.Popen(
        words,
        env={**env, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def one_round(worker: subprocess.Popen[str]) -> tuple[float, int]:
    """Let a way launch once and delete; return when it began and the processes that the launch started."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    begun, processes = 0.0, 0
    worker.stdin.write("launch\n")
    worker.stdin.flush()
    for line in worker.stdout:
        if line.startswith("{"):
            value = json.loads(line)
            if "deleted" in value:
                return begun, processes
            begun, processes = float(value["begun"]), int(value["processes"])
    raise RuntimeError(f"the process of one way ended with {worker.wait()}")


def work(way: str, namespace: str) -> int:
    """Launch, measure and delete, once for every line of the input."""
    processes = count_processes()
    launch = {"torchx": prepare_torchx, "plain": prepare_plain, "ours": prepare_ours}[way](namespace)
    for _ in sys.stdin:
        processes.clear()
        begun = time.time()
        delete = launch()
        print(json.dumps({"begun": begun, "processes": len(processes)}), flush=True)
        delete()
        print(json.dumps({"deleted": True}), flush=True)
    return 0


class Watched:
    """The jobs of a namespace, as they come; watched from outside, so that no way has its imports done for it."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        from kubernetes import client, config, watch

        api = client.CustomObjectsApi(config.new_client_from_config(kubeconfig))
        self._came: list[float] = []
        self._news = threading.Condition()
        where = ("batch.volcano.sh", "v1alpha1", namespace, "jobs")
        version = api.list_namespaced_custom_object(*where)["metadata"]["resourceVersion"]

        def follow() -> None:
            stream = watch.Watch().stream(api.list_namespaced_custom_object, *where, resource_version=version)
            for event in stream:
                if event["type"] == "ADDED":
                    with self._news:
                        self._came.append(time.time())
                        self._news.notify()

        threading.Thread(target=follow, daemon=True).start()

    def next_after(self, begun: float) -> float:
        """Return when the first job after a time came."""
        with self._news:
            if not self._news.wait_for(lambda: any(came > begun for came in self._came), TIMEOUT_S):
                raise RuntimeError("no job object came")
            return min(came for came in self._came if came > begun)


def count_processes() -> list[Any]:
    """Count the processes that this one starts."""
    started: list[Any] = []
    real = subprocess.Popen.__init__

    def counted(self: Any, words: Any, *args: Any, **options: Any) -> None:
        started.append(words)
        real(self, words, *args, **options)

    subprocess.Popen.__init__ = counted  # type: ignore[method-assign]
    return started


def app() -> Any:
    """Make the app of all three ways."""
    from torchx.specs import AppDef, Resource, Role

    role = Role(
        name="trainer",
        image="app:1",
        entrypoint="sleep",
        args=["600"],
        num_replicas=2,
        resource=Resource(cpu=1, gpu=0, memMB=64),
    )
    return AppDef(name="train", roles=[role])


def prepare_torchx(namespace: str) -> Callable[[], Callable[[], None]]:
    """Launch by TorchX's Runner and its own scheduler."""
    from torchx.runner import Runner
    from torchx.schedulers import kubernetes_scheduler

    runner = Runner("bench", {"kubernetes": kubernetes_scheduler.create_scheduler})

    def launch() -> Callable[[], None]:
        handle = runner.run(app(), "kubernetes", {"queue": "default", "namespace": namespace})
        return lambda: delete_job(namespace, handle.rpartition(":")[2])

    return launch


def prepare_ours(namespace: str) -> Callable[[], Callable[[], None]]:
    """Launch by TorchX's Runner and our scheduler."""
    from torchx.runner import Runner
    from torchx_pulumi_stacks.entrypoints import create_volcano

    runner = Runner("bench", {"pulumi_volcano": create_volcano})

    def launch() -> Callable[[], None]:
        handle = runner.run(app(), "pulumi_volcano", {"queue": "default", "namespace": namespace})
        scheduler: Any = runner._scheduler("pulumi_volcano")
        return lambda: scheduler.delete(handle.partition("://")[2].partition("/")[2])

    return launch


def prepare_plain(namespace: str) -> Callable[[], Callable[[], None]]:
    """Launch by code as Pulumi's documentation of the Automation API has it."""
    import pulumi
    import pulumi_kubernetes as kubernetes
    from pulumi import automation
    from torchx_pulumi import render

    def launch() -> Callable[[], None]:
        name = f"train-{uuid.uuid4().hex[:6]}"
        manifest = render(app(), "volcano", {"queue": "default", "namespace": namespace}, app_id=name)

        def program() -> None:
            job = kubernetes.apiextensions.CustomResource(
                "job",
                api_version=manifest["apiVersion"],
                kind=manifest["kind"],
                metadata=manifest["metadata"],
                spec=manifest["spec"],
            )
            pulumi.export("name", job.metadata["name"])

        stack = automation.create_or_select_stack(stack_name=name, project_name="bench", program=program)
        result = stack.up()
        assert result.outputs["name"].value == name

        def delete() -> None:
            stack.destroy()
            stack.workspace.remove_stack(name)
            shutil.rmtree(stack.workspace.work_dir)

        return delete

    return launch


def delete_job(namespace: str, name: str) -> None:
    """Delete a job, as `kubectl delete` does."""
    from kubernetes import client, config

    api = client.CustomObjectsApi(config.new_client_from_config())
    api.delete_namespaced_custom_object("batch.volcano.sh", "v1alpha1", namespace, "jobs", name)


if __name__ == "__main__":
    sys.exit(work(*sys.argv[1:]) if len(sys.argv) > 1 else main())
