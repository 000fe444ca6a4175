"""The small image: a static busybox with all its commands. The pod's pause container is made of it as well."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tools.images.errors import ImageError
from tools.images.oci import LAYER, ImageConfig, ImageFolder, files_tar

_FILES: Final = {
    "/etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": b"hosts: files dns\n",
}
_SCRATCH: Final = ("/tmp", "/var/tmp")  # noqa: S108  folders of the image, not of this machine
_PAUSE: Final = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait $!; done"
"""Sleeps for ever, ends at once when told to, and as process 1 of the pod collects what others leave."""


def key() -> str:
    """Return the inputs that determine the images."""
    return f"{_program().stat().st_size} {_FILES} {_PAUSE} {_commands()}"


def build(folder: ImageFolder) -> None:
    """Make the busybox image."""
    _finish(folder, ImageConfig(command=("/bin/sh",)), "busybox:1")


def build_pause(folder: ImageFolder) -> None:
    """Make the pause image."""
    _finish(folder, ImageConfig(entrypoint=("/bin/sh", "-c", _PAUSE), command=()), "pause:1")


def files() -> bytes:
    """Return the tar of the image: busybox and its commands in `/bin`, accounts, scratch folders.

    Raises:
        ImageError: busybox cannot be had on this machine.
    """
    links = {f"/bin/{command}": "busybox" for command in _commands() if command != "busybox"}
    return files_tar({**_FILES, "/bin/busybox": _program()}, folders=_SCRATCH, links=links)


def _finish(folder: ImageFolder, config: ImageConfig, tag: str) -> None:
    layer = folder.put(LAYER, files())
    folder.finish(config, [layer], [layer.digest], tag)


def _program() -> Path:
    from tools.bootstrap import BootstrapError, ensure

    try:
        return Path(ensure(["busybox"])["busybox"], "busybox").resolve()
    except BootstrapError as error:
        raise ImageError(f"busybox cannot be had: {error}") from error


def _commands() -> list[str]:
    done = subprocess.run([_program(), "--list"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise ImageError(f"{_program()} --list failed: {done.stderr.strip()}")
    return done.stdout.split()
