"""Two Pulumi programs in turns: jobs as components, and the same manifests as plain custom resources.

Each is deployed, deployed again without a change, and destroyed; figures are medians. `TORCHX_PULUMI_BENCH_JOBS=30,100`
are the numbers of jobs. `TORCHX_PULUMI_BENCH_OTHER` names another environment (its `sys.prefix`), whose components are
a third program. CPU seconds are those of processes as they were last seen, so they lack up to 0.1 s each. The queue has
no capacity, so that no pods take the machine's time. Wants: see `WANTED`.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import verdict
from bench._cluster import full_queue, own_namespace, running_cluster
from bench._installed import kubernetes_provider
from bench._workers import Usage, end

JOBS = tuple(int(number) for number in os.environ.get("TORCHX_PULUMI_BENCH_JOBS", "30").split(","))
OTHER = os.environ.get("TORCHX_PULUMI_BENCH_OTHER")
ROUNDS = int(os.environ.get("TORCHX_PULUMI_BENCH_ROUNDS", "3"))
WANTED = {"up to resources": 1.9, "up without a change to resources": 1.6}
"""The most that jobs may take in relation to plain resources."""

COMPONENTS = """\
import json, pathlib
import pulumi
from torchx_pulumi_components import VolcanoTrainingJob

for args in json.loads(pathlib.Path("jobs.json").read_text()):
    job = VolcanoTrainingJob(args["name"], {key: value for key, value in args.items() if key != "name"})
    pulumi.export(args["name"], job.app_id)
"""
RESOURCES = """\
import json, pathlib
import pulumi
import pulumi_kubernetes as kubernetes

for manifest in json.loads(pathlib.Path("jobs.json").read_text()):
    name = manifest["metadata"]["name"]
    job = kubernetes.apiextensions.CustomResource(
        name, api_version=manifest["apiVersion"], kind=manifest["kind"], metadata=manifest["metadata"],
        spec=manifest["spec"],
    )
    pulumi.export(name, job.metadata["name"])
