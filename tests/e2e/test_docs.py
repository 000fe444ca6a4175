"""The commands of README and docs, as a reader runs them from top to bottom, on the real cluster."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.doc_blocks import PAGES, command_lines, commands
from tests.e2e.project import eventually
from tests.e2e.stack_project import StackProject
from tests.e2e.torchx_cli import BIN, HANDLE, TorchxCli

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e

GROUPS = {"config", "package", "plugin", "stack", "state"}
"""Commands of Pulumi that have commands."""


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


def until_it_says(text: str, line: str, folder: Path, env: dict[str, str], programs: Path = BIN) -> str:
    """Run a line that does not end by itself, send it SIGTERM when it has printed a text, and return what it prints."""
    process = subprocess.Popen(
        ["bash", "-euc", f"exec {line}"],
        cwd=folder,
        env={**env, "PATH": os.pathsep.join([str(programs), env["PATH"]])},
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


def test_the_logs_and_the_program_that_takes_the_app_over(
    pulumi_env: dict[str, str],
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    image: str,
) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    launch = f'torchx run -s pulumi_volcano -cfg queue=default,namespace={namespace},wait_for=completed --workspace ""'
    found = HANDLE.search(shell([f"{launch} utils.echo --image {image} --msg hello"], tmp_path, env))
    assert found
    handle = found[0]
    train = "pulumi_volcano://torchx/default:train-k3x9"
    for line in commands("docs/logs.md", "first", {train: handle, "trainer/0": "echo/0"}):
        assert "hello" in shell([line], tmp_path, env)
    listed, explained, doctor = commands("docs/diagnosis.md", "first", {train: handle})
    assert handle in shell([listed], tmp_path, env)
    look, _ = commands("docs/states.md", "first", {train: handle})
    assert explained == look
    assert "SUCCEEDED" in shell([look], tmp_path, env)
    assert "volcano" in shell([f"{doctor} || true"], tmp_path, env)

    said = shell(commands("docs/infra-teams.md", "first", {train: handle}), tmp_path, env).splitlines()
    backend, stack = (next(line.split()[-1] for line in said if word in line) for word in ("login", "select"))
    project = tmp_path / "train" / "Pulumi.yaml"
    virtualenv = f"runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}"
    project.write_text(project.read_text().replace("runtime: python", virtualenv))
    # `pulumi login` writes into the user's own settings, whose plugins stay those of the session.
    home = tmp_path / "pulumi-home"
    home.mkdir()
    (home / "plugins").symlink_to(Path(env.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins")
    passphrase = Path(env["XDG_STATE_HOME"]) / "torchx-pulumi" / "passphrase"
    paths = [str(ROOT / folder) for folder in ("sdk", "components", "stacks", "fleet")]
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
    shell([f"torchx-pulumi delete {handle}"], tmp_path, env)


def test_the_launches_with_which_pages_begin(
    pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str, image: str
) -> None:
    env = {**TorchxCli(pulumi_env, tmp_path, kubeconfig).env, "HOME": str(tmp_path)}
    here = {"queue=default": f"queue=default,namespace={namespace}", "busybox:1.36": image}
    assert "--dryrun" in (tried := commands("docs/options.md", "first", here))[-1]
    assert "on_running_change" in shell(tried[:1], tmp_path, env)
    assert "batch.volcano.sh/v1alpha1" in shell(tried[1:], tmp_path, env)
    (waits,) = commands("docs/waits.md", "first", here)
    found = [HANDLE.search(shell([waits], tmp_path, env))]
    assert "SUCCEEDED" in shell([f"torchx status {found[0] and found[0][0]}"], tmp_path, env)
    found.append(HANDLE.search(shell(commands("docs/backends.md", "first", here), tmp_path, env)))
    assert [*(tmp_path / "jobs" / ".pulumi" / "stacks").iterdir()]
    shell([f"torchx-pulumi delete {handle[0]}" for handle in found if handle], tmp_path, env)


def test_pulumi_has_the_commands_of_the_pages_and_their_options(pulumi_tools: dict[str, str], tmp_path: Path) -> None:
    options: dict[str, set[str]] = {}
    for line in (line for page in PAGES for _, line in command_lines(page) if line.startswith("pulumi ")):
        words = shlex.split(re.split(r" (?:[|&]|>+)", line)[0], comments=True)[1:]
        verbs = " ".join(itertools.takewhile(str.isalpha, words[:2])) if words[0] in GROUPS else words[0]
        options.setdefault(verbs, set()).update(word.partition("=")[0] for word in words if word.startswith("--"))
    assert len(options) > 5
    for verbs, given in options.items():
        text = shell([f"pulumi {verbs} --help"], tmp_path, {**os.environ, **pulumi_tools})
        assert "[command]" not in text, f"pulumi {verbs} is no command: this is the help of those above it"
        assert given <= {*re.findall(r"--[a-z-]+", text)}, verbs


def test_the_stack_program_and_its_outputs(tmp_path: Path, e2e_env: dict[str, str], namespace: str, image: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    StackProject(root, e2e_env, namespace)
    app = root / "examples" / "appdef" / "hello.yaml"
    app.write_text(app.read_text().replace("busybox:1.36", image))
    *configure, up = commands("docs/stack-program.md", "first")
    own = f"pulumi config set --path options.namespace {namespace}"

    def ended(refresh: str) -> bool:
        return "SUCCEEDED" in shell([refresh, "pulumi stack output state"], root, e2e_env)

    try:
        shown = shell([*configure, own, up], root, e2e_env)
        assert "log_command" in shown
        absent = []
        for line in [*commands("docs/status.md", "first"), *commands("docs/status.md", "outputs")]:
            tools = [tool for tool in ("jq", "kubectl") if tool in line or ("eval" in line and tool == "kubectl")]
            absent += [tool for tool in tools if shutil.which(tool) is None]
            if any(tool in absent for tool in tools):
                continue
            if "refresh" in line:
                eventually(functools.partial(ended, line))
            else:
                assert shell([line], root, e2e_env) or "diagnoses" in line
        if absent:
            pytest.skip(f"{', '.join(absent)} not installed; every other line ran")
    finally:
        shell(["pulumi destroy --stack hello --skip-preview"], root, e2e_env)


def test_doctor_and_fleet(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    (doctor,) = commands("README.md", "doctor")
    assert "volcano" in shell([f"{doctor} || true"], tmp_path, env)
    _, fleet, same = commands("docs/fleet.md", "first")
    assert same == doctor
    assert "no apps" in shell([fleet, *commands("docs/fleet.md", "fleet")], tmp_path, env)
    (of_namespace,) = commands("docs/permissions.md", "first", {"default": namespace})
    assert "permissions" in shell([f"{of_namespace} || true"], tmp_path, env)
    lines = [*commands("docs/troubleshooting.md", "first"), *commands("docs/tested-versions.md", "first")]
    assert shell([f"{line} || true" for line in lines], tmp_path, env).count("torchx-pulumi-fleet ") >= 2
    assert (tmp_path / "fleet.html").read_text().startswith("<!DOCTYPE html>")


def test_the_controller(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path, namespace: str) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    mine = {"--namespace default": f"--namespace {namespace}"}
    _, start = commands("docs/controller.md", "first", {**mine, "8080": "0"})
    said = until_it_says("0 apps in 0 stacks", start, tmp_path, env)
    assert "the page: http://127.0.0.1:" in said
    assert commands("docs/controller-page.md", "first", {**mine, "8080": "0"}) == [start]
    token, with_token = commands("docs/controller-access.md", "first", {**mine, "8080": "0"})
    shell([token], tmp_path, env)
    assert "?token=" not in until_it_says("0 apps in 0 stacks", with_token, tmp_path, env)
    one, other = commands("docs/controller-operation.md", "first", {**mine, "--lease ": f"--lease {namespace}/"})
    assert one == f"{other} &"
    assert "leads" in until_it_says("leads", other, tmp_path, env)
    archive = {**mine, "/mnt/logs": str(tmp_path / "logs")}
    assert "stopped" in shell(commands("docs/controller.md", "once", archive), tmp_path, env)


def test_pruning(pulumi_env: dict[str, str], tmp_path: Path, kubeconfig: Path) -> None:
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    _, look = commands("docs/prune.md", "first")
    said = shell([look, look.removesuffix(" --dry-run")], tmp_path, env)
    assert "0 would be pruned, 0 left alone, 0 failed, 0 younger or of other states" in said
    assert "0 pruned, 0 left alone, 0 failed, 0 younger or of other states" in said


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
