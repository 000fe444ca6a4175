"""The unit test of a program that docs/testing.md shows, as pytest runs it for a user."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.doc_blocks import ROOT, block, commands


def test_the_program_and_its_test_run_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(block("docs/testing.md", "program"))
    (tmp_path / "test_train.py").write_text(block("docs/testing.md", "test"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("sdk", "components"))}
    _, line = commands("docs/testing.md", "first")
    words = [sys.executable, "-m", *shlex.split(line), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
