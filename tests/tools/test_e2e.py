"""The run of all real tests: groups stay on one worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.e2e import Suite, run_suite

ENV = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Half the time of a pytest that runs next to nothing is that of plugins which it does not use."""

GROUPED = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_grouped(number):
    pass
"""


def test_a_group_of_tests_runs_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    words = ["-n", "2", "--dist", "loadgroup", "-v", "--rootdir", str(tmp_path)]
    words += ["-p", "xdist", "-p", "no:cacheprovider"]
    words += ["--basetemp", str(tmp_path / "own")]  # else the old folders of the machine are removed
    command = [sys.executable, "-m", "pytest", *words, str(tmp_path / "test_grouped.py")]
    done = subprocess.run(command, cwd=tmp_path, env=ENV, check=False, capture_output=True, text=True)
    workers = re.findall(r"\[(gw\d)\].* PASSED .*@one", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(workers) == 6, done.stdout
    assert len(set(workers)) == 1


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("@pytest.mark.e2e @pytest.mark.extended", "run them with `make e2e ARGS='--extended {}'`"),
        ("", "there is no real test of these names"),
    ],
)
def test_named_tests_of_which_none_is_chosen_are_explained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], marks: str, expected: str
) -> None:
    file = tmp_path / "test_named.py"
    file.write_text("\n".join(["import pytest", *marks.split(), "def test_one(): pass", ""]))
    words = (str(file), "-p", "xdist", "-n", "0", "-p", "no:cacheprovider")
    suite = Suite(name="a test", python=Path(sys.executable), words=words, marks="e2e and not extended")
    assert run_suite(suite, ENV) == 5
    assert expected.format(" ".join(words)) in capfd.readouterr().out
