"""A Python without this project's packages, as `python3` of a machine is, gets advice in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("tool", ["bootstrap", "local_cluster", "demo", "site"])
def test_a_python_without_the_packages_is_told_so(tool: str) -> None:
    # -S: without the packages of the environment; -E: without PYTHONPATH.
    words = [sys.executable, "-S", "-E", "-m", f"tools.{tool}"]
    done = subprocess.run(words, cwd=ROOT, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "tools: this Python lacks the package torchx_pulumi; run `make sync`, then use .venv/bin/python\n"
    )
