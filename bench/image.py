"""An unchanged workspace of 50,000 files: patching with ours next to TorchX's DockerWorkspace, which builds and pushes.

Needs a Docker daemon (a private one is started as root where none runs) and starts a registry of its own. Wants: at
most 1/10 of TorchX's time; the second hash reads no file; less than 300 MiB of memory, building included.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FILES = 50_000
FOLDERS = 500
BYTES = 4_000
WANTED_RATIO = 10.0
WANTED_MIB = 300
ROUNDS = 3


def main() -> int:
    """Measure, print a line per figure and one at the end; 1 where a want is missed."""
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="txb-"))
    try:
        with daemon(folder) as host, registry(folder) as address:
            os.environ["DOCKER_HOST"] = host
            os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
            base = push_base(folder, address)
            return measure(base, make_workspace(folder / "workspace"), address)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(base: str, workspace: Path, address: str) -> int:
    """Patch with both, first and again, and compare."""
    first_s, first_mib, _ = apart(ours, base, str(workspace), f"{address}/ours")
    print(f"image {FILES} files, first time (hash, build, push): ours {first_s:.1f} s, {first_mib:.0f} MiB")
    # Files that were written a moment before they were hashed are read once more.
    apart(ours, base, str(workspace), f"{address}/ours")
    runs = [apart(ours, base, str(workspace), f"{address}/ours") for _ in range(ROUNDS)]
    ours_s, ours_mib, read = min(run[0] for run in runs), max(run[1] for run in runs), max(run[2] for run in runs)
    apart(torchx, base, str(workspace), f"{address}/theirs")
    theirs_s, theirs_mib, _ = apart(torchx, base, str(workspace), f"{address}/theirs")
    print(f"image {FILES} files, unchanged: TorchX {theirs_s:.1f} s, {theirs_mib:.0f} MiB")
    print(f"image {FILES} files, unchanged: ours {ours_s:.2f} s, {ours_mib:.0f} MiB, {read} files read")
    ratio, mib = theirs_s / ours_s, max(first_mib, ours_mib)
    met = ratio >= WANTED_RATIO and mib < WANTED_MIB and read == 0
    print(
        f"bench image: {'met' if met else 'MISSED'}: {ratio:.0f}x (want {WANTED_RATIO:.0f}x), {read} files read again "
        f"(want 0), {mib:.0f} MiB (want {WANTED_MIB} MiB)"
    )
    return 0 if met else 1


def ours(base: str, workspace: str, repository: str) -> int:
    """Patch with ours; return how many files were read."""
    from torchx_pulumi.images import patch_image
    from torchx_pulumi.images.content.files import LocalSource

    really, opened = LocalSource.open, []

    def count(source: LocalSource, path: str) -> Any:
        opened.append(path)
        return really(source, path)

    LocalSource.open = count  # type: ignore[method-assign]
    patch_image(base, workspace, repository)
    return sum(path not in (".dockerignore", "Dockerfile.torchx") for path in opened)


def torchx(base: str, workspace: str, repository: str) -> int:
    """Patch with TorchX: build, then push, as `torchx run` does."""
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
    return 0


def apart(work: Callable[..., int], *words: str) -> tuple[float, float, int]:
    """Run in a process of its own; return seconds, the most memory in MiB, and what it returned."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_timed, (work, *words))


def _timed(work: Callable[..., int], *words: str) -> tuple[float, float, int]:
    start = time.perf_counter()
    result = work(*words)
    taken_s = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return taken_s, peak / 1024 if sys.platform != "darwin" else peak / 1024**2, result


def make_workspace(folder: Path) -> Path:
    """Write the files, all different."""
    for index in range(FILES):
        path = folder / f"package_{index % FOLDERS:03}" / f"module_{index:05}.py"
        if index < FOLDERS:
            path.parent.mkdir(parents=True)
        path.write_bytes((f"# {index}\n" * BYTES)[:BYTES].encode())
    (folder / ".dockerignore").write_text("**/*.pyc\n.git\n")
    return folder


def push_base(folder: Path, address: str) -> str:
    """Make a small base image and push it to the registry."""
    from torchx_pulumi.images import patch_image

    empty = folder / "base"
    empty.mkdir()
    (empty / "Dockerfile.torchx").write_text("FROM scratch\nCOPY . /\n")
    return patch_image("scratch", str(empty), f"{address}/base").reference


@contextlib.contextmanager
def daemon(folder: Path) -> Iterator[str]:
    """Yield the DOCKER_HOST of a daemon."""
    from tools.local_docker import LocalDocker, running_host

    found = running_host()
    if found:
        yield found
        return
    private = LocalDocker(folder / "d")
    try:
        private.start()
        yield private.host
    finally:
        private.remove()


@contextlib.contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Yield the address of a registry that starts empty."""
    from tools.bootstrap import ensure

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    content = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": address},
    }
    (folder / "registry.yml").write_text(json.dumps(content))
    program = ensure(["registry"])["registry"] / "docker-registry"
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", folder / "registry.yml"], stdout=log, stderr=log)
    try:
        while not _listening(address):
            if process.poll() is not None:
                raise RuntimeError(f"the registry ended: {(folder / 'registry.log').read_text()}")
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _listening(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


if __name__ == "__main__":
    sys.exit(main())
