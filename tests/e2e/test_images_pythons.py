"""The bytes of a layer are the same on every Python and with every zlib."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
MINORS = range(10, 14)
PROGRAM = """
import sys
if sys.argv[2] == "zlib-ng":
    from zlib_ng import zlib_ng
    sys.modules["zlib"] = zlib_ng
import hashlib, os
from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.images.content.archive import Member
from torchx_pulumi.images.layers.layer import make_layer
entries = hash_files(read_tree(sys.argv[1]).entries)
layer = make_layer([Member("app/" + entry.path, entry) for entry in entries], "COPY")
content = hashlib.sha256()
for piece in layer.read():
    content.update(piece)
assert layer.digest == "sha256:" + content.hexdigest()
print(layer.digest, layer.size, layer.diff_id)
"""


def pythons() -> dict[str, str]:
    """Return the Pythons of this machine by their versions."""
    found = {}
    for minor in MINORS:
        name = f"python3.{minor}"
        places = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions").glob(
            f"3.{minor}.*/bin/{name}"
        )
        for program in (shutil.which(name), *map(str, places)):
            # A shim of pyenv exists for versions that are not chosen, too.
            if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
                found[name] = program
    return found


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    for name in ("train.py", "pkg/ünïcödé.py", f"{'deep/' * 30}long.py", "empty"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n" * 20_000 if name != "empty" else "")
    (folder / "train.py").chmod(0o700)
    (folder / "link").symlink_to("pkg/" + "x" * 120)
    return folder


def digests(python: str, workspace: Path, tmp_path: Path, library: str = "") -> str:
    paths = [str(ROOT / "sdk"), str(tmp_path / "packages"), sysconfig.get_path("purelib")]
    cache = tmp_path / f"cache-{Path(python).name}-{library}"
    done = subprocess.run(
        [python, "-c", PROGRAM, str(workspace), library],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(cache)},
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{python}: {done.stderr}"
    return done.stdout


def test_every_python_makes_the_same_layer(workspace: Path, tmp_path: Path) -> None:
    ours = digests(sys.executable, workspace, tmp_path)
    others = pythons()
    if set(others.values()) <= {sys.executable}:
        pytest.skip("there is no other Python on this machine")
    assert {name: digests(python, workspace, tmp_path) for name, python in others.items()} == dict.fromkeys(
        others, ours
    )


@pytest.mark.extended
def test_zlib_ng_makes_the_same_layer(workspace: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path / "packages"), "zlib-ng"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"zlib-ng cannot be installed: {done.stderr[-200:]}")
    assert digests(sys.executable, workspace, tmp_path, "zlib-ng") == digests(sys.executable, workspace, tmp_path)
