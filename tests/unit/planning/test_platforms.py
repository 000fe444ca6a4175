"""On Windows the command and the schedulers say that it is not supported, without a traceback (simulated: no fcntl)."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_FCNTL = "import sys; sys.modules['fcntl'] = None; "

COMMAND = "from torchx_pulumi_stacks.console import main; sys.exit(main([{words}]))"

SCHEDULER = (
    "sys.argv = ['torchx']; import torchx_pulumi_stacks.entrypoints as ours; "
    "sys.modules['fcntl'] = None; ours.create_volcano('session')"
)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (WITHOUT_FCNTL + COMMAND.format(words="'delete', 'pulumi_volcano://torchx/default:a'"), 2),
        (WITHOUT_FCNTL + COMMAND.format(words="'fleet'"), 2),
        ("import sys; " + SCHEDULER, 1),
    ],
)
def test_f9_windows_is_refused_in_one_message(program: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Windows is not supported" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_f9_the_entry_points_can_be_imported_on_windows() -> None:
    program = WITHOUT_FCNTL + "import torchx_pulumi, torchx_pulumi_stacks.console"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
