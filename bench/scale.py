"""Jobs of 1 to 10,000 replicas next to TorchX's own scheduler.

All run on one local cluster (one is started where none runs), in turns; figures are medians. Each launch is that of a
fresh process, into a queue without capacity, so that no pods take the machine's time: `launch` is the dry run and
`schedule`, `object` the time to the job object by a watch outside of the process. Its deletion follows: `delete` is the
call, `gone` the time until the object is gone. `status` is the first call of a fresh process, while the pods run on
fake nodes; `again`, `list` and `log` come after it, once the process has loaded what it needs. `log` is the time to the
first line of a further replica, which runs on the real node. TorchX's scheduler reads the same job as ours in the
layout `replica`. Pods of jobs with more than `MOST_WITH_HOSTS` replicas do not get the hosts of all others. Wants: see
`WANTED`. `TORCHX_PULUMI_BENCH_PART=launches` measures the launches only, which takes a few minutes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench import verdict
from bench._cluster import (
    JobWatch,
    Pods,
    full_queue,
    more_fake_nodes,
    own_namespace,
    running_cluster,
    wait_until,
    with_namespace,
)
from bench._commands import measure_commands
from bench._installed import kubernetes_provider
from bench._workers import Worker, worker_env

SIZES = tuple(int(size) for size in os.environ.get("TORCHX_PULUMI_BENCH_REPLICAS", "1,100,1000").split(","))
MANY = int(os.environ.get("TORCHX_PULUMI_BENCH_MANY", "10000"))
"""Replicas of the job that is launched in the layout `auto` only."""
LAUNCHES_ONLY = os.environ.get("TORCHX_PULUMI_BENCH_PART") == "launches"
MOST_WITH_HOSTS = 100
"""Most replicas of a job whose pods get the hosts of all others. In the layout `replica` 1,000 such pods have 256 kB
each, and the API server needs 11 GB for them."""
START_S = 900.0
"""Longest wait for all pods of a job to run."""

PODS_S = 900.0
"""Longest wait until the pods of a deleted job are gone."""
ROUNDS = 3
TORCHX = "TorchX"
READER = "reader"
READS = {"status": "status", "again": "status", "list": "list", "log": "log"}
"""What is asked for each column."""
WAYS = (TORCHX, "replica", "role")
"""TorchX's scheduler, and the values of the option `layout` of ours."""
COLUMNS = ("dry run", "object", "launch", "status", "again", "list", "log", "delete", "gone")
PROGRAMS = ("Python", "CLI", "provider", READER)
WANTED = {
    "role to TorchX": 0.45,
    "auto to TorchX, status": 1.0,
    "replica to TorchX": 2.5,
    "engine of replica, in MB": 400.0,
    "replica to TorchX, status": 2.0,
    "largest launch, in s": 10.0,
    "largest status, in s": 3.0,
    "largest status, in MB": 300.0,
    "torchx run to TorchX": 1.4,
}


