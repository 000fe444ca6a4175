"""Launches and reads of AppWrappers v1beta2 under Kueue next to Volcano Jobs, and of MCAD's AppWrappers after them.

Volcano, the AppWrapper operator and Kueue share one cluster of fake nodes, in which the rounds of both alternate. MCAD
has a cluster of its own, as both versions of AppWrappers have one definition. A launch is the call `runner.run`: the
first of a process (`fresh`) and the second (`loaded`). Jobs of `RUNNING` replicas run, and `runs` is the time from the
first launch until all of them do. Larger ones wait in a queue whose capacity is taken, so that no pods take the
machine's time; MCAD has no such queue, and gets none of them. `status` and `again` are the first two reads of such a
job by another process. Wants: see `WANTED`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import verdict
from bench._cluster import full_queue, own_namespace, wait_until
from bench._installed import kubernetes_provider
from bench._scale_worker import timed
from bench._workers import Worker, serve, worker_env

if TYPE_CHECKING:
    from tools.local_cluster import Cluster

ROUNDS = int(os.environ.get("TORCHX_PULUMI_BENCH_ROUNDS", "3"))
RUNNING = (1, 100)
HELD = (1_000, 10_000)
WANTED = 1.5
"""Most time of a launch under Kueue in relation to Volcano's."""
START_S = 900.0
"""Longest wait for all pods of a job to run, or to be gone."""
COLUMNS = ("fresh", "loaded", "runs", "status", "again")
OPTIONS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "volcano": ("volcano", "job", {}),
    "v1beta2": ("mcad", "v1beta2", {"api_version": "v1beta2"}),
    "v1beta1": ("mcad", "v1beta1", {}),
}
"""Scheduler, variant and run options of each way to launch."""
QUEUE_OPTIONS = {"volcano": "queue", "v1beta2": "local_queue"}
QUOTA = {"cpu": "200", "memory": "100Gi", "nvidia.com/gpu": "1"}
"""What 10,000 replicas ask for, so that no launch is refused."""
HOLDER = {"num_replicas": 3, "resource": {"cpu": 63, "gpu": 0, "memMB": 16}}
"""A role that leaves less of `QUOTA` than 1,000 replicas ask for."""


def main() -> int:
    """Measure, print the table and whether the want is met; 1 where it is missed."""
    figures: Figures = defaultdict(list)
    with own_cluster("volcano", "appwrapper", "kueue") as cluster, Launches.within(cluster, figures) as launches:
        from torchx_pulumi.schedulers.appwrapper.objects import APP_WRAPPER_V1BETA2

        from tests.e2e.app_wrappers import AppWrappers
        from tests.e2e.kueue_queues import KueueQueues

        queues = KueueQueues(cluster, launches.namespace)
        is_open = {"volcano": "default", "v1beta2": queues.make("open", QUOTA)}
        with full_queue(cluster.kubeconfig, launches.namespace) as full:
            is_full = {"volcano": full, "v1beta2": queues.make("full", QUOTA)}
            holder = AppWrappers(cluster, launches.namespace, APP_WRAPPER_V1BETA2)
            name = holder.submit({**HOLDER, "args": ["-c", "sleep 3600"]}, local_queue=is_full["v1beta2"])
            wait_until(lambda: holder.phase(name) == "Running", "the queue is full")
            for replicas in (*RUNNING, *HELD):
                for number in range(ROUNDS):
                    for way, queue in (is_full if replicas in HELD else is_open).items():
                        launches.measure(way, replicas, queue, number)
            for way, queue in is_full.items():
                launches.read(way, max(HELD), queue)
    with own_cluster("mcad") as cluster, Launches.within(cluster, figures) as launches:
        for replicas in RUNNING:
            for number in range(ROUNDS):
                launches.measure("v1beta1", replicas, None, number)
    print_table(figures)
    found = {
        f"{replicas} replicas, {figure}": ratio(figures, "v1beta2", replicas, figure)
        for replicas in (*RUNNING, *HELD)
        for figure in ("fresh", "loaded")
    }
    return verdict("kueue", found, dict.fromkeys(found, WANTED))


Figures = dict[tuple[str, int, str], list[float]]
"""Way, replicas and column to seconds."""


@contextmanager
def own_cluster(*features: str) -> Iterator[Cluster]:
    """Start a cluster of fake nodes with some features, and end it."""
    from tools.local_cluster import Cluster

    cluster = Cluster.up(f"bench-{os.getpid()}", real_node=False, features=features)
    try:
        yield cluster
    finally:
        cluster.down()


