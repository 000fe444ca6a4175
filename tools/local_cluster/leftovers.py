"""Clears everything that a cluster leaves on the machine, after a `down` as well as after a crash or a reboot.

Works from the cluster's folder alone. What cannot be cleared is an error, never passed over.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.local_cluster import network, processes
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.layout import Layout
from tools.local_cluster.settings import load_settings

_DETACH: Final = 2  # MNT_DETACH of sys/mount.h
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PATIENCE_S: Final = 4.0


def clear(layout: Layout) -> None:
    """End the cluster's processes and remove what they made.

    Raises:
        LocalClusterError: something could not be removed; the text lists all of it.
    """
    _end_processes(layout)
    _remove_shim_sockets(layout)
    _unmount(layout)
    _remove_cgroups(layout)
    _remove_network(layout)
    _remove_outside_files(layout)
    _remove_state(layout)


def anything_left(layout: Layout) -> bool:
    """Whether `clear` would find something."""
    return (
        layout.root.exists()
        or network.bridge_exists(layout.bridge)
        or any(True for _ in _cgroup_folders(layout))
        or bool(processes.running(layout))
    )


def _end_processes(layout: Layout) -> None:
    # The kubelet and containerd first: they would start containers again.
    own = {p.pid for p in processes.recorded(layout)}
    left = processes.end((p for p in processes.running(layout) if p.pid in own), patience_s=_PATIENCE_S)
    _kill_containers(layout)
    # Then what they started: a container's shim ends by itself when its container has.
    left += processes.end(processes.running(layout), patience_s=0.5)
    if left:
        names = ", ".join(f"{p.name} (pid {p.pid})" for p in left)
        raise LocalClusterError(f"cluster {layout.name!r}: could not end {names}")


def _cgroup_folders(layout: Layout) -> Iterator[Path]:
    """Yield the containers' parent in each hierarchy: one in version 2, several in version 1."""
    below = layout.cgroup.lstrip("/")
    for hierarchy in (_CGROUPS, *(p for p in _CGROUPS.iterdir() if p.is_dir())) if _CGROUPS.is_dir() else ():
        if (hierarchy / below).is_dir():
            yield hierarchy / below


def _kill_containers(layout: Layout) -> None:
    deadline = time.monotonic() + 10
    while pids := set(_contained(layout)):
        if time.monotonic() > deadline:
            raise LocalClusterError(f"cluster {layout.name!r}: containers do not end: pids {sorted(pids)}")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _contained(layout: Layout) -> Iterator[int]:
    for folder in _cgroup_folders(layout):
        for file in folder.rglob("cgroup.procs"):
            try:
                yield from map(int, file.read_text().split())
            except OSError:
                continue  # removed meanwhile


def _remove_shim_sockets(layout: Layout) -> None:
    """Remove the sockets that containerd keeps outside its own folders."""
    for file in (layout.run / "containerd").glob("io.containerd.runtime.v2.task/*/*/address"):
        Path(file.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)


def _mounts(layout: Layout) -> list[str]:
    """Return what is mounted in the cluster's folder, the innermost first."""
    prefix = f"{layout.root}/"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    # Blanks and the like are written as three octal digits.
    found = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split()[4]) for line in lines]
    return [path for path in reversed(found) if path.startswith(prefix)]


def _unmount(layout: Layout) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for path in _mounts(layout):
        libc.umount2(os.fsencode(path), _DETACH)
    if left := _mounts(layout):  # else removing the folder would reach into what is mounted
        raise LocalClusterError(f"cluster {layout.name!r}: could not unmount {', '.join(left)}")


def _remove_cgroups(layout: Layout) -> None:
    for folder in list(_cgroup_folders(layout)):
        children = sorted((p for p in folder.rglob("*") if p.is_dir()), key=lambda p: len(p.parts), reverse=True)
        for child in (*children, folder):
            _remove_cgroup(child)
        try:
            folder.parent.rmdir()  # shared with other clusters: goes with the last
        except OSError:
            continue


def _remove_cgroup(folder: Path) -> None:
    deadline = time.monotonic() + 5
    while folder.exists():  # the kernel takes its time with the last process
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalClusterError(f"could not remove the control group {folder}: {error.strerror}") from error
            time.sleep(0.02)


def _remove_network(layout: Layout) -> None:
    if not network.bridge_exists(layout.bridge):
        return
    settings = load_settings(layout)
    part = settings.parts.get("iptables") if settings else None
    iptables = network.iptables_program(Path(part) if part else None)
    if iptables is not None:
        network.forget_traffic(iptables, layout.bridge)
    try:
        network.delete_bridge(layout.bridge)
    except OSError as error:
        raise LocalClusterError(f"could not remove the bridge {layout.bridge}: {error.strerror}") from error


def _remove_outside_files(layout: Layout) -> None:
    """Remove what the kubelet and the network plugins write to places that cannot be configured."""
    results = Path("/var/lib/cni/results")
    ours = {file.name.removeprefix(f"{layout.bridge}-").removesuffix("-eth0") for file in results.glob(f"{layout.bridge}-*")}
    for container in ours:
        for file in results.glob(f"*{container}*"):
            file.unlink(missing_ok=True)
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and os.readlink(link).startswith(f"{layout.root}/"):
            link.unlink(missing_ok=True)


def _remove_state(layout: Layout) -> None:
    for _ in range(50):  # a process that has just been killed may still be creating a file
        if not layout.root.exists():
            return
        shutil.rmtree(layout.root, ignore_errors=True)
        time.sleep(0.02)
    raise LocalClusterError(f"could not remove {layout.root}: remove it by hand")