def main() -> int:
    """Measure, print the table and a line per want; 1 where one is missed."""
    from tools.bootstrap import pulumi_environment

    began = time.monotonic()
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namespace = stack.enter_context(own_namespace(cluster.kubeconfig))
        queue = stack.enter_context(full_queue(cluster.kubeconfig, namespace))
        own = with_namespace(cluster.kubeconfig, namespace, folder)
        env = {**os.environ, **pulumi_environment(), "KUBECONFIG": own}
        print(f"scale: {kubernetes_provider(env)}", flush=True)
        scale = Scale(env, folder, cluster.kubeconfig, namespace, cluster.images.get("busybox"))
        for replicas in SIZES:
            for number in range(ROUNDS):
                for way in WAYS:
                    scale.launch(replicas, way, queue, number)
        largest, found = max(SIZES), dict[str, float]()
        if not LAUNCHES_ONLY:
            commands = measure_commands(env, folder / "commands", namespace, queue, ROUNDS)
            scale.launch(MANY, "auto", queue, 0)
            for replicas in SIZES:
                for layout in WAYS[1:]:
                    scale.read(replicas, layout)
            with more_fake_nodes(cluster.kubeconfig, MANY):
                scale.read(MANY, "auto")
            found = {
                "auto to TorchX, status": scale.ratio(largest, scale.chosen[largest], "status"),
                "replica to TorchX, status": scale.ratio(largest, "replica", "status"),
                "largest launch, in s": scale.median(MANY, "auto", "launch"),
                "largest status, in s": scale.median(MANY, "auto", "status"),
                "largest status, in MB": scale.memory(MANY, "auto", READER) or float("nan"),
                "torchx run to TorchX": commands["run"],
            }
    print_table(scale)
    print(f"scale: took {time.monotonic() - began:.0f} s")
    found |= {
        "role to TorchX": scale.ratio(largest, "role"),
        "replica to TorchX": scale.ratio(largest, "replica"),
        "engine of replica, in MB": scale.memory(largest, "replica", "CLI") or float("nan"),
    }
    for name, value in found.items():
        print(f"scale: {name}: {value:.2f}, want {WANTED[name]:g}: {'met' if value <= WANTED[name] else 'MISSED'}")
    return verdict("scale", found, {name: WANTED[name] for name in found})


class Scale:
    """The figures, and how each is measured."""

    def __init__(
        self, env: Mapping[str, str], folder: Path, kubeconfig: Path, namespace: str, image: str | None
    ) -> None:
        self._env, self._folder, self._namespace, self._image = env, folder, namespace, image
        self._jobs = JobWatch(kubeconfig, namespace)
        self._pods = Pods(kubeconfig, namespace)
        self._figures: dict[tuple[int, str, str], list[float]] = defaultdict(list)
        self._most_mb: dict[tuple[int, str, str], float] = defaultdict(float)
        self.chosen: dict[int, str] = {}
        """The layout that `auto` chooses, by number of replicas."""

    def launch(self, replicas: int, way: str, queue: str, number: int) -> None:
        """Launch a job without pods in a fresh process, and delete it."""
        with self._worker(way, f"{way}-{replicas}-{number}") as worker:
            made = worker.ask("launch", replicas=replicas, queue=queue, layout=layout_of(way), image=None)
            came = self._jobs.next_after(made["begun"])
            self._add(replicas, way, "dry run", made["dry_s"])
            self._add(replicas, way, "object", came - made["begun"])
            self._add(replicas, way, "launch", made["took_s"])
            deleted = worker.ask("delete", handle=made["handle"])
            self._add(replicas, way, "delete", deleted["took_s"])
            self._add(replicas, way, "gone", self._jobs.gone(job_of(made["handle"])) - deleted["begun"])
            if way == "auto":
                self.chosen[replicas] = made["layout"]
        for program, most_mb in worker.memory.most_mb.items():
            self._most_mb[replicas, way, program] = max(most_mb, self._most_mb[replicas, way, program])
        print(f"scale: {replicas} replicas, round {number + 1}, {way}: launch {made['took_s']:.2f} s", flush=True)

    def read(self, replicas: int, layout: str) -> None:
        """Launch a job with pods, read it in turns with TorchX, and delete it."""
        from bench._scale_worker import LOGGING_REPLICAS

        folder = f"read-{layout}-{replicas}"
        with self._worker(layout, folder) as ours:
            made = ours.ask(
                "launch", replicas=replicas, queue="default", layout=layout, image=self._image,
                hosts=replicas <= MOST_WITH_HOSTS,
            )  # fmt: skip
            if layout == "auto":
                self.chosen[replicas] = made["layout"]
            else:
                self.chosen[replicas] = ours.ask("choose", replicas=replicas)["layout"]
            pods = replicas + (LOGGING_REPLICAS if self._image else 0)
            try:
                ran_s = wait_until(lambda: self._pods.running() == pods, f"{pods} pods run", START_S) - made["begun"]
                ran = f"ran after {ran_s:.0f} s"
            except RuntimeError:
                # Both read the same pods, whatever their state is.
                ran = f"of which {self._pods.running()} ran after {START_S:.0f} s"
            handles = {layout: made["handle"]}
            if layout == "replica":
                handles[TORCHX] = f"kubernetes://bench/{made['handle'].rpartition('/')[2]}"
            for _ in range(ROUNDS):
                for way, handle in handles.items():
                    self._read_once(replicas, way, handle, folder)
            deleted = ours.ask("delete", handle=made["handle"])
        gone_s = wait_until(lambda: not self._pods.any(), "all pods are gone", PODS_S) - deleted["begun"]
        print(
            f"scale: {pods} pods, {layout}: {ran}; the call to delete took {deleted['took_s']:.1f} s "
            f"and {ours.memory.most_mb['Python']:.0f} MB, pods were gone after {gone_s:.0f} s",
            flush=True,
        )

    def _read_once(self, replicas: int, way: str, handle: str, folder: str) -> None:
        with self._worker(way, folder) as worker:
            for column, what in READS.items():
                if what != "log" or self._image:
                    self._add(replicas, way, column, worker.ask(what, handle=handle)["took_s"])
        most_mb = max(worker.memory.most_mb["Python"], self._most_mb[replicas, way, READER])
        self._most_mb[replicas, way, READER] = most_mb

    def _worker(self, way: str, folder: str) -> Worker:
        env = worker_env(self._env, self._folder / folder)
        return Worker("bench._scale_worker", "torchx" if way == TORCHX else "ours", self._namespace, env=env)

    def _add(self, replicas: int, way: str, figure: str, value: float) -> None:
        self._figures[replicas, way, figure].append(value)

    def median(self, replicas: int, way: str, figure: str) -> float:
        """Return a figure; nan where it was not measured."""
        return statistics.median(self._figures[replicas, way, figure] or [float("nan")])

    def ratio(self, replicas: int, way: str, figure: str = "launch") -> float:
        """Return a figure in relation to TorchX's."""
        return self.median(replicas, way, figure) / self.median(replicas, TORCHX, figure)

    def rows(self) -> list[tuple[int, str]]:
        """Return the replicas and the way of each row of the table."""
        return list(dict.fromkeys((replicas, way) for replicas, way, _ in self._figures))

    def memory(self, replicas: int, way: str, program: str) -> float | None:
        """Return the most memory of a process of launches, in MB. None: there was no such process."""
        return self._most_mb.get((replicas, way, program))


