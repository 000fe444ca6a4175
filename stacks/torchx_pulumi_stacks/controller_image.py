"""The image of the controller: this installation's packages on a base image, named by their content.

pip installs the dependencies into a folder of this machine, in the versions that are installed here and as wheels of
the base image's Python. The image step lays that folder on the base; a build downloads nothing.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform as machine
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import pulumi
import torchx_pulumi
import torchx_pulumi_components
from torchx_pulumi.images import Builder, plan_patch
from torchx_pulumi.images.content.hashing import cache_folder
from torchx_pulumi.log_archive.archive import PACKAGES
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi_components.images import build_in_up

from torchx_pulumi_stacks.controller_config import ControllerConfig

NAME: Final = "torchx-pulumi"
"""The distribution whose dependencies are installed."""

EXTRA: Final = "controller"
"""Its extra with the libraries of page and metrics."""

NOT_NEEDED: Final = ("pulumi", "pulumi-kubernetes")
"""Dependencies of launches only: the engine's library, and 60 MB of resource classes."""

DOCKERFILE: Final = Path(__file__).with_name("controller.Dockerfile")
"""How the folder gets onto the base."""

INSTALL_S: Final = 900.0
"""Longest time that pip may take."""

_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC: Final = range(28, 16, -1)
"""Minor versions of glibc 2 whose wheels run on the base, the newest first: pip takes no older ones for granted."""
_OF_THE_INSTALLER: Final = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Files of pip's own, which name paths and times of this machine."""


def controller_image(config: ControllerConfig) -> str:
    """Return the image of the controller: the configured one, or one that `up` builds and pushes if it is missing.

    Raises:
        ImageError: The dependencies cannot be installed, or the image cannot be planned, built or pushed.
    """
    if config.image or not config.base_image:
        return config.image or ""
    dependencies = installed_dependencies(config)
    packages = [torchx_pulumi.__path__[0], torchx_pulumi_components.__path__[0], str(Path(__file__).parent)]
    places = {str(dependencies): "packages", **{folder: f"packages/{Path(folder).name}" for folder in packages}}
    plan = plan_patch(
        config.base_image,
        {**places, str(DOCKERFILE): DOCKERFILE.name},
        config.image_repo,
        dockerfile=DOCKERFILE.name,
        platform=config.platform,
        # Its Dockerfile has a RUN.
        builder=Builder.DOCKER.value,
    )
    # What is left out by default are compiled files, which the build makes for the base's Python.
    build_in_up([replace(plan, left_out=())])
    return plan.reference


def installed_dependencies(config: ControllerConfig) -> Path:
    """Return a folder with the dependencies for the base image's Python; pip fills it once for the same versions.

    Raises:
        ImageError: pip fails, for example for lack of a wheel for the platform.
    """
    wanted = sorted(requirements([*config.backends, config.log_archive or "", *config.archive_allow]))
    installed = [(found.metadata["Name"], found.version) for found in importlib.metadata.distributions()]
    pins = sorted(f"{name}=={version}" for name, version in installed if name and name != NAME)
    for_python = ["--python-version", config.python_version or "", *_platforms(config.platform)]
    key = sha256("\n".join([*wanted, *pins, *for_python]).encode()).hexdigest()[:16]
    folder = cache_folder().with_name("controller") / key
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=folder.parent))
    try:
        (fresh / "pins").write_text("".join(f"{pin}\n" for pin in pins))
        _pip([*for_python, "--target", str(fresh / "tree"), "--constraint", str(fresh / "pins"), *wanted])
        _without_traces(fresh / "tree")
        if not folder.is_dir():
            (fresh / "tree").rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def requirements(urls: Sequence[str]) -> Iterator[str]:
    """Yield what the controller needs: all dependencies but those of launches, and the packages of object stores."""
    for line in importlib.metadata.requires(NAME) or ():
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if name not in NOT_NEEDED and (extra is None or extra[1] == EXTRA):
            yield requirement.strip()
    for scheme, package in PACKAGES.items():
        if any(url.startswith(f"{scheme}://") for url in urls):
            yield package


def _platforms(platform: str | None) -> Iterator[str]:
    architecture = machine.machine() if platform is None else platform.split("/")[1]
    processor = _ARCHITECTURES.get(architecture, architecture)
    for minor in _GLIBC:
        yield from ("--platform", f"manylinux_2_{minor}_{processor}")
    yield from ("--platform", f"manylinux2014_{processor}")


def _pip(words: Sequence[str]) -> None:
    pulumi.log.info("installing the packages of the controller's image, once for these versions")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--only-binary", ":all:", "--implementation", "cp"]
    try:
        done = subprocess.run(
            [*command, *words],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=INSTALL_S,
            # The program's own paths would be taken for the target's.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"the packages of the controller's image cannot be installed: {error}") from error
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise ImageError(
            f"the packages of the controller's image cannot be installed by pip; look at controller.pythonVersion and "
            f"controller.platform, or name a finished image (controller.image):\n{tail}"
        )


def _without_traces(tree: Path) -> None:
    """Remove what differs between two machines: scripts name this Python, and pip notes where files came from."""
    shutil.rmtree(tree / "bin", ignore_errors=True)
    for info in tree.glob("*.dist-info"):
        for name in _OF_THE_INSTALLER:
            (info / name).unlink(missing_ok=True)
