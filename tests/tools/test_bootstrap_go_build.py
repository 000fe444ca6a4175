from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.go_build import go_environment
from tools.bootstrap.go_toolchain import found_version, wanted_version
from tools.bootstrap.running import run


def test_settings_of_the_machine_do_not_change_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = go_environment()
    for name, value in {
        "GOFLAGS": "-mod=vendor -tags=x",
        "GOOS": "plan9",
        "GOARCH": "mips",
        "GOAMD64": "v4",
        "GOEXPERIMENT": "x",
        "GOWORK": "/elsewhere/go.work",
        "CGO_ENABLED": "1",
        "GOTOOLCHAIN": "go1.99",
    }.items():
        monkeypatch.setenv(name, value)
    assert go_environment() == plain


def test_where_modules_come_from_is_the_machines_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "https://modules.example")
    assert go_environment()["GOPROXY"] == "https://modules.example"


@pytest.mark.parametrize(
    ("says", "version"),
    [("go version go1.26.8 linux/amd64", (1, 26, 8)), ("go version devel +abc linux/amd64", ()), ("", ())],
)
def test_the_version_of_a_go_command(tmp_path: Path, says: str, version: tuple[int, ...]) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{says}'\n")
    go.chmod(0o755)
    assert found_version(go) == version


def test_the_version_that_a_module_wants(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("// go 1.2\nmodule example.com/m\n\ngo 1.25.11\n")
    assert wanted_version(tmp_path) == (1, 25, 11)
    (tmp_path / "go.mod").write_text("module example.com/m\n")
    with pytest.raises(BootstrapError, match="has no `go` line"):
        wanted_version(tmp_path)


def test_a_failed_program_shows_its_last_lines_and_the_next_step() -> None:
    script = "for i in range(40): print('line', i)\nraise SystemExit(3)"
    with pytest.raises(BootstrapError) as caught:
        run([sys.executable, "-c", script], what="building kwok", next_step="next: try again")
    text = str(caught.value)
    assert text.startswith("building kwok: `")
    assert "ended with 3" in text
    assert "line 39" in text
    assert "line 27" not in text
    assert text.endswith("next: try again")


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(BootstrapError, match="cannot run no-such-program: No such file or directory; next: get it"):
        run(["no-such-program"], what="x", next_step="next: get it")


def test_an_interrupt_ends_the_program_and_what_it_started(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path / 'child'}; wait"

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", script], what="x", next_step="x", tick=interrupt)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not is_running(child):
            break
        time.sleep(0.05)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        # A dead process that nobody asked about yet still has a number.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
