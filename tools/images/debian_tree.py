"""Installs Debian packages into a folder with debootstrap, from the archive that this machine's apt uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.images.errors import ImageError

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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


def _environment() -> dict[str, str]:
    """Return what the installation may see: nothing of the caller's Python or locale, but its proxies."""
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return {**kept, "PATH": _PATH, "HOME": "/", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