class Launches:
    """Launches jobs into one namespace of a cluster, reads them, and notes how long each took."""

    def __init__(self, env: Mapping[str, str], folder: Path, namespace: str, figures: Figures) -> None:
        from torchx_pulumi.kube import KubernetesCluster

        self.namespace = namespace
        self._env, self._folder, self._figures = env, folder, figures
        self._look = KubernetesCluster.connect(env["KUBECONFIG"])

    @classmethod
    @contextmanager
    def within(cls, cluster: Cluster, figures: Figures) -> Iterator[Launches]:
        """Make a namespace and a folder for the launches, and delete both in the end."""
        from tools.bootstrap import pulumi_environment

        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            namespace = stack.enter_context(own_namespace(cluster.kubeconfig))
            env = {**os.environ, **pulumi_environment(), "KUBECONFIG": str(cluster.kubeconfig)}
            print(f"kueue: {', '.join(cluster.settings.features)}; {kubernetes_provider(env)}", flush=True)
            yield cls(env, folder, namespace, figures)

    def measure(self, way: str, replicas: int, queue: str | None, number: int) -> None:
        """Launch a job twice in one process, and delete it each time.

        Args:
            way: A key of `OPTIONS`.
            replicas: How many.
            queue: Where. None: the scheduler has no queues.
            number: Number of the round.
        """
        took = []
        with self._worker(way, f"{way}-{replicas}-{number}") as worker:
            for figure in ("fresh", "loaded"):
                made = worker.ask("launch", replicas=replicas, queue=queue)
                name = made["handle"].rpartition(":")[2]
                self._add(way, replicas, figure, made["took_s"])
                took.append(f"{figure} {made['took_s']:.2f} s")
                if replicas in RUNNING and figure == "fresh":
                    ran_s = wait_until(lambda name=name: self._all_run(way, name), "all run", START_S) - made["begun"]
                    self._add(way, replicas, "runs", ran_s)
                    took.append(f"runs {ran_s:.1f} s")
                worker.ask("delete", handle=made["handle"])
                wait_until(lambda name=name: not self._has_pods(way, name), "its pods are gone", START_S)
        print(f"kueue: {replicas} replicas, round {number + 1}, {way}: {', '.join(took)}", flush=True)

    def read(self, way: str, replicas: int, queue: str) -> None:
        """Launch a job and read its status in processes of their own."""
        folder = f"{way}-{replicas}-read"
        with self._worker(way, folder) as worker:
            handle = worker.ask("launch", replicas=replicas, queue=queue)["handle"]
            wait_until(lambda: self._status(way, handle.rpartition(":")[2]).phase is not None, "its controller saw it")
            for _ in range(ROUNDS):
                with self._worker(way, folder) as reader:
                    for figure in ("status", "again"):
                        said = reader.ask("status", handle=handle)
                        self._add(way, replicas, figure, said["took_s"])
            print(f"kueue: {replicas} replicas, {way}: {said['took_s']:.2f} s for: {said['message']}", flush=True)
            worker.ask("delete", handle=handle)

    def _worker(self, way: str, folder: str) -> Worker:
        return Worker("bench.kueue", way, self.namespace, env=worker_env(self._env, self._folder / folder))

    def _add(self, way: str, replicas: int, figure: str, value: float) -> None:
        self._figures[way, replicas, figure].append(value)

    def _status(self, way: str, name: str) -> Any:
        from torchx_pulumi.schedulers import find_backend

        scheduler, variant, _ = OPTIONS[way]
        found = find_backend(scheduler).variants[variant]
        return found.read_status(found.observe(self._look, self.namespace, name))

    def _all_run(self, way: str, name: str) -> bool:
        status = self._status(way, name)
        return {one.value for one in (status.state, *(replica.state for replica in status.replicas))} == {"RUNNING"}

    def _has_pods(self, way: str, name: str) -> bool:
        from torchx_pulumi.schedulers import find_backend

        selector = find_backend(OPTIONS[way][0]).pod_selector(name)
        return bool(self._look.list_pods(self.namespace, selector, whole=1).pods)


def median(figures: Figures, way: str, replicas: int, figure: str) -> float:
    """Return a figure; nan where it was not measured."""
    return statistics.median(figures.get((way, replicas, figure)) or [float("nan")])


def ratio(figures: Figures, way: str, replicas: int, figure: str) -> float:
    """Return a figure in relation to Volcano's."""
    return median(figures, way, replicas, figure) / median(figures, "volcano", replicas, figure)


def print_table(figures: Figures) -> None:
    """Print a row per number of replicas and way: seconds, and their relation to Volcano's."""
    print(f"{'replicas':>8}  {'way':<9}{''.join(f'{name:>15}' for name in COLUMNS)}")
    rows = dict.fromkeys((replicas, way) for way, replicas, _ in figures)
    for replicas, way in sorted(rows, key=lambda row: row[0]):
        cells = []
        for name in COLUMNS:
            value, to_volcano = median(figures, way, replicas, name), ratio(figures, way, replicas, name)
            text = "-" if value != value else f"{value:.2f}"
            cells.append(
                f"{text if way == 'volcano' or to_volcano != to_volcano else f'{text} ({to_volcano:.2f})':>15}"
            )
        print(f"{replicas:>8}  {way:<9}{''.join(cells)}")


def work(way: str, namespace: str) -> int:
    """Launch, read and delete, as is asked."""
    from torchx.runner import Runner
    from torchx.specs import AppDef, Resource, Role
    from torchx_pulumi_stacks.entrypoints import create_mcad, create_volcano

    kind, _, options = OPTIONS[way]
    scheduler = f"pulumi_{kind}"
    runner = Runner("bench", {"pulumi_volcano": create_volcano, "pulumi_mcad": create_mcad})

    def launch(replicas: int, queue: str | None) -> dict[str, Any]:
        # The request is 20 millicores: a fake node has 64 cores and takes 1,100 pods.
        role = Role(
            name="trainer", image="app:1", entrypoint="sleep", args=["3600"], num_replicas=replicas,
            resource=Resource(cpu=1, gpu=0, memMB=64),
        )  # fmt: skip
        asked = {"namespace": namespace, "reserved_millicpu": 980, "reserved_memmb": 60, **options}
        if queue is not None:
            asked[QUEUE_OPTIONS[way]] = queue
        handles: list[str] = []
        took = timed(lambda: handles.append(runner.run(AppDef(name="train", roles=[role]), scheduler, asked)))
        return {**took, "handle": handles[0]}

    def status(handle: str) -> dict[str, Any]:
        found: list[Any] = []
        took = timed(lambda: found.append(runner.status(handle)))
        return {**took, "message": found[0].msg}

    def delete(handle: str) -> dict[str, float]:
        adapter: Any = runner._scheduler(scheduler)
        return timed(lambda: adapter.delete(handle.rpartition("/")[2]))

    return serve({"launch": launch, "status": status, "delete": delete})


if __name__ == "__main__":
    sys.exit(work(*sys.argv[1:]))
