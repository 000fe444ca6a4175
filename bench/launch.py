"""From the call to the job object in the cluster: TorchX's own scheduler, plain Automation API code, and ours.

All three launch the same two replicas on the same running local cluster (one is started where none runs), each in a
process of its own, with the same provider and an own file backend; their rounds alternate. A watch outside of them says
when the job object is there. The first launch of a process loads what it needs, the second has it. The whole commands
`torchx run`, `status` and `list` are measured first, next to the same with TorchX's scheduler. Wants: see `WANTED`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import verdict
from bench._cluster import JobWatch, delete_job, full_queue, own_namespace, running_cluster, with_namespace
from bench._commands import measure_commands
from bench._installed import kubernetes_provider
from bench._workers import Worker, serve, worker_env

ROUNDS = 3
COMMAND_ROUNDS = 6
WANTED = {
    "of plain code once loaded": 0.35,
    "of TorchX's in a fresh process": 2.2,
    "torchx run of TorchX's": 1.3,
    "torchx status of TorchX's": 0.6,
    "torchx list of TorchX's": 0.6,
}
WAYS = ("torchx", "plain", "ours")
NAMES = {"torchx": "TorchX's scheduler", "plain": "plain Automation API code", "ours": "ours"}


def main() -> int:
    """Measure, print a line per way and one at the end; 1 where a want is missed."""
    from tools.bootstrap import pulumi_environment

    with ExitStack() as stack:
        kubeconfig = stack.enter_context(running_cluster()).kubeconfig
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namespace = stack.enter_context(own_namespace(kubeconfig))
        env = {**os.environ, **pulumi_environment(), "KUBECONFIG": with_namespace(kubeconfig, namespace, folder)}
        print(f"launch: {kubernetes_provider(env)}", flush=True)
        with full_queue(kubeconfig, namespace) as queue:
            commands = measure_commands(env, folder / "commands", namespace, queue, COMMAND_ROUNDS)
        jobs = JobWatch(kubeconfig, namespace)
        fresh: dict[str, list[float]] = {way: [] for way in WAYS}
        later: dict[str, list[float]] = {way: [] for way in WAYS}
        started: dict[str, int] = {}
        for number in range(ROUNDS):
            for way in WAYS:
                with Worker("bench.launch", way, namespace, env=worker_env(env, folder / f"{way}-{number}")) as worker:
                    for taken in (fresh, later):
                        found = worker.ask("launch")
                        started[way] = found["processes"]
                        taken[way].append(jobs.next_after(found["begun"]) - found["begun"])
                        worker.ask("delete")
    return report({way: statistics.median(taken) for way, taken in fresh.items()}, later, started, commands)


def report(
    fresh: dict[str, float], all_later: dict[str, list[float]], started: dict[str, int], commands: dict[str, float]
) -> int:
    """Print what was measured."""
    later = {way: statistics.median(taken) for way, taken in all_later.items()}
    for way in WAYS:
        print(
            f"launch, {NAMES[way]}: {fresh[way]:.2f} s to the job object in a fresh process, {later[way]:.2f} s once "
            f"all is loaded; {started[way]} process(es) started"
        )
    print(
        f"launch: ours takes {fresh['ours'] / fresh['plain']:.2f} of plain code in a fresh process, and "
        f"{later['ours'] / later['torchx']:.0f} of TorchX's once all is loaded"
    )
    found = {
        "of plain code once loaded": later["ours"] / later["plain"],
        "of TorchX's in a fresh process": fresh["ours"] / fresh["torchx"],
        **{f"torchx {name} of TorchX's": ratio for name, ratio in commands.items()},
    }
    return verdict("launch", found, WANTED)


def work(way: str, namespace: str) -> int:
    """Launch, measure and delete, as is asked."""
    processes = count_processes()
    launch = {"torchx": prepare_torchx, "plain": prepare_plain, "ours": prepare_ours}[way](namespace)
    deletions: list[Callable[[], None]] = []

    def measured() -> dict[str, float]:
        processes.clear()
        begun = time.time()
        deletions.append(launch())
        return {"begun": begun, "processes": len(processes)}

    def delete() -> dict[str, float]:
        deletions.pop()()
        return {}

    return serve({"launch": measured, "delete": delete})


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
        return lambda: delete_job(Path(os.environ["KUBECONFIG"]), namespace, handle.rpartition(":")[2])

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


if __name__ == "__main__":
    sys.exit(work(*sys.argv[1:]))
