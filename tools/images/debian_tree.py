"""Debian packages as the root of an image: installed by debootstrap, from the archive of this machine's apt; packed."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from tools.images.errors import ImageError

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


LEFT_OUT_OF_ANY: Final = (
    # Made at start or by the container runtime.
    *("dev/*", "proc/*", "run/*", "sys/*", "tmp/*"),
    # Of the installation.
    *("var/cache/*/*", "var/lib/apt/lists/*", "var/log/*", "var/lib/dpkg/*-old"),
    # For people.
    *(f"usr/share/{kind}/*" for kind in ("doc", "man", "locale", "info", "lintian", "mime", "icons", "fonts", "X11")),
)
"""Paths of an installed tree that no image needs."""


def install_tree(folder: Path, release: str, packages: Iterable[str]) -> None:
    """Make `folder` the root of a small Debian with `packages`.

    Args:
        folder: must not exist.
        release: code name of the Debian release.
        packages: what to install beside the smallest system.

    Raises:
        ImageError: not root, no Debian archive known, or debootstrap failed.
    """
    if os.geteuid() != 0:
        raise ImageError("images from Debian packages need root: run as root, or have the image in the cache already")
    from tools.bootstrap import BootstrapError, ensure

    try:
        program = ensure(["debootstrap"])["debootstrap"] / "debootstrap"
    except BootstrapError as error:
        raise ImageError(f"debootstrap cannot be had: {error}") from error
    log = folder.with_suffix(".log")
    command = [program, "--variant=minbase", f"--include={','.join(packages)}", release, folder, archive()]
    with log.open("wb") as output:
        done = subprocess.run(
            # In a mount namespace of its own: what it mounts is gone with it, even if it is killed.
            ["unshare", "--mount", *map(str, command)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            umask=0o022,
        )
    text = log.read_text("utf-8", errors="replace")
    log.unlink()
    if done.returncode:
        raise ImageError(f"debootstrap of {release} failed; end of its output:\n{text[-2000:]}")


def archive() -> str:
    """Return the address of the Debian archive in apt's sources.

    Raises:
        ImageError: there is none.
    """
    hint = "needs a Debian machine whose package lists are there (apt-get update)"
    if shutil.which("apt-get") is None:
        raise ImageError(f"there is no apt-get: an image from Debian packages {hint}")
    done = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(SITE)"],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    for line in done.stdout.splitlines():
        origin, label, site = line.split("|", 2)
        if (origin, label) == ("Debian", "Debian"):
            return site
    raise ImageError(f"apt knows no Debian archive: an image from Debian packages {hint}")


def pack(tree: Path, left_out: Iterable[str], file: IO[bytes]) -> None:
    """Write the tree as a tar without the paths that match a pattern of `left_out`.

    Not compressed: on loopback that only costs time.
    """
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _kept(tree, left_out):
            tar.add(tree / path, arcname=path, recursive=False)
        python = tarfile.TarInfo("usr/bin/python")
        python.type, python.linkname, python.mode = tarfile.SYMTYPE, "python3", 0o777
        tar.addfile(python)


def _kept(tree: Path, left_out: Iterable[str]) -> Iterator[str]:
    without = re.compile("|".join(fnmatch.translate(pattern) for pattern in left_out))
    for folder, folders, files in os.walk(tree):
        here = Path(folder)
        for name in sorted((*folders, *files)):
            path = (here / name).relative_to(tree).as_posix()
            if not without.match(path):
                yield path
            elif name in folders:
                folders.remove(name)  # nor is anything below it looked at


def _environment() -> dict[str, str]:
    """Return the environment of the installation: nothing of the caller's Python or locale, but its proxies."""
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return {**kept, "PATH": _PATH, "HOME": "/", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
