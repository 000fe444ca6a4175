"""The packages of the controller's image: installed once for the same versions, without traces of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi_stacks import controller_image
from torchx_pulumi_stacks.controller_config import ControllerConfig
from torchx_pulumi_stacks.controller_image import installed_dependencies

CONFIG = ControllerConfig(
    backends=["gs://state"],
    base_image="python:3.12-slim",
    image_repo="app",
    python_version="3.12",
    platform="linux/arm64",
)


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Put a program in the place of pip, which writes a package, and ends with a code; return what it is asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def place(code: int = 0, said: str = "") -> list[list[str]]:
        asked: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            asked.append(command)
            pins = Path(command[command.index("--constraint") + 1]).read_text()
            assert "pytest==" in pins
            assert "torchx-pulumi==" not in pins
            tree = Path(command[command.index("--target") + 1])
            for name in (
                "bin/uvicorn",
                "uvicorn/main.py",
                "uvicorn-1.dist-info/RECORD",
                "uvicorn-1.dist-info/METADATA",
            ):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).write_text("x")
            return subprocess.CompletedProcess(command, code, "", said)

        monkeypatch.setattr(controller_image.subprocess, "run", run)
        return asked

    return place


def test_pip_runs_once_for_the_same_versions_and_leaves_no_traces(installs: Callable[..., list[list[str]]]) -> None:
    asked = installs()
    folder = installed_dependencies(CONFIG)
    assert installed_dependencies(CONFIG) == folder
    assert len(asked) == 1
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == ["uvicorn-1.dist-info/METADATA", "uvicorn/main.py"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    (command,) = asked
    assert command[command.index("--python-version") + 1] == "3.12"
    assert {"manylinux_2_28_aarch64", "manylinux2014_aarch64", "gcsfs"} <= {*command}
    assert not [word for word in command if "x86_64" in word or word.startswith("pulumi")]
    assert installed_dependencies(replace(CONFIG, python_version="3.11")) != folder


def test_what_pip_says_is_in_the_error_and_nothing_is_kept(
    installs: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    installs(1, "ERROR: No matching distribution found for psutil>=5.9")
    with pytest.raises(ImageError, match=r"controller\.pythonVersion(.|\n)*No matching distribution found for psutil"):
        installed_dependencies(CONFIG)
    assert not [*(tmp_path / "torchx-pulumi" / "controller").iterdir()]


def test_without_pip_the_error_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(controller_image.sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(ImageError, match="cannot be installed: "):
        installed_dependencies(CONFIG)
