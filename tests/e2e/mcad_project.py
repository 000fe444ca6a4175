"""A project whose program makes any number of MCADTrainingJobs, and what it says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.e2e.app_wrappers import shell
from tests.e2e.project import Project

MCAD_PROGRAM = """\
import json
import pathlib

import pulumi
from torchx_pulumi_components import MCADTrainingJob, failures_deferred

with failures_deferred() as failures:
    for name, args in json.loads(pathlib.Path("job.json").read_text()).items():
        job = MCADTrainingJob(name, args)
        shown = ("job_name", "uid", "observed", "pod_names", "pod_groups", "rank0_host")
        pulumi.export(name, {output: getattr(job, output) for output in shown})
if failures:
    raise pulumi.RunError("; ".join(failures))
"""


class McadProject:
    """One project and its jobs."""

    def __init__(self, project: Project, image: str, **options: Any) -> None:
        self.project = project
        self._image = image
        self._options = options

    def jobs(self, jobs: Mapping[str, Mapping[str, Any]]) -> McadProject:
        """Write the jobs that the program makes, in place of what it made."""
        shared = {"namespace": self.project.namespace, **self._options}
        whole = {name: {**shared, **args, "roles": self._roles(args)} for name, args in jobs.items()}
        (self.project.folder / "job.json").write_text(json.dumps(whole))
        return self

    def job(self, script: str = "sleep 600", *, role: Mapping[str, Any] | None = None, **args: Any) -> McadProject:
        """Write one job of one role that runs a script."""
        return self.jobs({"train": {**args, "roles": [shell(script, **(role or {}))]}})

    def _roles(self, args: Mapping[str, Any]) -> list[Any]:
        return [{"name": "trainer", "image": self._image, "entrypoint": "sh", **role} for role in args["roles"]]

    def observed(self, name: str = "train") -> Any:
        """Deploy once more and return what was seen."""
        self.project.up()
        return self.project.output(name)["observed"]

    def until(self, claim: Callable[[Any], bool], name: str = "train", timeout_s: float = 240) -> Any:
        """Deploy until what was seen of a job is as claimed; return that."""
        deadline = time.monotonic() + timeout_s
        while not claim(seen := self.observed(name)):
            assert time.monotonic() < deadline, f"not so within {timeout_s} s: {seen}"
            time.sleep(1)
        return seen


def is_state(state: str) -> Callable[[Any], bool]:
    """Return whether an observation has this state."""
    return lambda observed: bool(observed["state"] == state)
