"""Two Pulumi programs: jobs as components, and the same manifests as plain custom resources."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench._workers import Memory, end

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

    def __init__(self, folder: Path, env: Mapping[str, str], text: str, jobs: list[dict[str, Any]]) -> None:
        (folder / "backend").mkdir(parents=True)
        runtime = {"name": "python", "options": {"virtualenv": sys.prefix}}
        (folder / "Pulumi.yaml").write_text(json.dumps({"name": folder.name, "runtime": runtime}))
        (folder / "__main__.py").write_text(text)
        (folder / "jobs.json").write_text(json.dumps(jobs))
        passphrase = "correct horse battery staple"
        own = {"PULUMI_BACKEND_URL": f"file://{folder}/backend", "PULUMI_CONFIG_PASSPHRASE": passphrase}
        self._folder, self._env = folder, {**env, **own}
        self.most_mb: dict[str, float] = {}
        """The most memory of each process of an `up`."""
        self._pulumi("stack", "init", "dev")

    def up(self) -> float:
        """Create all jobs, or find them unchanged; return the seconds."""
        began = time.perf_counter()
        most_mb = self._pulumi("up", "--yes", "--skip-preview")
        took_s = time.perf_counter() - began
        self.most_mb |= {name: max(most, self.most_mb.get(name, 0.0)) for name, most in most_mb.items()}
        return took_s

    def destroy(self) -> None:
        """Delete all jobs."""
        self._pulumi("destroy", "--yes", "--skip-preview")

    def _pulumi(self, *words: str) -> dict[str, float]:
        """Run the CLI; return the most memory of each process."""
        with (self._folder / "log").open("wb") as log:
            process: subprocess.Popen[Any] = subprocess.Popen(
                ["pulumi", *words, "--non-interactive"], cwd=self._folder, env=self._env, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
                # A shell may have started this with SIGINT ignored, which costs the language host 5 s a run.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )  # fmt: skip
        memory = Memory(process.pid)
        try:
            code = process.wait()
        except BaseException:
            end(process)
            raise
        finally:
            memory.stop()
        if code:
            raise RuntimeError(f"pulumi {' '.join(words)}: {(self._folder / 'log').read_text()}")
        return memory.most_mb


def measure_programs(
    env: Mapping[str, str], folder: Path, namespace: str, queue: str, jobs: int, rounds: int
) -> dict[str, Measured]:
    """Run both programs in turns."""
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
    ups: dict[str, list[float]] = {way: [] for way in programs}
    agains: dict[str, list[float]] = {way: [] for way in programs}
    for number in range(rounds):
        for way, program in programs.items():
            ups[way].append(program.up())
            agains[way].append(program.up())
            took = f"up {ups[way][-1]:.1f} s, again {agains[way][-1]:.1f} s"
            print(f"scale: {jobs} jobs, round {number + 1}, {way}: {took}", flush=True)
            program.destroy()
    return {
        way: Measured(up_s=statistics.median(ups[way]), again_s=statistics.median(agains[way]), most_mb=program.most_mb)
        for way, program in programs.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of a program."""

    up_s: float
    """Median of the seconds of `pulumi up --skip-preview`."""
    again_s: float
    """The same of the next one, which changes nothing."""
    most_mb: Mapping[str, float]
    """The most memory of each process."""
