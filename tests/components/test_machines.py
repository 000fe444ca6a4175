"""One job is one run on every machine: what TorchX's components read from their surroundings does not count."""

from __future__ import annotations

import contextlib
import copy
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torchx
from torchx.components import dist
from torchx.specs.finder import get_components
from torchx_pulumi.model.errors import InvalidJobError
from torchx_pulumi.model.job_spec import JobSpec
from torchx_pulumi.testing import FakeCluster, cluster_for_tests
from torchx_pulumi_components import MCADTrainingJob, VolcanoTrainingJob
from torchx_pulumi_stacks.app import load_component

from tests.components.test_volcano_training_job import NAMESPACE, queue

# TorchX nightly prefers dist.torchrun, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated")

COMPONENTS = {
    "dist.ddp": ["-j", "2x2", "--script", "train.py"],
    "dist.spmd": ["-j", "2x1", "--script", "train.py", "-h", "gpu.small"],
    "dist.torchrun": ["-j", "2x2", "--script", "train.py", "--mounts", "type=bind,src=/data,dst=/data"],
    "metrics.tensorboard": ["--logdir", "s3://logs"],
    "serve.torchserve": ["--model_path", "s3://model", "--management_api", "http://serve", "--image", "app:1"],
    "utils.binary": ["--entrypoint", "train", "--name", "train"],
    "utils.booth": ["--x1", "1", "--x2", "2"],
    "utils.copy": ["--src", "s3://a", "--dst", "s3://b"],
    "utils.echo": ["--msg", "hello"],
    "utils.hydra": ["-cn", "app"],
    "utils.python": ["-m", "train"],
    "utils.sh": ["echo", "hello"],
    "utils.touch": ["--file", "done"],
}
"""TorchX's built-in components of both releases, and arguments of each."""

HYDRA = """
app:
  _target_: torchx.specs.AppDef
  name: train
  roles: [{_target_: torchx.specs.Role, name: t, image: app:1, entrypoint: train}]
"""
NEEDED = [NAMESPACE, queue()]
URN = "urn:pulumi:dev::proj::torchx:index:{}::train"
JOBS = {
    VolcanoTrainingJob: (
        "kubernetes:batch.volcano.sh/v1alpha1:Job",
        {"state": {"phase": "Completed"}},
        {"queue": "default"},
    ),
    MCADTrainingJob: ("kubernetes:workload.codeflare.dev/v1beta1:AppWrapper", {"state": "Completed"}, {}),
}
LEVEL = "roles[train].env[LOGLEVEL]"


@contextlib.contextmanager
def machine(name: str, folder: Path) -> Iterator[None]:
    """Make everything that a program can ask its machine for another one for each name."""
    (folder / name).mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("USER", "LOGNAME", "HOSTNAME", "TORCHX_JOB_ID", "TORCHX_PARENT_RUN_ID", "TORCHX_TRACKERS"):
            patch.setenv(variable, name)
        for variable in ("HOME", "TORCHX_HOME", "TMPDIR"):
            patch.setenv(variable, str(folder / name))
        patch.setenv("LOGLEVEL", {"laptop": "INFO", "ci": "DEBUG"}[name])
        patch.setenv("TZ", {"laptop": "Asia/Tokyo", "ci": "America/New_York"}[name])
        patch.setenv("PYTHONHASHSEED", str(len(name)))
        patch.setattr(time, "time", lambda: 1e9 * len(name))
        patch.setattr(socket, "gethostname", lambda: name)
        patch.chdir(folder / name)
        random.seed(name)
        yield


