"""The commands of README and docs, as a reader runs them from top to bottom, on the real cluster."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.kube import KubernetesCluster

from tests.doc_blocks import commands
from tests.e2e.project import eventually
from tests.e2e.stack_project import StackProject
from tests.e2e.torchx_cli import BIN, HANDLE, TorchxCli, wait_for_pods

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e


def shell(lines: list[str], folder: Path, env: dict[str, str], programs: Path = BIN) -> str:
    """Run lines in one shell that ends at the first error, and return what they print."""
    path = os.pathsep.join([str(programs), env["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=folder,
        env={**env, "PATH": path, "PULUMI_SKIP_CONFIRMATIONS": "true"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{lines}\n{done.stdout}"
    return done.stdout


def until_it_says(text: str, line: str, folder: Path, env: dict[str, str]) -> str:
    """Run a line that does not end by itself, send it SIGTERM when it has printed a text, and return what it prints."""
    process = subprocess.Popen(
        ["bash", "-euc", f"exec {line}"],
        cwd=folder,
        env={**env, "PATH": os.pathsep.join([str(BIN), env["PATH"]])},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    # One that never says it is ended all the same.
    guard = threading.Timer(240, process.terminate)
    guard.start()
    try:
        assert process.stdout is not None
        said = ""
        for printed in process.stdout:
            said += printed
            if text in printed:
                break
        process.terminate()
        said += process.communicate(timeout=240)[0]
    finally:
        guard.cancel()
        process.kill()
    assert process.returncode == 0, said
    return said


def test_the_quick_start_the_logs_and_the_program_that_takes_the_app_over(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    image: str,
    look: KubernetesCluster,
) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    example = "pulumi_volcano://torchx/default:echo-k3x9"
    launch, *_ = commands(
        "README.md", "quick-start", {"queue=default": f"queue=default,namespace={namespace}", "busybox:1.36": image}
    )
    found = HANDLE.search(shell([launch], tmp_path, env))
    assert found
    handle = found[0]
    _, status, log, delete = commands("README.md", "quick-start", {example: handle})
    wait_for_pods(look, handle, "SUCCEEDED")
    eventually(lambda: "SUCCEEDED" in shell([status], tmp_path, env), timeout_s=240)
    assert "hello" in shell([log], tmp_path, env)
    train = "pulumi_volcano://torchx/default:train-k3x9"
    for line in commands("docs/logs.md", "log", {train: handle, "trainer/0": "echo/0"}):
        assert "hello" in shell([line], tmp_path, env)

    said = shell(commands("docs/infra-teams.md", "eject", {train: handle}), tmp_path, env).splitlines()
    backend, stack = (next(line.split()[-1] for line in said if word in line) for word in ("login", "select"))
    project = tmp_path / "train" / "Pulumi.yaml"
    virtualenv = f"runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}"
    project.write_text(project.read_text().replace("runtime: python", virtualenv))
    # `pulumi login` writes into the user's own settings, whose plugins stay those of the session.
    home = tmp_path / "pulumi-home"
    home.mkdir()
    (home / "plugins").symlink_to(Path(env.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins")
    passphrase = Path(env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    paths = [str(ROOT / folder) for folder in ("sdk", "components", "stacks")]
    mine = {
        **env,
        "PULUMI_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    program = commands(
        "docs/infra-teams.md",
        "program",
        {
            "file:///home/me/.local/state/torchx-pulumi/backend": backend,
            "~/.local/state/torchx-pulumi/passphrase": str(passphrase),
            "default.train-k3x9-1f2e3d": stack,
        },
    )
    preview = shell(program, tmp_path, mine)
    assert "delete" not in preview
    assert "replace" not in preview
    printed = shell(["cd train", *commands("docs/infra-teams.md", "handle")], tmp_path, mine)
    assert "SUCCEEDED" in printed
    assert "hello" in printed
    shell([delete], tmp_path, env)


@pytest.mark.extended
def test_the_first_page_leads_from_pip_install_to_a_finished_job(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str, image: str
) -> None:
    shell([f"uv build --wheel --out-dir {tmp_path} ."], ROOT, pulumi_env)
    (wheel,) = tmp_path.glob("*.whl")
    programs = tmp_path / "venv" / "bin"
    shell([f"{sys.executable} -m venv {programs.parent}"], tmp_path, pulumi_env)
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    began = time.monotonic()
    shell(commands("README.md", "install", {"torchx-pulumi[": f"{wheel}["}), tmp_path, pulumi_env, programs)
    installed = time.monotonic()
    doctor, _ = commands("README.md", "doctor")
    assert "volcano" in shell([f"{doctor} || true"], tmp_path, env, programs)
    values = {"queue=default": f"queue=default,namespace={namespace}", "busybox:1.36": image}
    launch, *_ = commands("README.md", "quick-start", values)
    found = HANDLE.search(shell([launch], tmp_path, env, programs))
    assert found
    example = "pulumi_volcano://torchx/default:echo-k3x9"
    _, status, log, delete = commands("README.md", "quick-start", {example: found[0]})
    eventually(lambda: "SUCCEEDED" in shell([status], tmp_path, env, programs), timeout_s=240)
    assert "hello" in shell([log], tmp_path, env, programs)
    ended = time.monotonic()
    shell([delete], tmp_path, env, programs)
    sys.stdout.write(
        f"\npip install: {installed - began:.0f} s; from it to the log of the finished job: {ended - installed:.0f} s\n"
    )


def test_the_stack_program_and_its_outputs(tmp_path: Path, e2e_env: dict[str, str], namespace: str, image: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    StackProject(root, e2e_env, namespace)
    app = root / "examples" / "appdef" / "hello.yaml"
    app.write_text(app.read_text().replace("busybox:1.36", image))
    init, *configure, preview, up = commands("README.md", "stack-program")
    own = f"pulumi config set --path options.namespace {namespace}"

    def ended(refresh: str) -> bool:
        return "SUCCEEDED" in shell([refresh, "pulumi stack output state"], root, e2e_env)

    try:
        shown = shell([init, *configure, own, preview, up], root, e2e_env)
        assert "log_command" in shown
        absent = []
        for line in commands("docs/status.md", "outputs"):
            tools = [tool for tool in ("jq", "kubectl") if tool in line or ("eval" in line and tool == "kubectl")]
            absent += [tool for tool in tools if shutil.which(tool) is None]
            if any(tool in absent for tool in tools):
                continue
            if "refresh" in line:
                eventually(functools.partial(ended, line), timeout_s=240)
            else:
                assert shell([line], root, e2e_env) or "diagnoses" in line
        if absent:
            pytest.skip(f"{', '.join(absent)} not installed; every other line ran")
    finally:
        shell(["pulumi destroy --stack hello --skip-preview"], root, e2e_env)


def test_doctor_and_fleet(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    doctor, fleet = commands("README.md", "doctor")
    assert "volcano" in shell([f"{doctor} || true"], tmp_path, env)
    assert "no apps" in shell([fleet], tmp_path, env)
    shell(commands("docs/fleet.md", "fleet"), tmp_path, env)
    assert (tmp_path / "fleet.html").read_text().startswith("<!DOCTYPE html>")


def test_the_controller(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    values = {"default": namespace, "/mnt/logs": str(tmp_path / "logs")}
    (start,) = commands("docs/controller.md", "start", values)
    assert "0 apps in 0 stacks" in until_it_says("0 apps in 0 stacks", start, tmp_path, env)
    assert "stopped" in shell(commands("docs/controller.md", "once", values), tmp_path, env)
    dry_run = commands("docs/controller-operation.md", "forget-dry-run", values)
    assert "0 apps would be forgotten" in shell(dry_run, tmp_path, env)


def test_the_two_commands_are_what_continuous_integration_runs() -> None:
    """`make demo` is run by test_demo.py, and `make test` by .ci/run before these tests."""
    demo, test = (shlex.split(line) for line in commands("README.md", "two-commands"))
    dry = subprocess.run([*demo, "--dry-run"], cwd=ROOT, text=True, capture_output=True, check=True)
    assert "-m tools.demo" in dry.stdout
    assert " ".join(test) in (ROOT / ".ci" / "run").read_text()


def test_the_command_of_the_images_page_is_planned(
    cluster: Any, pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str
) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    repository = f"{cluster.registry}/{namespace}"
    values = {
        "registry.example.com/team/train": repository,
        "queue=default": f"queue=default,namespace={namespace}",
        # TorchX 0.7.0 has the component under this name.
        "dist.torchrun": f"dist.ddp --image {cluster.images.get('busybox', 'busybox')}",
        "torchx run": "torchx run --dryrun",
    }
    said = shell(
        commands("docs/images.md", "torchx", values), tmp_path, TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    )
    assert f"{repository}:" in said
