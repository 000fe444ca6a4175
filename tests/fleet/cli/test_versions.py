"""The package next to another version of `torchx-pulumi`: its commands and its archives say so, the rest works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = (
    "torchx-pulumi-fleet 1.3.0 needs torchx-pulumi 1.3.0, found 1.2.0; run `pip install 'torchx-pulumi[fleet]==1.2.0'`"
)
PROGRAM = "import sys; from torchx_pulumi.cli.main import main; sys.exit(main())"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which this package has another version than `torchx-pulumi`."""
    for name, version in (("torchx-pulumi", "1.2.0"), ("torchx-pulumi-fleet", "1.3.0")):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(
        "[torchx_pulumi.commands]\nfleet = torchx_pulumi_fleet.cli.fleet:add_command\n"
        "[torchx_pulumi.log_archives]\narchive = torchx_pulumi_fleet.archive.archived_log:open_log_archive\n"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "COLUMNS": "300"}


def run(env: dict[str, str], program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *words], env=env, text=True, capture_output=True, check=False)


def test_commands_refuse_another_version_of_the_core(env: dict[str, str]) -> None:
    refused = run(env, PROGRAM, "fleet", "--offline")
    why = f"is a command of torchx-pulumi-fleet, which does not work: {SAYS}"
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.splitlines()[1:] == [f"torchx-pulumi: error: fleet {why}"]
    shown = run(env, PROGRAM, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"    fleet     {why}\n" in shown.stdout
    versions = run(env, PROGRAM, "--version")
    assert versions.stdout == "torchx-pulumi 1.2.0\ntorchx-pulumi-fleet 1.3.0\n"


def test_commands_of_the_core_work_next_to_it(env: dict[str, str]) -> None:
    done = run(env, PROGRAM, "render", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_its_python_api_refuses_another_version_of_the_core(env: dict[str, str]) -> None:
    done = run(env, "from torchx_pulumi_fleet import read_fleet")
    assert done.stderr.splitlines()[-1] == f"ImportError: {SAYS}"


def test_an_archive_is_not_read_by_another_version(env: dict[str, str], tmp_path: Path) -> None:
    program = f"from torchx_pulumi.logs.archives import open_log_archive; open_log_archive('{tmp_path}').find()"
    done = run(env, program)
    said = done.stderr.splitlines()[-1]
    assert said.endswith(f"the archive {tmp_path} is not read: torchx-pulumi-fleet does not work: {SAYS}")
