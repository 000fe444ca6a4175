"""The demo, as far as it needs no cluster: one at a time, and clear words when it cannot begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.demo.__main__ import main
from tools.demo.running import alone


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return tmp_path


def test_a_second_demo_is_told_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    with alone():
        assert main([]) == 1
    assert capsys.readouterr().err == "demo: error: another demo of yours is running; wait for its end\n"
    with alone():
        pass


def test_an_unknown_cluster_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--cluster", "elsewhere"])
    assert caught.value.code == 2
    assert "'local', 'current'" in capsys.readouterr().err