def launch(engine: Any, job: type, spec: Any, *objects: Any, warnings: Any = None, **options: Any) -> Any:
    """Run a program in a cluster that has these objects, and return the job object that it registers, as a live one."""
    token, status, needed = JOBS[job]

    def program() -> None:
        with cluster_for_tests(FakeCluster([*NEEDED, *objects])):
            job.from_app("train", spec, **{**needed, **options})

    engine.run(program)
    found = copy.deepcopy(engine.mocks.one(token).inputs)
    found["metadata"] |= {"uid": "uid-of-train", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    engine.mocks.state = {URN.format(job.__name__): {"record": engine.record()}}
    return {**found, "status": status}


def test_the_table_has_every_built_in_component() -> None:
    assert get_components().keys() - COMPONENTS.keys() == set()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", sorted(COMPONENTS.keys() & get_components().keys()))
def test_a_finished_job_of_a_component_is_not_run_again_on_another_machine(
    engine: Any, tmp_path: Path, name: str, job: type
) -> None:
    if name == "utils.binary":
        pytest.skip("it names no image; TorchX calls it a test component")
    hydra = pytest.importorskip("hydra.core.global_hydra") if name == "utils.hydra" else None
    (tmp_path / ".torchx").mkdir()
    (tmp_path / ".torchx" / "app.yaml").write_text(HYDRA)

    def load() -> JobSpec:
        if hydra is not None:
            # A process may begin with it once.
            hydra.GlobalHydra.instance().clear()
        return load_component(name, COMPONENTS[name], tmp_path)

    with machine("laptop", tmp_path):
        first = launch(engine, job, load())
        record = engine.record()
    with machine("ci", tmp_path):
        again = launch(engine, job, load(), first)
    assert again["metadata"]["name"] == first["metadata"]["name"]
    assert again["spec"] == first["spec"]
    assert engine.record() == record


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_a_run_that_an_earlier_version_launched_with_the_loglevel_of_a_machine_is_kept(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    # An earlier version did not know which values nobody chose.
    monkeypatch.setenv("LOGLEVEL", level)
    earlier = replace(load_with(tmp_path, "--image", "app:1"), machine_values={})
    roles = [replace(role, env={**role.env, "LOGLEVEL": level}) for role in earlier.roles]
    first = launch(engine, VolcanoTrainingJob, replace(earlier, roles=roles))
    record = engine.record()
    again = launch(engine, VolcanoTrainingJob, load_with(tmp_path, "--image", "app:1"), first)
    assert again["metadata"]["name"] == first["metadata"]["name"]
    assert engine.record() == record


@pytest.mark.parametrize(
    ("first", "then", "relaunches"),
    [
        (["--image", "app:1"], ["--image", "app:1", "--env", "LOGLEVEL=INFO"], True),
        (["--image", "app:1", "--env", "LOGLEVEL=DEBUG"], ["--image", "app:1", "--env", "LOGLEVEL=WARNING"], True),
        (["--image", "app:1", "--env", "LOGLEVEL=DEBUG"], ["--image", "app:1", "--env", "LOGLEVEL=DEBUG"], False),
        (["--image", "app:1"], ["--image", "app:2"], True),
        (["--image", "app:1"], ["--image", torchx.IMAGE], True),
        ([], ["--image", torchx.IMAGE], False),
        ([], [], False),
    ],
)
def test_what_the_arguments_choose_counts(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: list[str], then: list[str], relaunches: bool
) -> None:
    monkeypatch.setenv("LOGLEVEL", "INFO")
    one = launch(engine, VolcanoTrainingJob, load_with(tmp_path, *first))
    two = launch(engine, VolcanoTrainingJob, load_with(tmp_path, *then), one)
    assert (one["metadata"]["name"] != two["metadata"]["name"]) == relaunches


def test_the_image_of_another_torchx_is_named_and_launches_nothing(
    engine: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = load_with(tmp_path)
    roles = [replace(role, image="torchx:0.1") for role in now.roles]
    first = launch(engine, VolcanoTrainingJob, replace(now, roles=roles, machine_values={}))
    again = launch(engine, VolcanoTrainingJob, now, first)
    assert again["metadata"]["name"] == first["metadata"]["name"]
    (said,) = [line for line in caplog.messages if "roles[train].image: run" in line]
    assert "keeps it, as the job does not choose one" in said


def test_a_program_that_calls_a_component_itself_is_one_run_on_every_machine(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    objects: list[Any] = []
    for level in ("INFO", None, "DEBUG"):
        monkeypatch.setenv("LOGLEVEL", level) if level else monkeypatch.delenv("LOGLEVEL")
        app = dist.ddp("--lr", "1", script="train.py", image="app:1", j="1x1")
        assert app.roles[0].env["LOGLEVEL"] == (level or "WARNING")
        objects = [launch(engine, VolcanoTrainingJob, app, *objects)]
        names.add(objects[0]["metadata"]["name"])
    assert len(names) == 1
    app.roles[0].env["LOGLEVEL"] = "ERROR"
    assert launch(engine, VolcanoTrainingJob, app, *objects)["metadata"]["name"] not in names


def test_a_mount_of_the_home_of_whoever_runs_the_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/srv/ci")
    with pytest.raises(InvalidJobError, match=r"mount of '~/data' is one of '/srv/ci/data' here.*src=/srv/ci/data"):
        load_with(tmp_path, "--mounts", "type=bind,src=~/data,dst=/data,readonly")
    assert load_with(tmp_path, "--mounts", "type=bind,src=/data,dst=/data", "--", "src=~/data").roles[0].mounts


def load_with(folder: Path, *arguments: str) -> JobSpec:
    return load_component("dist.ddp", ["-j", "2x2", "--script", "train.py", *arguments], folder)
