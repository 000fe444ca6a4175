"""A released version in a virtual environment of its own: its commands, and programs that run on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.project import Project

RELEASED = Path(__file__).parent / "released"
"""Wheels as they were released, each with the pinned packages that it was tested with."""

PROGRAM = """\
import json
import pathlib

import pulumi
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob

KINDS = {"volcano": VolcanoTrainingJob, "mcad": MCADTrainingJob}
for name, (kind, args) in json.loads(pathlib.Path("jobs.json").read_text()).items():
    job = KINDS[kind](name, args)
    pulumi.export(name, {output: getattr(job, output) for output in ("job_name", "uid", "observed")})
"""

LAUNCH = """\
import json, sys
from torchx import specs
from torchx.runner import get_runner

def role(fields):
    return specs.Role(name="trainer", entrypoint="sh", resource=specs.Resource(cpu=1, gpu=0, memMB=64), **fields)

with get_runner() as runner:
    for name, scheduler, fields, options in json.loads(sys.argv[1]):
        info = runner.dryrun(specs.AppDef(name=name, roles=[role(fields)]), scheduler, options)
        print("handle", runner.schedule(info), flush=True)
    for handle in sys.argv[2:]:
        print(runner.status(handle), flush=True)
"""
"""Launches apps, then looks at others; as `torchx run` and `torchx status` do it."""


class Earlier:
    """A released version."""

    def __init__(self, folder: Path, version: str) -> None:
        """Install a version from its wheel into a folder."""
        self.folder = folder
        self.bin = folder / "bin"
        (wheel,) = RELEASED.glob(f"torchx_pulumi-{version}-*.whl")
        uv = Path(sys.prefix) / "bin" / "uv"
        env = {**os.environ, "VIRTUAL_ENV": str(folder), "UV_NO_PROGRESS": "1"}
        pins = RELEASED / f"requirements-{version}.txt"
        for words in (
            ["venv", "--quiet", "--seed", "--python", sys.executable, str(folder)],
            ["pip", "install", "--quiet", "--no-deps", "-r", str(pins), str(wheel)],
        ):
            subprocess.run([uv, *words], env=env, check=True)

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which this version is found, and no other."""
        theirs = {name: value for name, value in env.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {**theirs, "PATH": f"{self.bin}{os.pathsep}{theirs['PATH']}"}

    def start(self, jobs: list[Any], *handles: str, env: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
        """Launch apps one after the other, then look at others."""
        command = [self.bin / "python", "-c", LAUNCH, json.dumps(jobs), *handles]
        return subprocess.Popen(
            command, cwd=folder, env=self.environment(env), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def launch(self, jobs: list[Any], *handles: str, env: Mapping[str, str], folder: Path, code: int = 0) -> list[str]:
        """Do the same to its end, and return the handles of what was launched."""
        process = self.start(jobs, *handles, env=env, folder=folder)
        text, _ = process.communicate(timeout=240)
        assert process.returncode == code, text
        return [line.split()[1] for line in text.splitlines() if line.startswith("handle ")]


class UpgradedProject(Project):
    """A project that an earlier version runs, and this one after `upgrade`."""

    def __init__(self, folder: Path, env: dict[str, str], namespace: str, earlier: Earlier) -> None:
        self._later = env
        self._earlier = earlier
        super().__init__(folder, earlier.environment(env), namespace, program=PROGRAM)
        self._use(earlier.folder)

    def downgrade(self) -> None:
        """Let the project run on the earlier version again."""
        self.env = self._earlier.environment(self._later)
        self._use(self._earlier.folder)

    def upgrade(self) -> None:
        """Let the project run on this checkout from now on."""
        self.env = self._later
        self._use(Path(sys.prefix))

    def jobs(self, jobs: Mapping[str, Any]) -> None:
        """Write the jobs that the program makes: name to kind and arguments."""
        (self.folder / "jobs.json").write_text(json.dumps(jobs))

    def _use(self, venv: Path) -> None:
        runtime = {"name": "python", "options": {"virtualenv": str(venv)}}
        (self.folder / "Pulumi.yaml").write_text(json.dumps({"name": self.folder.name, "runtime": runtime}))