def layout_of(way: str) -> str | None:
    """Return the value of the option `layout`. None: TorchX's scheduler has no such option."""
    return None if way == TORCHX else way


def job_of(handle: str) -> str:
    """Return the name of an app's job object."""
    return handle.rpartition(":")[2]


def print_table(scale: Scale) -> None:
    """Print a row per number of replicas and way: seconds, their relation to TorchX's, and memory."""
    heads = [f"{name:>15}" for name in COLUMNS] + [f"{name + ' MB':>12}" for name in PROGRAMS]
    print(f"{'replicas':>8}  {'way':<15}{''.join(heads)}")
    for replicas, way in sorted(scale.rows(), key=lambda row: row[0]):
        cells = [cell(scale.median(replicas, way, name), scale.ratio(replicas, way, name)) for name in COLUMNS]
        memory = [scale.memory(replicas, way, name) for name in PROGRAMS]
        shown = [f"{'-' if most is None else format(most, '.0f'):>12}" for most in memory]
        chosen = scale.chosen.get(replicas)
        name = f"auto: {chosen}" if way == "auto" else f"{way}, auto" if way == chosen else way
        print(f"{replicas:>8}  {name:<15}{''.join(cells)}{''.join(shown)}")


def cell(value: float, ratio: float) -> str:
    """Return seconds and, in brackets, their relation to TorchX's; `-` where it was not measured."""
    if value != value:
        return f"{'-':>15}"
    return f"{f'{value:.2f}' if ratio in (1.0,) or ratio != ratio else f'{value:.2f} ({ratio:.2f})':>15}"
