"""Find parts that are on the machine already, and say whether they will do.

Nothing is built or downloaded here; what is found is offered as links in the cache, so that putting a part on PATH
does not bring its neighbours along.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import Installed, Part

_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_PLUGIN_FOLDER: Final = re.compile(r"resource-kubernetes-v(\d+\.\d+\.\d+)")
_OWN_MARK: Final = b"torchx-pulumi"
"""In every program that is built from this project's own Go modules; a copy of one is not an installed part."""
_PROBE_TIMEOUT_S: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A part that is on the machine."""

    programs: Mapping[str, Path]
    """Where each of its executables is."""
    version: str
    """As it says itself; empty when it does not."""
    variable: str = ""
    """Environment variable that named its folder. Empty: it was looked for."""

    @property
    def origin(self) -> str:
        """Where it was found, in a few words."""
        first = next(iter(self.programs.values()))
        if self.variable:
            return f"{first}, named by {self.variable}"
        return f"already installed, {self.version + ', ' if self.version else ''}{first}"


class Machine:
    """This machine, as far as installed parts go.

    Args:
        path: The search path for programs.
        pulumi_home: Where Pulumi keeps its plugins.
        cache: The project's cache; what is in it is not an installed part.
        environment: Variables that may name the folder of a part.
    """

    def __init__(self, *, path: str, pulumi_home: Path, cache: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self._pulumi_home = pulumi_home
        self._cache = cache

    def find(self, part: Part) -> Found | None:
        """Return the part as it is installed, or None when it is not, or not in a version that will do.

        Raises:
            BootstrapError: An environment variable names a folder without its executables.
        """
        rule = part.installed
        if rule is None:
            return None
        # What we build may be split up differently from what its makers release.
        first_name, *other_names = (part.official or part).executables
        if named := self._environment.get(rule.variable):
            return _named(rule.variable, Path(named).resolve(), (first_name, *other_names))
        for folder in self._folders(rule):
            first = folder / first_name
            if not _is_program(first) or self._cache.resolve() in first.resolve().parents or is_own_build(first):
                continue
            version = _version(first, rule)
            if not _will_do(version, rule) or (rule.static_only and _is_dynamic(first)):
                continue
            rest = {name: self._program(name, folder) for name in other_names}
            if all(rest.values()):
                programs = {first_name: first, **{name: path for name, path in rest.items() if path}}
                return Found(programs=programs, version=version)
        return None

    def _folders(self, rule: Installed) -> Iterator[Path]:
        for word in self._path.split(os.pathsep):
            if word and Path(word).is_absolute():
                yield Path(word)
        for pattern in rule.folders:
            filled = Path(pattern.format(pulumi_home=self._pulumi_home))
            yield from sorted(filled.parent.glob(filled.name), key=lambda folder: _numbers(folder.name), reverse=True)

    def _program(self, name: str, beside: Path) -> Path | None:
        if _is_program(beside / name):
            return beside / name
        found = shutil.which(name, path=self._path)
        return Path(found) if found else None


def is_own_build(program: Path) -> bool:
    """Tell whether a program was built from one of this project's own Go modules."""
    if program.stat().st_size == 0:
        return False
    with program.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        return whole.find(_OWN_MARK) >= 0


def link(found: Found, part: Part, links: Path) -> Path:
    """Return a folder that holds the part's executables, as links, and nothing else."""
    content = "\0".join(f"{name}\0{path}" for name, path in found.programs.items())
    folder = links / f"{part.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in found.programs.items():
        try:
            (folder / name).symlink_to(program)
        except FileExistsError:
            continue
    return folder


def _named(variable: str, folder: Path, names: Sequence[str]) -> Found:
    programs = {name: folder / name for name in names}
    for name, program in programs.items():
        if not _is_program(program):
            raise BootstrapError(
                f"{variable} names {folder}, which has no executable {name};"
                " next: name a folder that has one, or unset the variable"
            )
    return Found(programs=programs, version="", variable=variable)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(program: Path, rule: Installed) -> str:
    of_folder = _PLUGIN_FOLDER.search(program.parent.name)
    if of_folder:
        return of_folder[1]
    if rule.probe is None:
        return ""
    command: Sequence[str | Path] = [program, *rule.probe]
    environment = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PROBE_TIMEOUT_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(answer.stdout + answer.stderr)
    return found[0] if found and answer.returncode == 0 else ""


def _numbers(text: str) -> tuple[int, ...]:
    found = _VERSION.search(text)
    return tuple(int(word) for word in found.groups() if word is not None) if found else ()


def _will_do(version: str, rule: Installed) -> bool:
    if not version:
        # Asked and not answered is a program that does not work; not asked is one that we take as it is.
        return rule.probe is None
    numbers = _numbers(version)
    return numbers >= rule.at_least and (not rule.below or numbers < rule.below)


def _is_dynamic(program: Path) -> bool:
    """Tell whether an ELF program names a dynamic loader, which stands near the start of the file."""
    with program.open("rb") as content:
        head = content.read(4096)
    return b"/ld-" in head
