"""Apps whose stacks are in PostgreSQL, which only the CLI writes: TorchX works on them, and a controller shows them."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doc_blocks import block, commands
from tests.e2e.fleet.controller_process import ControllerProcess
from tests.e2e.fleet.test_prometheus import LISTENS
from tests.e2e.project import eventually
from tests.e2e.stack_project import StackProject
from tests.e2e.torchx_cli import BIN, TorchxCli

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """URL of a database of the test's own, reached by a socket in the file system."""
    if not PROGRAMS:
        pytest.skip("there is no PostgreSQL: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="torchx-pulumi-pg-"))
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    shutil.chown(folder, user)

    def run(program: str, *words: str) -> None:
        subprocess.run(
            [PROGRAMS[-1] / program, *words], user=user if os.geteuid() == 0 else None, cwd=folder, check=True,
            stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    run("initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "me", "--no-sync")
    run(
        "pg_ctl", "-D", f"{folder}/data", "-l", f"{folder}/log", "-w",
        "-o", f"-c listen_addresses='' -k {folder} -F", "start",
    )  # fmt: skip
    try:
        run("createdb", "-h", str(folder), "-U", "me", "state")
        yield f"postgres:///state?host={folder}&user=me&sslmode=disable"
    finally:
        run("pg_ctl", "-D", f"{folder}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def test_torchx_works_on_postgresql_and_a_controller_shows_what_it_cannot_write(
    pulumi_env: dict[str, str],
    e2e_env: dict[str, str],
    database: str,
    kubeconfig: Path,
    namespace: str,
    cluster: Any,
    tmp_path: Path,
) -> None:
    if not cluster.images:
        pytest.skip("the local cluster has no real node")
    cli = TorchxCli(pulumi_env, tmp_path, kubeconfig)
    cli.env |= {"PULUMI_BACKEND_URL": database, "PATH": f"{BIN}:{cli.env['PATH']}"}
    handle = cli.torchx(
        "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", f"namespace={namespace},queue=default",
        "utils.sh", "--image", str(cluster.images["busybox"]), "sh", "-c", "sleep 900",
    ).handle  # fmt: skip
    app_id = handle.rpartition("/")[2]
    eventually(lambda: "State: RUNNING" in cli.torchx("status", handle).text, 240)
    assert handle in cli.torchx("list", "-s", "pulumi_volcano").text

    refused = cli.ours("controller", "--namespace", namespace, code=2).err
    assert "give --listen [HOST:]PORT, and page, API and metrics show how their jobs stand now" in refused
    (tmp_path / "token").write_text(secrets.token_urlsafe(24))
    (tmp_path / "token").chmod(0o600)
    values = {"--namespace default": f"--namespace {namespace}", "$PULUMI_BACKEND_URL": database, "8080": "0"}
    (serve,) = commands("docs/live-state.md", "first", values)
    words = serve.replace('"', "").split()[2:]
    controller = ControllerProcess(cli.env, tmp_path, *words)
    try:
        controller.wait_ready()
        assert controller.lines("are read through the Pulumi CLI and not written")
        address = eventually(lambda: (LISTENS.findall(controller.said()) or [None])[0])
        script = block("docs/live-state.md", "list").replace("127.0.0.1:8080", address)

        def listed() -> list[list[str]]:
            done = subprocess.run(
                ["sh", "-c", script], cwd=tmp_path, env=cli.env, capture_output=True, text=True, check=True
            )
            return [line.split("\t")[:2] for line in done.stdout.splitlines()]

        eventually(lambda: listed() == [[app_id, "RUNNING"]])
        # A colleague who reads the stack alone sees what was known at the launch.
        colleague = TorchxCli(pulumi_env, tmp_path / "colleague", kubeconfig)
        colleague.folder.mkdir()
        colleague.env |= {"PULUMI_BACKEND_URL": database}
        (row,) = json.loads(colleague.ours("fleet", "--offline", "--json").out)["apps"]
        assert (row["app_id"], row["state"], row["source"]) == (app_id, "SUBMITTED", "state")

        place = "examples/dashboards/live_reference"
        (tmp_path / "root").mkdir()
        mine = {"PULUMI_BACKEND_URL": database, "PULUMI_CONFIG_PASSPHRASE": "x"}
        report = StackProject(tmp_path / "root", {**e2e_env, **mine}, namespace, place=place, config_dir=place)
        report.run("config", "set", "controller", f"http://{address}")
        report.run("config", "set", "app", app_id)
        report.run("config", "set", "--secret", "token", (tmp_path / "token").read_text())
        report.up()
        exported = json.loads(report.run("stack", "output", "--json"))
        assert (exported["state"], exported["gpus"]) == ("RUNNING", 0)
        cli.torchx("cancel", handle)
        eventually(lambda: listed() == [])
        report.up()
        assert report.run("stack", "output", "state").strip() == "CANCELLED"
    finally:
        controller.close()
    report.destroy()
    cli.ours("delete", handle)
    assert json.loads(cli.ours("fleet", "--json").out)["apps"] == []
