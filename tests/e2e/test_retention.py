"""Old apps are forgotten with real stacks, jobs and logs; what runs, is young or belongs to a program stays."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torchx_pulumi.kube import KubernetesCluster
from torchx_pulumi.model.app_entry import StackRef
from torchx_pulumi.runs.driver import Forgotten
from torchx_pulumi.schedulers.volcano.objects import VOLCANO_JOB
from torchx_pulumi.stack_state.backend import open_store
from torchx_pulumi_stacks.engine import AutomationDriver

from tests.e2e.project import eventually
from tests.e2e.test_handover import take_over
from tests.e2e.torchx_cli import TorchxCli
from tests.s3_server import S3Backend

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]

COMPONENT = """
from torchx import specs

def job(image: str, script: str) -> specs.AppDef:
    role = specs.Role(name="main", image=image, entrypoint="sh", args=["-c", script], num_replicas=1,
                      resource=specs.Resource(cpu=0.05, gpu=0, memMB=32))
    return specs.AppDef("job", [role])
"""


@pytest.fixture
def cli(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> TorchxCli:
    return TorchxCli(pulumi_env, tmp_path, kubeconfig)


@pytest.fixture
def busybox(cluster: object) -> str:
    images: dict[str, str] = getattr(cluster, "images", {})
    if not images:
        pytest.skip("the local cluster has no real node")
    return images["busybox"]


def test_old_apps_are_forgotten_and_nothing_else(
    cli: TorchxCli, e2e_env: dict[str, str], namespace: str, look: KubernetesCluster, busybox: str, kubeconfig: Path
) -> None:
    (cli.folder / "mine.py").write_text(COMPONENT)
    logs = cli.folder / "logs"
    backend = Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi/backend/.pulumi"

    def run(script: str) -> str:
        options = f"namespace={namespace},queue=default"
        return cli.torchx(
            "run", "--workspace", "", "-s", "pulumi_volcano", "-cfg", options, "mine.py:job", "--image", busybox,
            "--script", script,
        ).handle  # fmt: skip

    def forget(days: float, mode: str, code: int = 0) -> tuple[str, str]:
        words = [str(kubeconfig), namespace, str(logs), str(days), mode]
        env = {**cli.env, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.forgetting", *words], env=env, cwd=ROOT, text=True, capture_output=True,
            timeout=360, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout, done.stderr

    def name(handle: str) -> str:
        return handle.rpartition(":")[2]

    def fleet(*, live: bool = False) -> dict[str, str]:
        rows = json.loads(cli.ours("fleet", *([] if live else ["--offline"]), "--json").out)["apps"]
        return {name(row["handle"]): row["state"] for row in rows}

    def files(handle: str) -> list[Path]:
        folders = (backend, logs, Path(cli.env["XDG_STATE_HOME"]) / "torchx-pulumi/runs")
        found = [path.relative_to(folder) for folder in folders for path in folder.rglob("*")]
        return [path for path in found if name(handle) in str(path)]

    def jobs() -> set[str]:
        return {item["metadata"]["name"] for item in look.list(VOLCANO_JOB, namespace)}

    def has_ended(handle: str) -> bool:
        job = look.get(VOLCANO_JOB, namespace, name(handle)) or {}
        return (job.get("status") or {}).get("state", {}).get("phase") in ("Completed", "Failed", "Aborted")

    scripts = ("echo hello", "exit 3", "trap 'exit 0' TERM; sleep 900 & wait", "true")
    with ThreadPoolExecutor(4) as pool:
        good, bad, active, taken = pool.map(run, scripts)
    ended = {name(each) for each in (good, bad, taken)}
    over = ("SUCCEEDED", "FAILED")
    eventually(lambda: all(map(has_ended, (good, bad, taken))), timeout_s=180)
    eventually(lambda: ended <= {app for app, state in fleet(live=True).items() if state in over}, timeout_s=180)
    take_over(cli, e2e_env, taken).up()
    cli.ours("controller", "--once", "--namespace", namespace, "--log-archive", str(logs))
    states = {good: "SUCCEEDED", bad: "FAILED", taken: "SUCCEEDED"}
    assert {handle: fleet()[name(handle)] for handle in states} == states
    assert any("log.gz" in path.name for path in files(good))
    everything = {name(each) for each in (good, bad, active, taken)}
    assert jobs() == everything

    # The command itself, of which all apps are young.
    young = cli.ours("controller", "--once", "--namespace", namespace, "--forget-after", "1h", "--dry-run").out
    assert young.splitlines() == ["0 apps would be forgotten:", "0 apps would stay, although old enough:"]

    listed = forget(31, "dry-run")[0].split("would stay")
    assert name(good) in listed[0]
    assert f"Job {namespace}/{name(good)}; 1 archived log of " in listed[0]
    assert [name(each) in listed[0] for each in (bad, active, taken)] == [False] * 3
    assert f"{name(taken)}" in listed[1]
    assert "a Pulumi program took its stack over" in listed[1]
    assert jobs() == everything

    # Killed after its job was deleted, and again when its stack was about to go: under the lock both times.
    for lock in (1, 1):
        forget(31, str(lock), code=-9)
        assert name(good) in fleet()
        assert any(path.name.endswith(".json") for path in (backend / "locks").rglob("*"))
    forget(31, "whole")
    assert files(good) == []
    assert fleet().keys() == jobs() == everything - {name(good)}

    said = forget(61, "whole")[1]
    assert f"{namespace}:{name(bad)}: forgotten, with stack" in said
    assert files(bad) == []
    assert fleet().keys() == jobs() == {name(active), name(taken)}
    assert fleet()[name(active)] == "RUNNING"
    env = {**cli.env, "PULUMI_BACKEND_URL": f"file://{backend.parent}"}
    words = ["pulumi", "stack", "ls", "--all", "--json"]
    stacks = subprocess.run(words, env=env, text=True, capture_output=True, check=True)
    assert len(json.loads(stacks.stdout)) == 2
    assert not any(path.is_file() for path in (backend / "locks").rglob("*"))
    for handle in (active, taken):
        cli.ours("delete", handle)


@pytest.mark.parametrize("backend", ["folder", "s3"])
def test_a_stack_is_removed_as_the_cli_removes_one(
    backend: str, pulumi_env: dict[str, str], s3_backend: S3Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backend").mkdir()
    url = s3_backend.url if backend == "s3" else f"file://{tmp_path}/backend"
    env = {**pulumi_env, **s3_backend.env, "PULUMI_BACKEND_URL": url}
    for key, value in s3_backend.env.items():
        monkeypatch.setenv(key, value)
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: torchx\nruntime: yaml\n")

    def pulumi(*words: str) -> None:
        subprocess.run(["pulumi", *words], cwd=project, env=env, check=True, capture_output=True)

    store = open_store(url, 10.0)
    assert store is not None
    for stack in ("dev", "dev-2", "other"):
        pulumi("stack", "init", stack)
        pulumi("stack", "tag", "set", "team", "vision", "--stack", stack)
        for folder in ("history", "backups"):
            for path in store.paths(".pulumi/stacks/torchx"):
                if path.startswith(f"{stack}.json"):
                    note = f"{tmp_path}/backend/.pulumi/{folder}/torchx/{stack}"
                    Path(note).mkdir(parents=True, exist_ok=True)
                    store.write(f".pulumi/{folder}/torchx/{stack}/{path}", b"{}")
    pulumi("stack", "rm", "--yes", "--remove-backups", "dev-2")
    seen: list[str] = []
    place = StackRef(backend=url, project="torchx", stack="other")
    before = {path for path in store.paths("") if "other" not in path}
    driver = AutomationDriver(tmp_path / "engine")
    assert driver.forget_at(place, lambda text: not seen.append(text)) is Forgotten.REMOVED
    assert len(seen) == 1
    assert set(store.paths("")) == before
    assert not any("dev-2" in path for path in before), "the CLI leaves nothing of a stack either"
    assert any("history/torchx/dev/" in path for path in before), "a stack whose name begins like another one stays"
    pulumi("stack", "ls", "--all")
