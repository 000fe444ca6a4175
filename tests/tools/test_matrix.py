from __future__ import annotations

import subprocess
from pathlib import Path

import filelock
import pytest
from torchx_pulumi.model.versions import VERSIONS

from tools import matrix


@pytest.mark.parametrize("words", [["Pyhton"], ["Python 3.10", "Pyhton"]])
def test_a_word_that_no_row_has_is_refused_before_anything_runs(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: pytest.fail("a program was run"))
    assert matrix.main(words) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("matrix: no row has 'Pyhton' in its name; there are:\n  Python 3.10\n")
    assert printed.out == ""


def test_a_row_whose_environment_cannot_be_made_fails_and_leaves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    monkeypatch.setattr(
        matrix,
        "ROWS",
        (
            matrix.Row(name="broken", tests=("tests/none",), pins=("urllib3==no-version",)),
            matrix.Row(name="next"),
        ),
    )
    assert matrix.main([]) == 1
    printed = capsys.readouterr().out
    assert "| broken | `tests/none` |  | failed: `" in printed
    assert "| next |  |  | not run |" in printed
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["pins.txt"]


def test_a_second_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    with filelock.FileLock(tmp_path / "lock"):
        assert matrix.main(["macOS"]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"matrix: another run goes on, and holds {tmp_path / 'lock'}: wait for its end\n"
    assert printed.out == ""
    assert matrix.main(["macOS"]) == 0


def test_a_real_row_has_a_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(matrix, "_call", lambda *words, **_options: called.append(" ".join(words[3:])))
    with matrix._cluster(matrix.Row(name="real", tests=("tests/e2e",))):
        called.append("the tests")
    assert called == ["down --name matrix", "up --name matrix", "the tests", "down --name matrix"]


def test_a_real_row_names_the_versions_of_its_parts() -> None:
    parts = {"Pulumi CLI": "pulumi", "Kubernetes": "kubernetes", "Volcano": "volcano"}
    wanted = [f"{title} {VERSIONS[name].tested}" for title, name in parts.items()]
    assert list(matrix._parts(matrix.Row(name="real"))) == wanted
