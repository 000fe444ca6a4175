"""A job that TorchX's own scheduler `kubernetes` started goes over to a Pulumi program, and is not run again.

Also with TorchX nightly (`tools.e2e`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.kube.kinds import POD
from torchx_pulumi.model import labels
from torchx_pulumi.planning.quantities import canonical
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.doc_blocks import commands
from tests.e2e.project import eventually
from tests.e2e.test_handover import Taken, busybox, cli, state_of, wait_for
from tests.e2e.torchx_cli import TorchxCli

__all__ = ["busybox", "cli"]

pytestmark = pytest.mark.e2e


def run_app(cli: TorchxCli, namespace: str, busybox: str, script: str) -> str:
    """Run an app with TorchX's own scheduler and return its handle."""
    said = cli.torchx(
        "run", "--workspace", "", "-s", "kubernetes", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", busybox, "--num_replicas", "2", "sh", "-c", script,
    )  # fmt: skip
    found = re.search(r"kubernetes://\S*?/[\w.-]+:[\w.-]+", said.text)
    assert found, said.text
    return found.group()


def imported(cli: TorchxCli, e2e_env: dict[str, str], handle: str) -> Taken:
    """Follow what the page and the command say until the first `up`."""
    values = {"kubernetes://torchx/default:train-k3x9": handle, "--to train": "--to taken"}
    (describe,) = commands("docs/import.md", "describe", values)
    said = cli.ours(*describe.split()[1:]).out
    backend, stack = (
        next(line.split()[-1] for line in said.splitlines() if word in line) for word in ("login", "init")
    )
    passphrase = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    steps = {
        "cd train": "cd taken",
        "file:///home/me/.local/state/torchx-pulumi/backend": backend,
        "~/.local/state/torchx-pulumi/passphrase": str(passphrase),
        "default.train-k3x9-1f2e3d": stack,
    }
    assert [line.partition("  #")[0] for line in said.splitlines()] == commands("docs/import.md", "import", steps)
    Path(backend.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    return Taken(cli.folder / "taken", {**e2e_env, **cli.env}, backend, stack, passphrase, command="init")


def uids(look: KubernetesCluster, namespace: str) -> list[str]:
    return sorted(str(item["metadata"]["uid"]) for kind in (VOLCANO_JOB, POD) for item in look.list(kind, namespace))


def test_a_running_job_of_torchx_is_imported_and_keeps_its_uid(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    script = "trap 'exit 0' TERM; echo hello $TORCHX_RANK0_HOST; sleep 600 & wait"
    handle = run_app(cli, namespace, busybox, script)
    own = handle.replace("kubernetes://", "pulumi_volcano://")
    eventually(lambda: state_of(cli, handle) == "RUNNING", 240)
    (before,), running = look.list(VOLCANO_JOB, namespace), uids(look, namespace)
    project = imported(cli, e2e_env, handle)
    assert "import" in project.preview()
    project.up()
    (after,) = look.list(VOLCANO_JOB, namespace)
    assert (after["metadata"].get("labels"), after["spec"]) == (before["metadata"].get("labels"), before["spec"])
    project.up()
    (labelled,) = look.list(VOLCANO_JOB, namespace)
    assert labels.LAUNCH in labelled["metadata"]["labels"]
    project.run("preview", "--expect-no-changes")
    project.refresh()
    project.up()
    project.run("preview", "--expect-no-changes")
    assert uids(look, namespace) == running
    (now,) = look.list(VOLCANO_JOB, namespace)
    assert now["spec"] == before["spec"]
    assert (project.output("uid"), project.output("state")) == (before["metadata"]["uid"], "RUNNING")
    # The same app by both handles.
    assert [state_of(cli, each) for each in (own, handle)] == ["RUNNING", "RUNNING"]
    eventually(lambda: cli.torchx("log", own).text.count("hello") == 2)

    # A change of a running job is refused, as of each job.
    described = project.folder / "app.json"
    text = described.read_text()
    described.write_text(text.replace("sleep 600", "sleep 601"))
    assert "would relaunch run" in project.preview(fails=True)
    described.write_text(text)
    cli.torchx("cancel", own)
    wait_for(cli, look, own, "CANCELLED")
    project.up()
    assert state_of(cli, own) == "CANCELLED"
    assert [job["metadata"]["uid"] for job in look.list(VOLCANO_JOB, namespace)] == [before["metadata"]["uid"]]

    # What the program says is what ran.
    program = project.folder / "__main__.py"
    program.write_text(program.read_text().replace("    app_id=", "    rerun='2',\n    app_id="))
    project.up()
    (again,) = look.list(VOLCANO_JOB, namespace)
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    assert [run_by(task) for task in again["spec"]["tasks"]] == [run_by(task) for task in before["spec"]["tasks"]]
    wait_for(cli, look, own, "RUNNING")
    eventually(lambda: cli.torchx("log", own).text.count("hello") == 2)
    project.destroy()
    assert look.list(VOLCANO_JOB, namespace) == []


def run_by(task: dict[str, Any]) -> tuple[Any, ...]:
    (container,) = task["template"]["spec"]["containers"]
    # Volcano's webhook has spelled the quantities of the first run in its own way.
    parts = [{name: canonical(text) for name, text in part.items()} for part in container["resources"].values()]
    return task["name"], container["image"], container["command"], parts


@pytest.mark.extended
def test_a_finished_job_of_torchx_is_imported_and_not_run_again(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, busybox: str, look: KubernetesCluster
) -> None:
    handle = run_app(cli, namespace, busybox, "echo done")
    eventually(lambda: state_of(cli, handle) == "SUCCEEDED", 240)
    (before,) = look.list(VOLCANO_JOB, namespace)
    project = imported(cli, e2e_env, handle)
    for _ in range(2):
        project.up()
    assert project.output("state") == "SUCCEEDED"
    assert [job["metadata"]["uid"] for job in look.list(VOLCANO_JOB, namespace)] == [before["metadata"]["uid"]]
    refused = cli.ours("program", handle, "--to", "again", code=None)
    assert refused.code != 0
    assert "is of a stack of torchx-pulumi already" in refused.err
    look.delete(VOLCANO_JOB, namespace, before["metadata"]["name"])
    eventually(lambda: look.list(VOLCANO_JOB, namespace) == [])
    assert "it is not started again" in project.up()
    assert look.list(VOLCANO_JOB, namespace) == []
    assert project.output("state") == "SUCCEEDED"
