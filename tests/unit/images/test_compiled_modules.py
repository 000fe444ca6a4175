"""Compiled modules of CPython that are older than the source: they are not taken for current."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from .test_content import archive, read_tree


@pytest.mark.parametrize("follows", [True, False])
def test_a_module_that_was_compiled_from_another_content_is_compiled_again(
    workspace: Path, tmp_path: Path, follows: bool
) -> None:
    """Two images on each other, or a volume of compiled modules (PYTHONPYCACHEPREFIX): the sources have one path."""
    said = []
    for content in ("print('one')\n", "print('two')\n"):
        (workspace / "module.py").write_text(content)
        shutil.rmtree(tmp_path / "app", ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(archive(read_tree(str(workspace))))) as tar:
            tar.extractall(tmp_path / "app", filter="data")
        if not follows:
            # What the test is sensitive to: one time for all files.
            os.utime(tmp_path / "app/module.py", (0, 0))
        environment = {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "PYTHONPATH": str(tmp_path / "app")}
        done = subprocess.run(
            [sys.executable, "-c", "import module"], env=environment, capture_output=True, text=True, check=True
        )
        said.append(done.stdout)
    assert list((tmp_path / "compiled").rglob("module.*.pyc"))
    assert said == ["one\n", "two\n" if follows else "one\n"]
