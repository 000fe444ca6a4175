"""Environments have bytecode, as those that pip makes."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

from tools.sync import compile_bytecode

ROOT = Path(__file__).resolve().parents[2]


def test_packages_are_compiled_and_sources_for_other_versions_stay_as_they_are(tmp_path: Path) -> None:
    venv.create(tmp_path)
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    (packages / "package.py").write_text("value = 1\n")
    (packages / "other_version.py").write_text("print 'no'\n")
    compile_bytecode(tmp_path)
    assert [path.name.partition(".")[0] for path in packages.glob("__pycache__/*.pyc")] == ["package"]


def test_make_lets_python_keep_bytecode(tmp_path: Path) -> None:
    probe = tmp_path / "Makefile"
    probe.write_text(f"include {ROOT}/Makefile\nprobe:\n\t@echo $${{PYTHONDONTWRITEBYTECODE-unset}}\n")
    done = subprocess.run(
        ["make", "-sf", str(probe), "probe"], cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "unset\n"
