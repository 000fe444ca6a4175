"""The controller writes stacks of `torchx run` and of programs, and neither sees a change of its resources."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi_fleet.writer.settings import ControllerTiming

from tests.e2e.fleet.cluster_watch import Server
from tests.e2e.fleet.controller_world import POD_PATH
from tests.e2e.project import STOP_S, Project, eventually, finite
from tests.e2e.test_handover import Taken, take_over
from tests.e2e.torchx_cli import BIN, TorchxCli
from tests.fleet.writer.world import World
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

NO_CHANGE = ("preview", "--expect-no-changes", "--suppress-outputs")

PROGRAM = """\
import json
import pathlib

import pulumi
from torchx_pulumi_components import VolcanoTrainingJob, export_outputs

given = json.loads(pathlib.Path("job.json").read_text())
job = VolcanoTrainingJob("train", given["args"])
export_outputs(job)
pulumi.export("job_name", job.job_name)
"""

COMPONENT = """
from torchx import specs

FAKE = {"node_selector": {"torchx-pulumi/node": "fake"}, "tolerations": [
    {"key": "kwok.x-k8s.io/node", "value": "fake", "operator": "Equal", "effect": "NoSchedule"}]}

def sleeper(run_for: str) -> specs.AppDef:
    ends = {"torchx-pulumi/fake-exit-code": "0", "torchx-pulumi/fake-run-for": run_for}
    pod = {"metadata": {"annotations": ends}, "spec": {"nodeSelector": FAKE["node_selector"],
           "tolerations": FAKE["tolerations"]}}
    role = specs.Role(name="main", image="app:1", entrypoint="sleep", args=["600"], num_replicas=2,
                      resource=specs.Resource(cpu=0.1, gpu=0, memMB=64), metadata={"kubernetes": {"V1Pod": pod}})
    return specs.AppDef("sleeper", [role])
"""


@contextmanager
def controller(env: Mapping[str, str], folder: Path, *words: str) -> Iterator[Path]:
    """Run `torchx-pulumi controller`, and stop it as a service manager does; yield the file with its lines."""
    said = folder / "controller.log"
    with said.open("a") as lines:
        process = subprocess.Popen([BIN / "torchx-pulumi", "controller", *words], env=dict(env), stderr=lines)
        try:
            eventually(lambda: " of file://" in said.read_text() or process.poll() is not None)
            assert process.poll() is None, said.read_text()
            yield said
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in said.read_text()


def lost_logs(said: Path) -> list[str]:
    """Return the lines of a controller about logs that it could not archive. A busy node may need a second try."""
    return [line for line in said.read_text().splitlines() if "not archived" in line and "is tried again" not in line]


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


def test_the_stack_of_a_program(make_project: Any, namespace: str, look: KubernetesCluster, kubeconfig: Path) -> None:
    project: Project = make_project(program=PROGRAM)
    project.job()
    with controller(project.env, project.folder, "--program-stacks", "--namespace", namespace) as said:
        project.up()
        eventually(lambda: project.output("state") == "RUNNING")
        assert project.output("torchx")["observed"]["state"] == "RUNNING"
        project.run(*NO_CHANGE)
        # Their ends are the test's to say: a job that ends by itself may do so before the stack is made.
        server = Server(kubeconfig)
        for pod in look.list(POD, namespace, {"volcano.sh/job-name": project.output("job_name")}):
            path = f"{POD_PATH.format(namespace)}/{pod['metadata']['name']}"
            server.ask("PATCH", path, finite(), kind="merge-patch+json")
        eventually(lambda: project.output("state") == "SUCCEEDED")
        project.run(*NO_CHANGE)
        look.delete(VOLCANO_JOB, namespace, project.output("job_name"))
        time.sleep(2)
        assert project.output("state") == "SUCCEEDED"
        project.up()
        project.run(*NO_CHANGE)
        assert project.output("state") == "SUCCEEDED"
    assert "cannot" not in said.read_text()


@pytest.mark.extended
def test_the_stack_of_an_app_that_a_program_took_over(cli: TorchxCli, e2e_env: dict[str, str], namespace: str) -> None:
    (cli.folder / "mine.py").write_text(COMPONENT)
    with controller(cli.env, cli.folder, "--namespace", namespace):
        handle = cli.torchx(
            "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
            "mine.py:sleeper", "--run_for", "1000s",
        ).handle  # fmt: skip
        project: Taken = take_over(cli, e2e_env, handle)
        eventually(lambda: project.output("state") == "RUNNING")
        project.up()
        project.run(*NO_CHANGE)
        cli.ours("cancel", handle)
        eventually(lambda: project.output("state") == "CANCELLED")
        project.run(*NO_CHANGE)
        cli.ours("delete", handle)


@pytest.mark.extended
@pytest.mark.mcad
def test_an_app_of_mcad_that_is_cancelled_and_one_that_ends(cli: TorchxCli, namespace: str) -> None:
    (cli.folder / "mine.py").write_text(COMPONENT)
    with controller(cli.env, cli.folder, "--namespace", namespace):
        run = ("run", "--workspace", "", "-s", "pulumi_mcad", "-cfg", f"namespace={namespace}", "mine.py:sleeper")
        one = cli.torchx(*run, "--run_for", "1000s").handle
        two = cli.torchx(*run, "--run_for", "5s").handle

        def state(handle: str) -> Any:
            stacks = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi/backend/.pulumi/stacks/torchx"
            (path,) = stacks.glob(f"*{handle.rpartition(':')[2]}*.json")
            resources = json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
            return next(item["outputs"]["state"] for item in resources if item["type"] == "pulumi:pulumi:Stack")

        eventually(lambda: state(one) == "RUNNING", timeout_s=180)
        cli.ours("cancel", one)
        eventually(lambda: state(one) == "CANCELLED", timeout_s=180)
        eventually(lambda: state(two) == "SUCCEEDED", timeout_s=180)
        for handle in (one, two):
            cli.ours("delete", handle)


def test_stacks_in_an_object_store(
    s3_backend: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, Any], None]
) -> None:
    """The cluster is a fake, the S3 server is real."""
    for name, value in s3_backend.env.items():
        monkeypatch.setenv(name, value)
    (s3_backend.bucket / ".pulumi").mkdir()
    (s3_backend.bucket / ".pulumi/meta.yaml").write_text("version: 1\n")
    (tmp_path / "backend").symlink_to(s3_backend.bucket)
    world = World(root=tmp_path, url=s3_backend.url)
    apps = [world.launch(f"train-{number}") for number in range(20)]
    with world.controller(timing=ControllerTiming()):
        for app in apps:
            world.phase(app, "Running", running=1)
        eventually(lambda: all(world.state(app)[0] == "RUNNING" for app in apps))
        begun = time.monotonic()
        for app in apps:
            world.phase(app, "Completed", succeeded=1)
        eventually(lambda: all(world.state(app)[0] == "SUCCEEDED" for app in apps))
        took_s = time.monotonic() - begun
        late = world.create(world.plan("late"))
        world.phase(late, "Completed", succeeded=1)
        world.write(late)
        # Its job object points to it: the next regular listing comes after 30 s.
        eventually(lambda: world.state(late)[0] == "SUCCEEDED", timeout_s=20)
    record_property("seconds", {"20 ends at once": round(took_s, 2)})
    # Nothing waited for the longest of the pauses between attempts.
    assert took_s < ControllerTiming().longest_retry_s
    assert not [*(s3_backend.bucket / ".pulumi/locks").rglob("*.json")]
