"""Get programs out of Debian packages without installing them.

The packages are unpacked into a folder of the cache: no root needed, nothing on the system changes, and no service
that a package would start is started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import DebianLink, DebianSource, Part
from tools.bootstrap.running import run

ESSENTIAL: Final = "?essential"
"""What every machine with apt has, as a pattern of apt: the packages that cannot be removed, apt, and what they need,
with the C library and its loader. Nothing else that is installed counts: it may be another version, or a part of it."""

_FILE_NAME: Final = re.compile(r"^'[^']+' (?P<name>[^_ ]+)_(?P<version>[^_ ]+)_[^_ ]+\.deb ", re.MULTILINE)

_INSTALLED: Final = "Package: {name}\nStatus: install ok installed\nArchitecture: all\nVersion: 9999\n\n"


def parse_packages(printed: str) -> list[str]:
    """Return `name=version` of every package in what `apt-get --print-uris` printed.

    >>> parse_packages("'http://x/b.deb' busybox-static_1%3a1.35.0-4_amd64.deb 12 MD5Sum:0")
    ['busybox-static=1:1.35.0-4']
    """
    return [f"{found['name']}={unquote(found['version'])}" for found in _FILE_NAME.finditer(printed)]


class DebianPackages:
    """The machine's own Debian mirror, with package lists of our own where the system's are missing or too old."""

    def __init__(self, lists: Path) -> None:
        self._lists = lists
        # A cache file that goes with another list of installed packages is of no use to the machine's own apt.
        self._options = ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "-o", "Dpkg::Use-Pty=0"]
        self._options += ["-o", "Dir::Cache::pkgcache="]
        self._essential: list[str] = []
        self._updated = False

    def unpack(self, part: Part, source: DebianSource, folder: Path, tick: Callable[[], None]) -> None:
        """Unpack the part's packages, and what they need beyond `ESSENTIAL`, into `folder/root`; link `folder/bin`.

        Raises:
            BootstrapError: This is no Debian, or a package cannot be downloaded.
        """
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise BootstrapError(
                f"{part.name}: not on PATH, and only Debian and its kin offer it as a package;"
                f" next: install {', '.join(part.executables)} and put it on PATH"
            )
        archives, root = folder / "archives", folder / "root"
        archives.mkdir()
        self._download(part, source, archives, tick)
        for archive in sorted(archives.glob("*.deb")):
            run(
                ["dpkg-deb", "--extract", archive, root],
                what=f"unpacking {archive.name}",
                next_step="next: see that the disk is not full, then run the same again",
            )
        shutil.rmtree(archives)
        (folder / "bin").mkdir()
        for link in source.links:
            link_program(link, folder)

    def _download(self, part: Part, source: DebianSource, archives: Path, tick: Callable[[], None]) -> None:
        try:
            self._try_download(part, source, archives, tick)
        except BootstrapError:
            # Most often the system's lists are missing or name files that the mirror has replaced since.
            if self._updated:
                raise
            self._update(tick)
            self._try_download(part, source, archives, tick)

    def _try_download(self, part: Part, source: DebianSource, archives: Path, tick: Callable[[], None]) -> None:
        # In place of the list of what is installed: nothing, or what no program of the part uses.
        status = archives / "status"
        status.write_text("".join(_INSTALLED.format(name=name) for name in source.unused))
        options = ["-o", f"Dir::State::status={status}"]
        needed = self._needed(options, source.packages, f"looking for the Debian packages of {part.name}", tick)
        if not needed:
            raise BootstrapError(
                f"{part.name}: apt-get names no file for {' '.join(source.packages)}; next: apt-get update"
            )
        if not source.self_contained:
            if not self._essential:
                self._essential = self._needed(options, [ESSENTIAL], "looking for the essential packages", tick)
            needed = [package for package in needed if package not in self._essential]
        what = f"downloading the Debian packages of {part.name}"
        self._apt([*options, "download", "--quiet", *needed], what=what, folder=archives, tick=tick)

    def _needed(
        self, options: Sequence[str], packages: Sequence[str], what: str, tick: Callable[[], None]
    ) -> list[str]:
        words = ["install", "--no-install-recommends", "--print-uris", "--yes"]
        return parse_packages(self._apt([*options, *words, *packages], what=what, tick=tick))

    def _update(self, tick: Callable[[], None]) -> None:
        (self._lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self._lists / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        self._options += [
            "-o",
            f"Dir::State::Lists={self._lists / 'lists'}",
            "-o",
            f"Dir::Cache={self._lists / 'cache'}",
        ]
        self._apt(["update"], what="updating the Debian package lists", tick=tick)
        self._essential = []
        self._updated = True

    def _apt(self, words: list[str], *, what: str, tick: Callable[[], None], folder: Path | None = None) -> str:
        return run(
            ["apt-get", *self._options, *words],
            what=what,
            next_step="next: see that the mirrors in /etc/apt can be reached, or install the programs yourself",
            environment=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            folder=folder,
            tick=tick,
        )


def link_program(link: DebianLink, folder: Path) -> None:
    """Offer a program of `folder/root` in `folder/bin`, in a way that still works when the folder is renamed."""
    root, offered = folder / "root", folder / "bin" / link.executable
    program = _only(link.path, root)
    if not link.variables:
        offered.symlink_to(Path("..") / "root" / program)
        return
    exports = [f'export {name}="{_resolved(value, root)}"' for name, value in link.variables]
    command = " ".join([f'exec "$root/{program}"', *link.arguments, '"$@"'])
    offered.write_text("\n".join(["#!/bin/sh", 'root=$(dirname "$(readlink -f "$0")")/../root', *exports, command, ""]))
    offered.chmod(0o755)


def _resolved(value: str, root: Path) -> str:
    """Turn each `{root}/a/*-b` in a list of folders into `$root/a/x-b`, if it is there; what is elsewhere stays."""
    marker = "{root}/"
    folders: list[str] = []
    for folder in value.split(":"):
        if folder.startswith(marker):
            found = sorted(root.glob(folder.removeprefix(marker)))
            folders += [f"$root/{path.relative_to(root)}" for path in found]
        else:
            folders.append(folder)
    if not folders:
        raise _nothing_at(value)
    return ":".join(folders)


def _only(pattern: str, root: Path) -> str:
    found = sorted(root.glob(pattern))
    if not found:
        raise _nothing_at(pattern)
    return str(found[0].relative_to(root))


def _nothing_at(pattern: str) -> BootstrapError:
    return BootstrapError(
        f"the unpacked packages hold no {pattern}; next: report this, with the name of the distribution"
    )
