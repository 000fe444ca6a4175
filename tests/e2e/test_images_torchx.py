"""`torchx run` with a workspace: the dry run asks no daemon, the launch builds and pushes, the pod runs the edit."""

from __future__ import annotations

import re
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
        (code / "train.sh").write_text(f"echo {text}\n")
        return torchx(
            *("run", "-s", "pulumi_volcano", "--workspace", f"file://{code}", *words),
            *("-cfg", f"queue=default,namespace={namespace},image_repo={repository}"),
            *("utils.sh", "--image", str(cluster.images["busybox"]), "sh", "/train.sh"),
        )

    def image(said: Said) -> str:
        found = re.search(re.escape(repository) + r":[0-9a-f]{40}", said.text)
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
