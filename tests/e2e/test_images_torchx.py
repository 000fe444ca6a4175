"""`torchx run` with a workspace: the dry run asks no daemon, the launch builds and pushes, the pod runs the edit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.docker_daemon import docker_environment, docker_host
from tests.e2e.torchx_cli import Said, TorchxCli

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def daemon(cluster: Any) -> Iterator[str]:
    if not cluster.images:
        pytest.skip("the local cluster has no real node: no container can run")
    with docker_host() as host:
        yield host


def test_an_edit_reaches_the_container(
    daemon: str, cluster: Any, pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str
) -> None:
    docker = {name: docker_environment(daemon, tmp_path)[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")}
    cli = TorchxCli({**pulumi_env, **docker}, tmp_path, kubeconfig)
    without_daemon = TorchxCli({**pulumi_env, **docker, "DOCKER_HOST": "unix:///nonexistent"}, tmp_path, kubeconfig)
    code = tmp_path / "code"
    code.mkdir()
    repository = f"{cluster.registry}/{namespace}"

    def run(text: str, torchx: Callable[..., Said], *words: str) -> Said:
        (code / "train.sh").write_text(f"echo {text}\nsleep 2\n")
        return torchx(
            *("run", "-s", "pulumi_volcano", "--workspace", f"file://{code}", *words),
            *("-cfg", f"queue=default,namespace={namespace},builder=docker,image_repo={repository}"),
            *("utils.sh", "--image", str(cluster.images["busybox"]), "sh", "/train.sh"),
        )

    def image(said: Said) -> str:
        found = re.search(re.escape(repository) + r":patched-[0-9a-f]{40}", said.text)
        assert found, said.text
        return found[0]

    (code / ".git").mkdir()
    (code / ".git/config").write_text("token")
    dry = run("first-edit", without_daemon.torchx, "--dryrun")
    planned = image(dry)
    assert "left out by default: .git (a line `!.git` in .dockerignore keeps it)" in dry.text
    said = run("first-edit", cli.torchx, "--wait", "--log")
    assert "first-edit" in said.text
    assert planned in said.text
    assert f"image {planned}: left out by default: .git" in said.text
    # Nothing changed: neither built nor pushed, so that no daemon is needed.
    again = run("first-edit", without_daemon.torchx, "--wait", "--log")
    assert "first-edit" in again.text
    for done in (said, again):
        cli.ours("delete", done.handle)


BUILD = """
import pickle, sys
from torchx import specs
from torchx.runner import get_runner
file, image, code, repository, namespace, builder = sys.argv[1:]
cfg = {"queue": "default", "namespace": namespace, "image_repo": repository, "builder": builder}
role = specs.Role(name="sh", image=image, entrypoint="sh", args=["/train.sh"], num_replicas=1,
                  resource=specs.Resource(cpu=1, gpu=0, memMB=64))
app = specs.AppDef(name="elsewhere", roles=[role])
with get_runner() as runner:
    # TorchX 0.7.0 has dry runs only.
    if hasattr(runner, "build_workspace"):
        role.workspace = specs.Workspace.from_str(code)
        found = runner.build_workspace(app, "pulumi_volcano", cfg)
    else:
        found = runner.dryrun(app, "pulumi_volcano", cfg, workspace=code)
with open(file, "wb") as out:
    pickle.dump([app, found, cfg], out)
"""
"""A process that builds a workspace, or makes a dry run, and keeps what it got in a file."""

LAUNCH = """
import pickle, sys
from torchx.runner import get_runner
with open(sys.argv[1], "rb") as file:
    app, found, cfg = pickle.load(file)
with get_runner() as runner:
    if isinstance(found, dict):
        from torchx.workspace import pin_workspace_images
        pin_workspace_images(app, found)
        found = runner.dryrun(app, "pulumi_volcano", cfg)
    handle = runner.schedule(found)
    print(runner.wait(handle).state.name, *runner.log_lines(handle, "sh", 0))
    print(handle)
"""
"""Another process, which launches it."""


@pytest.mark.parametrize("builder", ["registry", pytest.param("docker", marks=pytest.mark.extended)])
def test_what_one_process_planned_or_built_another_one_launches(
    builder: str,
    daemon: str,
    cluster: Any,
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
) -> None:
    docker = {name: docker_environment(daemon, tmp_path)[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")}
    if builder == "registry":
        docker["DOCKER_HOST"] = "unix:///nonexistent"
    cli = TorchxCli({**pulumi_env, **docker}, tmp_path, kubeconfig)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.sh").write_text("echo from elsewhere\nsleep 2\n")

    def run(program: str, *words: str) -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "kept"), *words]
        done = subprocess.run(
            command, env=cli.env, cwd=tmp_path, text=True, capture_output=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    image, repository = str(cluster.images["busybox"]), f"{cluster.registry}/{namespace}"
    run(BUILD, image, str(tmp_path / "code"), repository, namespace, builder)
    said = run(LAUNCH)
    assert said.startswith("SUCCEEDED")
    assert "from elsewhere" in said
    cli.ours("delete", said.split()[-1])
