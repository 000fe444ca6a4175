"""What users install as the pages say, and what `pulumi package add` installs from a clone: both can run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
import yaml
from packaging.requirements import Requirement
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc
from torchx_pulumi.model.fleet_package import FLEET_COMMANDS, INSTALL_FLEET

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ROOT / "components"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = [ROOT / "README.md", ROOT / "fleet" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
INSTALLED = re.compile(r"pip install '?(torchx-pulumi(?:\[[\w,]*\])?)")


def test_documented_extras_are_there_and_bring_the_commands_that_follow() -> None:
    text = "\n\n".join(page.read_text() for page in PAGES)
    for found in INSTALLED.finditer(text):
        extras = Requirement(found[1]).extras
        assert extras <= PROJECT["optional-dependencies"].keys(), found[0]
        block = text[found.end() :].split("\n\n", 1)[0]
        if re.search(r"^    torchx (run|status|log)", block, re.MULTILINE):
            assert extras & {"torchx", "nightly"}, f"{found[0]} brings no `torchx`"
            assert "kubernetes" in extras, found[0]
        if re.search(rf"^(    )?torchx-pulumi ({'|'.join(FLEET_COMMANDS)})\b", block, re.MULTILINE):
            assert "fleet" in extras, f"{found[0]} brings no command for all apps"


@pytest.mark.parametrize("name", ["docs/fleet.md", "docs/controller.md"])
def test_pages_of_the_fleet_say_how_it_is_installed(name: str) -> None:
    assert INSTALL_FLEET in (ROOT / name).read_text()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of this repository as it is now, without what git ignores."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")  # fmt: skip
    for name in names:
        wanted = name.startswith(("components/", "sdk/", "stacks/", "tools/wheel/")) or "/" not in name
        if wanted and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_clone_has_what_pulumi_installs_for_the_plugin(clone: Path) -> None:
    # As Pulumi's Python host does it: pip, in the plugin's folder, for its requirements.txt. Nothing is fetched here.
    words = ["pip", "install", "--dry-run", "--offline", "--no-build-isolation", "-r", "requirements.txt"]
    uv = Path(sys.prefix) / "bin" / "uv"
    done = subprocess.run(
        [uv, *words, "--python", sys.executable], cwd=clone / "components", text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torchx-pulumi" in done.stderr
    lines = (clone / "components/requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["..[kubernetes]"]


def test_the_environment_of_the_plugin_is_made_in_its_folder_and_not_committed() -> None:
    runtime = yaml.safe_load((COMPONENTS / "PulumiPlugin.yaml").read_text())["runtime"]
    folder = COMPONENTS / runtime["options"]["virtualenv"]
    assert folder.parent == COMPONENTS
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{folder}/bin"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_the_plugin_of_a_clone_starts_and_has_the_components(clone: Path, tmp_path: Path) -> None:
    # As Pulumi's Python host starts it: the folder as the program, the engine's address as its argument.
    words = [sys.executable, str(clone / "components"), "127.0.0.1:1"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as plugin:
        assert plugin.stdout is not None
        try:
            port = int(plugin.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = provider_pb2_grpc.ResourceProviderStub(channel)
                answer = stub.GetSchema(provider_pb2.GetSchemaRequest(), timeout=60)
        finally:
            plugin.terminate()
    schema = json.loads(answer.schema)
    assert schema["name"] == "torchx"
    names = ("MCADTrainingJob", "PatchedImage", "VolcanoTrainingJob")
    assert sorted(schema["resources"]) == [f"torchx:index:{name}" for name in names]
