"""Make a virtual environment with pinned packages and this project in it. Standard library only."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = "uv==0.13.8"


def sync(folder: Path, requirements: Path) -> None:
    """Bring `folder` to exactly what `requirements` pins, with both packages of this project editable in it.

    Raises:
        SystemExit: The environment cannot be made, or a package cannot be had.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        try:
            venv.create(folder, with_pip=True, clear=folder.exists())
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"sync: {error}\nsync: this Python cannot make environments; on Debian: apt-get install python3-venv"
            ) from None
    environment = os.environ | {"VIRTUAL_ENV": str(folder.resolve()), "UV_NO_PROGRESS": "1"}
    steps = [
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV],
        [str(folder / "bin" / "uv"), "pip", "install", "--quiet", UV, "-r", str(requirements)],
        [
            str(folder / "bin" / "uv"),
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "-e",
            str(ROOT),
            "-e",
            str(ROOT / "fleet"),
        ],
    ]
    for step in steps:
        code = subprocess.run(step, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            raise SystemExit(f"sync: `{' '.join(step)}` exited with {code}; see above, fix it, and run the same again")
    compile_bytecode(folder)


def compile_bytecode(folder: Path) -> None:
    """Compile the packages of an environment that have no current bytecode, as pip does when it installs them.

    uv compiles only what it installs at that moment. Sources for other Python versions, which packages bring, cannot be
    compiled and stay as they are, as with pip.
    """
    words = [str(folder / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0", str(folder / "lib")]
    subprocess.run(words, stdin=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sync(Path(sys.argv[1]), Path(sys.argv[2]))