"""


class Program:
    """A project in a folder with a stack on a backend of its own."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], text: str, jobs: list[dict[str, Any]], environment: str = sys.prefix
    ) -> None:
        (folder / "backend").mkdir(parents=True)
        runtime = {"name": "python", "options": {"virtualenv": environment}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": folder.name, "runtime": runtime}))
        (folder / "__main__.py").write_text(text)
        (folder / "jobs.json").write_text(json.dumps(jobs))
        passphrase = "correct horse battery staple"
        own = {"PULUMI_BACKEND_URL": f"file://{folder}/backend", "PULUMI_CONFIG_PASSPHRASE": passphrase}
        self._folder, self._env = folder, {**env, **own}
        self.ups, self.agains = Measured(), Measured()
        self._pulumi("stack", "init", "dev")

    def measure(self) -> str:
        """Create all jobs, find them unchanged, delete them; return a line about it."""
        for measured in (self.ups, self.agains):
            began = time.perf_counter()
            usage = self._pulumi("up", "--yes", "--skip-preview")
            measured.add(time.perf_counter() - began, usage)
        self._pulumi("destroy", "--yes", "--skip-preview")
        return f"up {self.ups.times_s[-1]:.1f} s, again {self.agains.times_s[-1]:.1f} s"

    def _pulumi(self, *words: str) -> Usage:
        """Run the CLI; return what its processes used."""
        with (self._folder / "log").open("wb") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(
                ["pulumi", *words, "--non-interactive"], cwd=self._folder, env=self._env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
                # A shell may have started this with SIGINT ignored, which costs the language host 5 s a run.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )  # fmt: skip
        usage = Usage(process.pid)
        try:
            code = process.wait()
        except BaseException:
            end(process)
            raise
        finally:
            usage.stop()
        if code:
            raise RuntimeError(f"pulumi {' '.join(words)}: {(self._folder / 'log').read_text()}")
        return usage


@dataclass
class Measured:
    """What `pulumi up --skip-preview` took, each time."""

    times_s: list[float] = field(default_factory=list)
    cpu_s: list[Mapping[str, float]] = field(default_factory=list)
    """CPU seconds of each process."""
    most_mb: dict[str, float] = field(default_factory=dict)
    """The most memory of each process."""

    def add(self, time_s: float, usage: Usage) -> None:
        """Add one time."""
        self.times_s.append(time_s)
        self.cpu_s.append(usage.cpu_s())
        self.most_mb |= {name: max(most, self.most_mb.get(name, 0.0)) for name, most in usage.most_mb.items()}

    @property
    def time_s(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.times_s)

    @property
    def cpu_sum_s(self) -> float:
        """The median of the CPU seconds of all processes."""
        return statistics.median(sum(each.values()) for each in self.cpu_s)

    def text(self) -> str:
        """Return the figures in words."""
        parts = [f"{self.time_s:.2f} s, CPU {self.cpu_sum_s:.2f} s"]
        for name in sorted(set().union(*self.cpu_s)):
            cpu_s = statistics.median(each.get(name, 0.0) for each in self.cpu_s)
            parts.append(f"{name} {cpu_s:.2f} s {self.most_mb[name]:.0f} MB")
        return ", ".join(parts)


def main() -> int:
    """Measure, print the figures, and a line per want of each number of jobs; 1 where one is missed."""
    from tools.bootstrap import pulumi_environment

    found: dict[str, float] = {}
    wanted: dict[str, float] = {}
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namespace = stack.enter_context(own_namespace(cluster.kubeconfig))
        queue = stack.enter_context(full_queue(cluster.kubeconfig, namespace))
        env = {**os.environ, **pulumi_environment(), "KUBECONFIG": str(cluster.kubeconfig)}
        print(f"programs: {kubernetes_provider(env)}", flush=True)
        for jobs in JOBS:
            programs = measure_programs(env, folder / str(jobs), namespace, queue, jobs)
            plain, ours = programs["plain"], programs["ours"]
            ratios = (ours.ups.time_s / plain.ups.time_s, ours.agains.time_s / plain.agains.time_s)
            for (name, most), ratio in zip(WANTED.items(), ratios, strict=True):
                found[f"{jobs} jobs, {name}"], wanted[f"{jobs} jobs, {name}"] = ratio, most
    for name, ratio in found.items():
        print(f"programs: {name}: {ratio:.2f}, want {wanted[name]:g}")
    return verdict("programs", found, wanted)


def measure_programs(env: Mapping[str, str], folder: Path, namespace: str, queue: str, jobs: int) -> dict[str, Program]:
    """Run the programs in turns and print what they took."""
    from torchx.specs import AppDef, Resource, Role
    from torchx_pulumi import render

    role: dict[str, Any] = {
        "name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2,
    }  # fmt: skip
    component_role = {**role, "resource": {"cpu": 1, "memory_mb": 64}}
    place = {"queue": queue, "namespace": namespace}
    names = [f"train-{number}" for number in range(jobs)]
    described = [{"name": name, **place, "roles": [component_role]} for name in names]
    app = AppDef(name="train", roles=[Role(**role, resource=Resource(cpu=1, gpu=0, memMB=64))])
    manifests = [render(app, "volcano", place, app_id=name) for name in names]
    programs = {
        "plain": Program(folder / "plain", env, RESOURCES, manifests),
        "ours": Program(folder / "ours", env, COMPONENTS, described),
    }
    if OTHER:
        programs["other"] = Program(folder / "other", env, COMPONENTS, described, OTHER)
    for number in range(ROUNDS):
        for way, program in programs.items():
            print(f"programs: {jobs} jobs, round {number + 1}, {way}: {program.measure()}", flush=True)
    for way, program in programs.items():
        for when, measured in (("up", program.ups), ("without a change", program.agains)):
            print(f"programs: {jobs} jobs, {way}, {when}: {measured.text()}", flush=True)
    return programs
