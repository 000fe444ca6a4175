"""Get programs out of Debian packages without installing them.

The packages are unpacked into a folder of the cache: no root needed, nothing on the system changes, and no service
that a package would start is started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.part import DebianLink, DebianSource, Part
from tools.bootstrap.running import run

_FILE_NAME: Final = re.compile(r"^'[^']+' (?P<name>[^_ ]+)_(?P<version>[^_ ]+)_[^_ ]+\.deb ", re.MULTILINE)


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
        self._options = ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root", "-o", "Dpkg::Use-Pty=0"]
        self._updated = False

    def unpack(self, part: Part, source: DebianSource, folder: Path, tick: Callable[[], None]) -> None:
        """Unpack the part's packages, and what they need and the machine lacks, into `folder/root`; link `folder/bin`.

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
        # Without a list of what is installed, apt names all that the packages need.
        installed = ["-o", "Dir::State::status=/dev/null"] if source.self_contained else []
        words = ["install", "--reinstall", "--no-install-recommends", "--print-uris", "--yes"]
        wanted = parse_packages(
            self._apt(
                [*installed, *words, *source.packages],
                what=f"looking for the Debian packages of {part.name}",
                tick=tick,
            )
        )
        if not wanted:
            raise BootstrapError(
                f"{part.name}: apt-get names no file for {' '.join(source.packages)}; next: apt-get update"
            )
        what = f"downloading the Debian packages of {part.name}"
        self._apt(["download", "--quiet", *wanted], what=what, folder=archives, tick=tick)

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
    """Turn `{root}/a/*-b` into `$root/a/x-b`; what stands outside the tree stays."""
    marker = "{root}/"
    if "*" not in value:
        return value.replace("{root}", "$root")
    return f"$root/{_only(value.removeprefix(marker), root)}"


def _only(pattern: str, root: Path) -> str:
    found = sorted(root.glob(pattern))
    if not found:
        raise BootstrapError(
            f"the unpacked packages hold no {pattern}; next: report this, with the name of the distribution"
        )
    return str(found[0].relative_to(root))
