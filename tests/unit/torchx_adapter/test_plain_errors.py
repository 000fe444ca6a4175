"""What the command `torchx` prints of our errors, and what other programs print."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.torchx_adapter import plain_errors
from torchx_pulumi.torchx_adapter.plain_errors import show_plainly


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(plain_errors, "_shown_of_threads", [])


def end_with(error: Exception) -> None:
    """Do what an interpreter does with an error that nobody caught."""
    with pytest.raises(type(error)) as caught:
        raise error
    sys.excepthook(type(error), error, caught.tb)


@pytest.mark.parametrize(("program", "lines"), [("/somewhere/bin/torchx", 1), ("train.py", 2)])
def test_only_the_command_hides_the_traceback(
    program: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    show_plainly()
    end_with(ClusterError("it cannot be reached"))
    said = capsys.readouterr().err
    assert "it cannot be reached" in said
    assert ("Traceback" in said) is (lines > 1)


def test_errors_of_others_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchx"])
    show_plainly()
    end_with(KeyError("theirs"))
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("program", "silent"), [("torchx", True), ("train.py", False)])
def test_an_interrupt_ends_the_command_by_sigint_and_without_traceback(
    program: str, silent: bool, tmp_path: Path
) -> None:
    script = tmp_path / program
    script.write_text(
        "from torchx_pulumi.torchx_adapter.plain_errors import show_plainly\nshow_plainly()\nraise KeyboardInterrupt\n"
    )
    done = subprocess.run([sys.executable, str(script)], text=True, capture_output=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert (done.stderr == "") is silent


@pytest.mark.parametrize("error", [ClusterError("it cannot be reached"), KeyError("theirs")])
def test_what_all_threads_fail_for_is_said_once(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchx"])
    show_plainly()

    def fail() -> None:
        raise error

    for _ in range(3):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    said = capsys.readouterr().err
    assert said == "torchx: it cannot be reached\n" or said.count("KeyError: 'theirs'") == 3


def test_an_error_of_a_thread_that_is_raised_again_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchx"])
    show_plainly()
    error = ClusterError("the app has no pods")

    def fail() -> None:
        raise error

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    end_with(error)
    assert capsys.readouterr().err == "torchx: the app has no pods\n"
