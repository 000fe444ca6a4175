"""Installing as users do, with pip in a new environment: the plugin from a clone.

It fetches a few hundred megabytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
