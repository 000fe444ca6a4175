"""The image for programs in Python: Debian's interpreter and standard library over busybox."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.images import busybox
from tools.images.debian_tree import LEFT_OUT_OF_ANY, pack
from tools.images.errors import ImageError
from tools.images.oci import LAYER, ImageConfig, ImageFolder

LEFT_OUT: Final = (
    *LEFT_OUT_OF_ANY,
    # What the packages need to be installed.
    *("bin/tar", "etc/dpkg/*", "usr/bin/dpkg*", "usr/sbin/*", "usr/lib/dpkg/*", "usr/share/dpkg/*", "var/lib/dpkg/*"),
    # Character sets that Python reads by itself, and dialogs.
    *("usr/lib/*-linux-gnu/gconv/*", "usr/lib/python3*/idlelib/*", "usr/lib/python3*/pydoc_data/*"),
)
"""Paths of the unpacked tree that the image does without."""


def key() -> str:
    """Return the inputs that determine the image."""
    return f"{busybox.key()} {_root().parent.name} {LEFT_OUT}"


def build(folder: ImageFolder) -> None:
    """Make the Python image.

    Raises:
        ImageError: its packages cannot be had on this machine.
    """
    base = folder.put(LAYER, busybox.files())
    layer = folder.adopt(LAYER, content=lambda file: pack(_root(), LEFT_OUT, file))
    folder.finish(ImageConfig(command=("/usr/bin/python3",)), [base, layer], [base.digest, layer.digest], "python:3")


def _root() -> Path:
    from tools.bootstrap import BootstrapError, ensure

    try:
        return ensure(["python-root"])["python-root"].parent / "root"
    except BootstrapError as error:
        raise ImageError(f"Python cannot be had as Debian packages: {error}") from error
