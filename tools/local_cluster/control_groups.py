"""Control groups of a cluster's containers: one parent for each cluster, in every hierarchy of the machine.

All processes of all containers are below it, so that none can be missed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.local_cluster.errors import LocalClusterError

ROOT: Final = Path("/sys/fs/cgroup")
_PATIENCE_S: Final = 10.0


def obstacle(root: Path = ROOT) -> str | None:
    """Say why containers cannot have control groups here. None: they can."""
    hierarchies = list(_hierarchies(root))
    if not any(os.access(folder, os.W_OK) for folder in hierarchies):
        return f"{root} is read-only or not mounted"
    try:
        for folder in hierarchies:
            _hand_down(folder)
    except OSError as error:
        return f"{root} does not hand its controllers down ({error.strerror})"
    return None


def create(name: str, root: Path = ROOT) -> None:
    """Make the parent `name`, such as `/torchx-pulumi/0123abcd`, in every hierarchy.

    Raises:
        OSError: not allowed.
    """
    for folder in _hierarchies(root):
        for part in Path(name).relative_to("/").parts:
            _hand_down(folder)
            folder /= part
            folder.mkdir(exist_ok=True)


def folders(name: str, root: Path = ROOT) -> Iterator[Path]:
    """Yield the parent's folder in each hierarchy that has it."""
    for hierarchy in _hierarchies(root):
        folder = Path(f"{hierarchy}{name}")
        if folder.is_dir():
            yield folder


def kill(name: str) -> None:
    """End every process below the parent.

    Raises:
        LocalClusterError: some do not end.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while pids := set(_processes(name)):
        if time.monotonic() > deadline:
            raise LocalClusterError(f"containers do not end: processes {', '.join(map(str, sorted(pids)))} in {name}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def remove(name: str) -> None:
    """Remove the parent and all below it.

    Raises:
        LocalClusterError: the kernel does not let go of one.
    """
    for folder in list(folders(name)):
        below = sorted((path for path in folder.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for path in (*below, folder):
            _remove(path)
        try:
            folder.parent.rmdir()
        except OSError:
            continue  # other clusters use it; it goes with the last


def _hierarchies(root: Path) -> Iterator[Path]:
    """Yield the one of version 2, or those of version 1."""
    if (root / "cgroup.procs").exists():
        yield root
    elif root.is_dir():
        found = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink())
        yield from (path for path in found if (path / "cgroup.procs").exists())


def _hand_down(folder: Path) -> None:
    """Let the groups below have the controllers that this one has. Only version 2 asks for that."""
    control = folder / "cgroup.subtree_control"
    if not control.exists():
        return
    given = control.read_text().split()
    for controller in (folder / "cgroup.controllers").read_text().split():
        if controller not in given:
            control.write_text(f"+{controller}")


def _processes(name: str) -> Iterator[int]:
    for folder in folders(name):
        for file in folder.rglob("cgroup.procs"):
            try:
                yield from map(int, file.read_text().split())
            except OSError:
                continue  # gone meanwhile


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while folder.exists():  # the kernel takes its time after the last process
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalClusterError(f"could not remove the control group {folder}: {error.strerror}") from error
            time.sleep(0.02)
