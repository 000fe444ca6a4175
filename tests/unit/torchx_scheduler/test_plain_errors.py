"""What the command `torchx` prints of our errors, and what other programs print."""

from __future__ import annotations

import sys

import pytest
from torchx_pulumi.errors import ClusterError
from torchx_pulumi.torchx_scheduler.plain_errors import show_plainly


@pytest.mark.parametrize(("program", "lines"), [("/somewhere/bin/torchx", 1), ("train.py", 2)])
def test_only_the_command_hides_the_traceback(
    program: str, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    show_plainly()
    try:
        raise ClusterError("it cannot be reached")
    except ClusterError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert "it cannot be reached" in said
    assert ("Traceback" in said) is (lines > 1)


def test_errors_of_others_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["torchx"])
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    show_plainly()
    try:
        raise KeyError("theirs")
    except KeyError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    assert "Traceback" in capsys.readouterr().err
