"""The image that trains: PyTorch for CPU with gloo, `torchrun`, Python and bash, from Debian's own packages."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tools.images.debian_tree import install_tree
from tools.images.errors import ImageError
from tools.images.oci import LAYER, ImageConfig, ImageFolder
from tools.images.progress import telling

RELEASE: Final = "bookworm"
PACKAGES: Final = ("python3-torch", "python3-setuptools")
EXPECTED_S: Final = 120

LEFT_OUT: Final = (
    # Made at start or by the container runtime.
    *("dev/*", "proc/*", "run/*", "sys/*", "tmp/*"),
    # Of the installation.
    *("var/cache/*/*", "var/lib/apt/lists/*", "var/log/*", "var/lib/dpkg/*-old"),
    # For people and screens.
    *(f"usr/share/{kind}/*" for kind in ("doc", "man", "locale", "info", "lintian", "mime", "icons", "fonts", "X11")),
    *(f"usr/share/{kind}/*" for kind in ("proj", "gdal", "gdcm-3.0", "libwacom", "iso-codes", "tesseract-ocr")),
    # Graphics drivers and what only they load.
    *(f"usr/lib/*-linux-gnu/{kind}" for kind in ("dri/*", "mfx/*", "libLLVM*", "libmfxhw64*", "libz3*")),
    # Tests of packages.
    *("usr/lib/python3/dist-packages/*/tests/*", "usr/lib/python3/dist-packages/sympy/integrals/rubi/*"),
    *("usr/lib/python3/dist-packages/torch/bin/test_*", "usr/lib/python3/dist-packages/torch/test/*"),
    "usr/lib/libtorch-test/*",
    # Many small files, which cost time on every pull.
    *("var/lib/dpkg/info/*", "usr/share/zoneinfo/*/*"),
)
"""Paths of the installed tree that the image does without."""

_API: Final = "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
_BROKEN: Final = re.compile(r"^( +)for s in Std:\n +if s == v:\n +return s\n", re.MULTILINE)


def key() -> str:
    """Return what determines the image."""
    return f"{RELEASE} {PACKAGES} {LEFT_OUT} {_BROKEN.pattern}"


def build(folder: ImageFolder) -> None:
    """Make the PyTorch image.

    Raises:
        ImageError: it cannot be made on this machine.
    """
    tree = folder.folder / "tree"
    with telling("pytorch: installing Debian packages", EXPECTED_S):
        install_tree(tree, RELEASE, PACKAGES)
    mend(tree)
    with telling("pytorch: packing", 10):
        layer = folder.adopt(LAYER, content=lambda file: pack(tree, file))
        shutil.rmtree(tree)
    folder.finish(ImageConfig(command=("/bin/bash",)), [layer], [layer.digest], "pytorch:1.13")


def mend(tree: Path) -> None:
    """Make `torchrun --redirects` and `--tee` work on Python 3.11.

    PyTorch 1.13 looks for a flag by iterating over an IntFlag, which since 3.11 leaves out 0 and combinations.

    Raises:
        ImageError: the place is not there.
    """
    file = tree / _API
    text, count = _BROKEN.subn(r"\1return Std(v)\n", file.read_text("utf-8"))
    if count != 1:
        raise ImageError(f"{_API}: not as in PyTorch 1.13, so it was not mended: adapt tools/images/pytorch.py")
    file.write_text(text, "utf-8")
    for compiled in (file.parent / "__pycache__").glob("api.*.pyc"):
        compiled.unlink()


def pack(tree: Path, file: IO[bytes]) -> None:
    """Write the tree as a tar without what is left out. Not compressed: on loopback that only costs time."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in _kept(tree):
            tar.add(tree / path, arcname=path, recursive=False)
        python = tarfile.TarInfo("usr/bin/python")
        python.type, python.linkname, python.mode = tarfile.SYMTYPE, "python3", 0o777
        tar.addfile(python)


def _kept(tree: Path) -> Iterator[str]:
    left_out = re.compile("|".join(fnmatch.translate(pattern) for pattern in LEFT_OUT))
    for folder, folders, files in os.walk(tree):
        here = Path(folder)
        for name in sorted((*folders, *files)):
            path = (here / name).relative_to(tree).as_posix()
            if not left_out.match(path):
                yield path
            elif name in folders:
                folders.remove(name)  # nor is anything below it looked at
