"""The run of all real tests: groups stay on one worker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GROUPED = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_grouped(number):
    pass
"""


def test_a_group_of_tests_runs_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    words = ["-n", "2", "--dist", "loadgroup", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *words, str(tmp_path / "test_grouped.py")]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    workers = re.findall(r"\[(gw\d)\].* PASSED .*@one", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(workers) == 6, done.stdout
    assert len(set(workers)) == 1
