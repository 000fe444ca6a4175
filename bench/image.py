"""Patching an image on a base of 2 GB that is not on this machine: ours, TorchX's DockerWorkspace, docker build + push.

One file out of 50,000 is edited between two launches. Needs root for a private Docker daemon, or a daemon that runs,
and starts a registry of its own. Wants: at most 0.1 of docker's time; less than 1 MB of traffic beyond the new layer;
less than 100 MB of memory; for an unchanged workspace at most 0.1 of TorchX's time, and no file is opened.

`TORCHX_PULUMI_BENCH_LARGE_GB=6` also pushes one file of that size.
"""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench._images import docker_build, fresh_daemon, has_docker_command, make_workspace, place_base, torchx
from bench._usage import Usage, measure
from tools.local_registry import LocalRegistry

FILES: Final = 50_000
FOLDERS: Final = 500
FILE_BYTES: Final = 4_000
BASE_BYTES: Final = 2_000_000_000
ROUNDS: Final = 3
WANTED_RATIO: Final = 0.1
WANTED_BEYOND: Final = 1_000_000
"""Bytes of traffic that are not the layer."""
WANTED_MB: Final = 100.0
LARGE: Final = "TORCHX_PULUMI_BENCH_LARGE_GB"


def main() -> int:
    """Measure, print a line per figure and one verdict at the end; 1 where a target is missed."""
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="txb-"))
    try:
        storage = folder / "stored"
        base = place_base(folder / "base", storage, BASE_BYTES)
        workspace = make_workspace(folder / "code", files=FILES, folders=FOLDERS, size=FILE_BYTES)
        with LocalRegistry(folder / "registry", storage=storage) as registry:
            return Comparison(folder, f"{registry.address}/{base}", workspace, registry.address).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Comparison:
    """The measurements on one workspace and one base."""

    def __init__(self, folder: Path, base: str, workspace: Path, address: str) -> None:
        self._folder, self._base, self._workspace, self._address = folder, base, workspace, address
        self._edits = 0

    def run(self) -> int:
        """Measure all; return 0 if all targets are met."""
        first = self._ours("first time")
        if first.opened < FILES:
            raise RuntimeError(f"{first.opened} files were seen when they were opened, must be {FILES} or more")
        # Files that were written a moment before they were hashed are read once more.
        self._ours("again")
        edited = [self._ours("one file edited", edit=True) for _ in range(ROUNDS)]
        unchanged = [self._ours("unchanged") for _ in range(ROUNDS)]
        large = self._large(float(os.environ[LARGE])) if os.environ.get(LARGE) else None

        with fresh_daemon(self._folder / "d"):
            self._edit()
            by_torchx = self._theirs("TorchX, one file edited", torchx)
            torchx_unchanged = self._theirs("TorchX, unchanged", torchx)
        with fresh_daemon(self._folder / "e"):
            self._edit()
            command = "docker build + push" if has_docker_command() else "docker-py's build + push"
            by_docker = self._theirs(f"{command}, one file edited", docker_build)

        ours_s = statistics.median(each.time_s for each in edited)
        ratio = ours_s / min(by_torchx, by_docker)
        beyond = max(each.traffic - each.result for each in edited)
        memory_mb = max(each.memory_mb for each in (first, *edited, *unchanged, *([large] if large else [])))
        unchanged_ratio = statistics.median(each.time_s for each in unchanged) / torchx_unchanged
        opened = max(each.opened for each in unchanged)
        met = ratio <= WANTED_RATIO and beyond < WANTED_BEYOND and memory_mb < WANTED_MB
        met = met and unchanged_ratio <= WANTED_RATIO and opened == 0
        print(
            f"bench image: {'met' if met else 'MISSED'}: one file of {FILES} edited {ratio:.3f} of docker's time "
            f"(want {WANTED_RATIO}), {beyond / 1e3:.0f} kB beyond the layer (want {WANTED_BEYOND / 1e3:.0f}), "
            f"{memory_mb:.0f} MB (want {WANTED_MB:.0f}); unchanged {unchanged_ratio:.3f} of TorchX's time "
            f"(want {WANTED_RATIO}), {opened} files opened (want 0)"
        )
        return 0 if met else 1

    def _ours(self, name: str, *, edit: bool = False) -> Usage:
        if edit:
            self._edit()
        words = (self._base, str(self._workspace), f"{self._address}/ours", str(self._folder / "cache"))
        return _shown(f"ours, {name}", measure(ours, *words, watched=self._workspace))

    def _large(self, size_gb: float) -> Usage:
        folder = self._folder / "large"
        folder.mkdir()
        with (folder / "weights.bin").open("wb") as file:
            file.truncate(int(size_gb * 1e9))
        words = (self._base, str(folder), f"{self._address}/large", str(self._folder / "cache"))
        return _shown(f"ours, a file of {size_gb:g} GB", measure(ours, *words, watched=folder))

    def _theirs(self, name: str, work: Callable[[str, str, str], None]) -> float:
        usage = measure(work, self._base, str(self._workspace), f"{self._address}/theirs")
        print(f"image {name}: {usage.time_s:.1f} s, {usage.memory_mb:.0f} MB", flush=True)
        return usage.time_s

    def _edit(self) -> None:
        self._edits += 1
        file = self._workspace / "package_007" / "module_00007.py"
        file.write_text(f"# edit {self._edits}\n")


def ours(base: str, workspace: str, repository: str, cache: str) -> int:
    """Patch with ours, without a daemon; return the size of the new layers, in bytes. 0: nothing was pushed."""
    os.environ["XDG_CACHE_HOME"] = cache
    os.environ["DOCKER_HOST"] = "unix:///nonexistent/docker.sock"
    from torchx_pulumi.images import build_plans, plan_patch

    plan = plan_patch(base, workspace, repository, builder="registry")
    build_plans([plan], lambda _line: None)
    if plan.layered is None:
        return 0
    *layers, _configuration = plan.layered.new_blobs
    return sum(layer.size for layer in layers)


def _shown(name: str, usage: Usage) -> Usage:
    print(
        f"image {name}: {usage.time_s:.2f} s, {usage.memory_mb:.0f} MB, {usage.opened} files opened, layer "
        f"{usage.result / 1e6:.1f} MB, {(usage.traffic - usage.result) / 1e3:.1f} kB of traffic beyond it",
        flush=True,
    )
    return usage
