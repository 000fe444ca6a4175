"""A fleet of the stack program's stacks, from state alone and asked of the real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx_pulumi.cli.main import main
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB

from tests.e2e.project import FAKE_NODE, eventually, finite
from tests.e2e.stack_project import StackProject

pytestmark = pytest.mark.e2e


@pytest.fixture
def stack(tmp_path: Path, e2e_env: dict[str, str], namespace: str) -> StackProject:
    root = tmp_path / "root"
    root.mkdir()
    role = {"name": "trainer", "image": "app:1", "entrypoint": "sleep", "args": ["600"], "num_replicas": 2}
    app = {"name": "train", "roles": [{**role, **FAKE_NODE, "pod_overlay": finite(exit_code=3)}]}
    (root / "app.yaml").write_text(yaml.safe_dump(app))
    made = StackProject(root, e2e_env, namespace, config_dir="stacks")
    made.configure(appFile="app.yaml", options={"queue": "default", "namespace": namespace})
    return made


@pytest.fixture
def fleet(
    e2e_env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., dict[str, Any]]:
    """The command, as its JSON; without a way to a cluster unless it is told to go there."""

    def run(*words: str, kubeconfig: str = "absent") -> dict[str, Any]:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
        capsys.readouterr()
        assert main(["fleet", "--backend", e2e_env["PULUMI_BACKEND_URL"], "--json", *words]) == 0
        values: dict[str, Any] = json.loads(capsys.readouterr().out)
        return values

    return run


def test_a_fleet_is_read_from_state_alone_and_brought_up_to_date_from_the_cluster(
    stack: StackProject, look: KubernetesCluster, kubeconfig: Path, fleet: Callable[..., dict[str, Any]]
) -> None:
    stack.up()
    outputs = stack.output("torchx")
    (row,) = fleet()["apps"]
    assert row["app_id"] == outputs["app"]["id"]
    assert (row["state"], row["reason"]) == (stack.output("state"), stack.output("reason"))
    assert (row["namespace"], row["queue"], row["replicas_wanted"]) == (stack.namespace, "default", 2)
    assert (row["source"], row["project"], row["stack"]) == ("state", "torchx", "dev")

    name = row["app_id"].partition(":")[2]

    def phase() -> Any:
        return ((look.get(VOLCANO_JOB, stack.namespace, name) or {}).get("status") or {}).get("state", {}).get("phase")

    eventually(lambda: phase() == "Failed")
    assert fleet()["apps"][0]["state"] == row["state"]

    def live_rows() -> list[dict[str, Any]]:
        return [app for app in fleet("--live", kubeconfig=str(kubeconfig))["apps"] if app["source"] == "live"]

    # A cluster that does not answer within 2 s is left out.
    (live,) = eventually(live_rows)
    assert (live["state"], live["stale"]) == ("FAILED", False), live
    # The other replica may have been ended before it came to its own end.
    assert 3 in [replica["exit_code"] for replica in live["roles"][0]["replicas"]]
    assert "3" in live["diagnoses"][0]["summary"]
    unreached = fleet("--live")
    assert unreached["apps"][0]["state"] == row["state"]
    assert unreached["unreachable"]

    stack.run("refresh", "--yes", "--skip-preview", "--run-program")
    (refreshed,) = fleet("--state", "failed")["apps"]
    assert (refreshed["app_id"], refreshed["source"]) == (row["app_id"], "state")
    assert fleet("--state", "active")["apps"] == []


def test_shells_and_other_programs_read_the_outputs_of_a_stack(
    stack: StackProject, e2e_env: dict[str, str], tmp_path: Path
) -> None:
    stack.up()
    words = ["pulumi", "stack", "output", "--json"]
    printed = subprocess.run(
        words, cwd=stack.folder, env=stack.env, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    script = [sys.executable, str(stack.root / "examples" / "dashboards" / "outputs.py")]
    said = subprocess.run(script, input=printed, env=stack.env, capture_output=True, text=True, check=False)
    assert stack.output("app_id") in said.stdout, said.stderr

    other = tmp_path / "other"
    other.mkdir()
    place = "examples/dashboards/stack_reference"
    report = StackProject(other, e2e_env, stack.namespace, place=place, config_dir=place)
    report.run("config", "set", "job", "organization/torchx/dev")
    report.up()
    assert (report.output("state"), report.output("reason")) == (stack.output("state"), stack.output("reason"))
    report.destroy()
