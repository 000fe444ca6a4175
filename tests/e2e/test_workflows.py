"""The workflows here, and the one for users, are valid: expressions, contexts, permissions, inputs of known actions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.bootstrap import ensure

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e


def test_workflows_are_valid() -> None:
    program = ensure(["actionlint"])["actionlint"] / "actionlint"
    files = [*sorted((ROOT / ".github/workflows").iterdir()), ROOT / "examples/ci/github-workflow.yaml"]
    # What this machine has of other checkers makes no difference.
    words = [program, "-no-color", "-shellcheck=", "-pyflakes=", *files]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
