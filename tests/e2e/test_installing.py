"""Installing as users do, with pip in new environments: the plugin from a clone, and what a page for users says.

It fetches a few hundred megabytes.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.doc_blocks import block, commands
from tests.e2e.torchx_cli import TorchxCli

pytestmark = [pytest.mark.e2e, pytest.mark.extended]

ROOT = Path(__file__).resolve().parents[2]

GET_SCHEMA = """
import subprocess, sys, grpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
with subprocess.Popen([sys.executable, sys.argv[1], "127.0.0.1:1"], stdout=subprocess.PIPE, text=True) as plugin:
    with grpc.insecure_channel(f"127.0.0.1:{plugin.stdout.readline().strip()}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        print(stub.GetSchema(provider_pb2.GetSchemaRequest(), timeout=60).schema)
    plugin.terminate()
"""


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, env=env, text=True, capture_output=True, timeout=540, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    run("git", "clone", "--quiet", ROOT, "clone", cwd=tmp_path)
    return tmp_path / "clone"


def test_the_plugin_is_installed_from_a_clone_by_the_steps_of_pulumi(
    clone: Path, tmp_path: Path, e2e_env: dict[str, str]
) -> None:
    folder = clone / "components"
    options = yaml.safe_load((folder / "PulumiPlugin.yaml").read_text())["runtime"]["options"]
    python = folder / options["virtualenv"] / "bin" / "python"
    # The steps of `InstallDependencies` of Pulumi's Python host, and then of `RunPlugin`.
    run(sys.executable, "-m", "venv", python.parents[1], cwd=folder)
    run(python, "-m", "pip", "install", "--upgrade", "pip", "setuptools", "wheel", cwd=folder)
    run(python, "-m", "pip", "install", "-r", "requirements.txt", cwd=folder)
    for schema in (
        run(python, "-c", GET_SCHEMA, folder, cwd=tmp_path),
        run("pulumi", "package", "get-schema", python.parent / "pulumi-resource-torchx", cwd=tmp_path, env=e2e_env),
    ):
        names = ("MCADTrainingJob", "PatchedImage", "VolcanoTrainingJob")
        assert sorted(json.loads(schema)["resources"]) == [f"torchx:index:{name}" for name in names]


def test_the_page_for_torchx_users_installs_what_its_next_line_runs(
    clone: Path, tmp_path: Path, pulumi_env: dict[str, str], kubeconfig: Path, namespace: str
) -> None:
    install, launch = commands("docs/torchx-users.md", "quick-start")
    extras = re.findall(r"torchx-pulumi(\[.*?\])", install)
    assert set(extras) <= set(
        re.findall(r"torchx-pulumi(\[.*?\])", block("README.md", "install").replace(",docker", ""))
    )
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    run(python, "-m", "pip", "install", f"{clone}{extras[0]}", cwd=tmp_path)
    env = TorchxCli(pulumi_env, tmp_path, kubeconfig).env
    program, verb, *words = shlex.split(launch)
    said = run(python.parent / program, verb, "--dryrun", *words, cwd=tmp_path, env=env)
    assert "batch.volcano.sh/v1alpha1" in said
