"""The image that trains: PyTorch for CPU with gloo, `torchrun`, Python and bash, from Debian's own packages."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from tools.images.debian_tree import LEFT_OUT_OF_ANY, install_tree, pack
from tools.images.errors import ImageError
from tools.images.oci import LAYER, ImageConfig, ImageFolder
from tools.images.progress import telling

RELEASE: Final = "bookworm"
PACKAGES: Final = ("python3-torch", "python3-setuptools")
EXPECTED_S: Final = 120

LEFT_OUT: Final = (
    *LEFT_OUT_OF_ANY,
    # For screens.
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
    """Return the inputs that determine the image."""
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
        layer = folder.adopt(LAYER, content=lambda file: pack(tree, LEFT_OUT, file))
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
