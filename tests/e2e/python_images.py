"""Images with Python packages, for a cluster without a package registry: pip's files are fetched on this machine."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pip
from torchx_pulumi.images import patch_image

from tools.bootstrap import ensure

ROOT = Path(__file__).resolve().parents[2]
CONTROLLER = ROOT / "examples" / "controller" / "Dockerfile"

INSTALLING = """\
ARG IMAGE
FROM $IMAGE
COPY pip/ /usr/lib/python3/dist-packages/pip/
COPY wheels/ /wheels/
COPY pip.conf /etc/pip.conf
"""
"""A base image whose pip installs from a folder."""

PIP_CONF = "[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n"


def fetch(command: str, folder: Path, *requirements: str) -> None:
    """Run `pip download` or `pip install` for the Python image of the local cluster."""
    root = ensure(["python-root"])["python-root"].parent / "root"
    (found,) = root.glob("usr/lib/python3.*")
    option = "--target" if command == "install" else "--dest"
    words = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", option, str(folder)]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", found.name.removeprefix("python")]
    for glibc in range(28, 16, -1):
        words += ["--platform", f"manylinux_2_{glibc}_{platform.machine()}"]
    words += ["--platform", f"manylinux2014_{platform.machine()}"]
    subprocess.run([*words, *requirements], check=True, cwd=ROOT)


def controller_image(python: str, repository: str, folder: Path) -> str:
    """Build the controller's image from this checkout with the example's Dockerfile, push it and return its name.

    Args:
        python: The Python image of the local cluster.
        repository: Where it is pushed to.
        folder: An empty folder.
    """
    fetch("download", folder / "wheels", "hatchling", "s3fs", str(ROOT), str(ROOT / "fleet"))
    (folder / "Dockerfile.torchx").write_text(INSTALLING)
    (folder / "pip.conf").write_text(PIP_CONF)
    base = patch_image(python, {str(folder): "", pip.__path__[0]: "pip"}, f"{repository}-base", builder="registry")
    copied = re.findall(r"^COPY (.+) \S+$", CONTROLLER.read_text(), re.M)
    places = {str(ROOT / name): name for names in copied for name in names.split()}
    context = {**places, str(CONTROLLER): CONTROLLER.name}
    arguments = {"BASE": base.reference}
    made = patch_image(
        base.reference, context, repository, dockerfile=CONTROLLER.name, build_args=arguments, builder="docker"
    )
    return made.reference
