"""The components with the oldest and the newest supported version of Pulumi's SDK, each in an environment of its own.

It fetches packages and takes some minutes: `TORCHX_PULUMI_INSTALLS=all`, as in `make e2e-extended`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from torchx_pulumi.model.versions import TESTED_SDK, read_version, version_text

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = TESTED_SDK
TESTS = [
    *("tests/components", "tests/third_scheduler"),
    *(f"tests/unit/stacks/test_{name}.py" for name in ("config", "controller_config", "platform_config")),
]
"""What runs programs, and reads their configuration."""

installs = pytest.mark.skipif(
    "TORCHX_PULUMI_INSTALLS" not in os.environ, reason="TORCHX_PULUMI_INSTALLS=all fetches packages"
)


def run(*words: str | Path, **variables: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHONPATH"))}
    done = subprocess.run(words, cwd=ROOT, env={**env, **variables}, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-20000:]}{done.stderr[-5000:]}"
    return done.stdout


def test_the_package_asks_for_the_tested_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = [each for each in project["dependencies"] if re.match(r"pulumi\b(?!-)", each)]
    assert wanted == f"pulumi>={version_text(OLDEST)},<{NEWEST[0]}.{NEWEST[1] + 1}"


@installs
def test_the_newest_release_is_a_tested_one() -> None:
    """If it is not: raise `TESTED_SDK` and pyproject.toml, and run the other test of this page."""
    said = run(sys.executable, "-m", "pip", "index", "versions", "pulumi")
    assert read_version(said.partition("Available versions:")[2]) == NEWEST, said[:80]


@installs
@pytest.mark.parametrize("version", TESTED_SDK, ids=version_text)
def test_programs_run_with_the_oldest_and_the_newest_version(version: tuple[int, int], tmp_path: Path) -> None:
    uv, venv, pins = Path(sys.executable).with_name("uv"), tmp_path / "venv", tmp_path / "pins.txt"
    # The oldest release of the oldest minor version, and the newest of the newest.
    rule = f"pulumi=={version_text(version)}.{'0' if version == OLDEST else '*'}"
    pins.write_text(
        re.sub(r"(?m)^pulumi==\S+", rule, (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")),
        encoding="utf-8",
    )
    run(uv, "venv", "--python", sys.executable, venv)
    for what in (["-r", pins], ["--no-deps", "-e", ROOT]):
        run(uv, "pip", "install", *what, VIRTUAL_ENV=str(venv))
    python = venv / "bin" / "python"
    assert read_version(run(python, "-c", "import importlib.metadata as m; print(m.version('pulumi'))")) == version
    run(python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *TESTS)
