"""An app of `torchx run` goes over to a Pulumi program, and answers to its handle before and after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.cluster import KubernetesCluster
from torchx_pulumi.kinds import VOLCANO_JOB

from tests.e2e.project import Project
from tests.e2e.torchx_cli import TorchxCli

pytestmark = pytest.mark.e2e


class Taken(Project):
    """A project that `torchx-pulumi program` wrote, in the stack that `torchx run` made."""

    def __init__(self, folder: Path, env: dict[str, str], backend: str, stack: str, passphrase: Path) -> None:
        self.folder = folder
        self.env = {
            **{name: value for name, value in env.items() if name != "PULUMI_CONFIG_PASSPHRASE"},
            "PULUMI_BACKEND_URL": backend,
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        }
        text = (folder / "Pulumi.yaml").read_text()
        (folder / "Pulumi.yaml").write_text(
            text.replace("runtime: python", f"runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}")
        )
        self.run("stack", "select", stack)


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def busybox(cluster: Any) -> str:
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    return str(cluster.images["busybox"])


def test_an_app_goes_over_to_a_program_and_keeps_its_uid(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", busybox, "sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait",
    ).handle  # fmt: skip
    (before,) = look.list(VOLCANO_JOB, namespace)
    said = cli.ours("program", handle, "--to", "taken").out.splitlines()
    backend, stack = (next(line.split()[-1] for line in said if word in line) for word in ("login", "select"))
    passphrase = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    project = Taken(cli.folder / "taken", {**e2e_env, **cli.env}, backend, stack, passphrase)
    again = cli.ours("program", handle, "--to", "taken", code=None)
    assert again.code != 0
    assert "is there already" in again.err
    preview = project.preview()
    assert "replace" not in preview
    assert "delete" not in preview.replace("deleted_with", "")
    project.up()
    (after,) = look.list(VOLCANO_JOB, namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert project.output("uid") == before["metadata"]["uid"]
    project.up()
    assert "unchanged" in project.up()
    assert "RUNNING" in cli.torchx("status", handle).text or "PENDING" in cli.torchx("status", handle).text
    cli.ours("delete", handle)
    assert look.list(VOLCANO_JOB, namespace) == []
