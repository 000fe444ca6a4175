"""What the measurement of images needs: a large base image, many files, a daemon, and two ways to build with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final

from tools.images.oci import LAYER, ImageConfig, ImageFolder
from tools.images.storage import place_image
from tools.local_docker import LocalDocker, running_host

LAYERS: Final = 4
_PIECE: Final = 1 << 20
_DOCKERFILE: Final = "FROM {base}\nCOPY . .\n"


def place_base(folder: Path, storage: Path, size: int) -> str:
    """Put an image of random layers into a registry's storage; return it as `repository:tag`. Its size is in bytes."""
    image = ImageFolder(folder)
    layers = [image.adopt(LAYER, content=partial(_random_layer, number, size // LAYERS)) for number in range(LAYERS)]
    # The layers are not compressed, so that the daemon spends no time on that.
    image.finish(ImageConfig(command=("none",)), layers, [layer.digest for layer in layers], "large")
    place_image(image, storage, "base", "large")
    shutil.rmtree(folder)  # the storage has the blobs as hard links
    return "base:large"


def _random_layer(number: int, size: int, file: IO[bytes]) -> None:
    header = tarfile.TarInfo(f"weights-{number}.bin")
    header.size = size - size % _PIECE
    file.write(header.tobuf())
    for _ in range(header.size // _PIECE):
        file.write(os.urandom(_PIECE))
    file.write(bytes(2 * tarfile.BLOCKSIZE))


def make_workspace(folder: Path, *, files: int, folders: int, size: int) -> Path:
    """Write files of a size in bytes, all different."""
    for index in range(files):
        path = folder / f"package_{index % folders:03}" / f"module_{index:05}.py"
        if index < folders:
            path.parent.mkdir(parents=True)
        path.write_bytes((f"# {index}\n" * size)[:size].encode())
    (folder / ".dockerignore").write_text("**/*.pyc\n.git\n")
    return folder


@contextlib.contextmanager
def fresh_daemon(folder: Path) -> Iterator[None]:
    """Set DOCKER_HOST to a daemon that has no image yet: a private one, or the one that runs on this machine."""
    before = os.environ.get("DOCKER_HOST")
    found = running_host()
    # The base is random, so that a daemon that was there before does not have it either.
    private = None if found else LocalDocker(folder)
    try:
        if private is not None:
            private.start()
        os.environ["DOCKER_HOST"] = found or f"unix://{folder / 'docker.sock'}"
        yield
    finally:
        if private is not None:
            private.remove()
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before


def torchx(base: str, workspace: str, repository: str) -> None:
    """Patch with TorchX's DockerWorkspace: build, then push, as `torchx run` does."""
    from torchx.specs import AppDef, Role
    from torchx.workspace.docker_workspace import DockerWorkspaceMixin

    class Workspace(DockerWorkspaceMixin):
        """The mixin alone."""

    role = Role(name="trainer", image=base)
    config = {"image_repo": repository, "quiet": True}
    mixin = Workspace()
    mixin.build_workspace_and_update_role(role, workspace, config)
    images = mixin.dryrun_push_images(AppDef(name="app", roles=[role]), config)
    # It draws on the terminal's own stderr; this process ends with this call.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    mixin.push_images(images)


def docker_build(base: str, workspace: str, repository: str) -> None:
    """Build the same image with the docker command, or docker-py if it is absent, and push it."""
    text, image = _DOCKERFILE.format(base=base), f"{repository}:edit"
    if has_docker_command():
        env = {**os.environ, "DOCKER_BUILDKIT": "0", "DOCKER_CLI_HINTS": "false"}
        for words in (("build", "--quiet", "--tag", image, "--file", "-", workspace), ("push", "--quiet", image)):
            subprocess.run(["docker", *words], input=text.encode(), env=env, check=True, capture_output=True)
        return
    import docker

    with contextlib.closing(docker.from_env()) as client:
        (Path(workspace) / "Dockerfile").write_text(text)
        for line in client.api.build(path=workspace, tag=image, decode=True):
            if "error" in line:
                raise RuntimeError(line["error"])
        for line in client.api.push(image, stream=True, decode=True):
            if "error" in line:
                raise RuntimeError(line["error"])


def has_docker_command() -> bool:
    """Return whether the docker command is installed."""
    return shutil.which("docker") is not None
