"""Clears everything that a cluster leaves on the machine, after a `down` as well as after a crash or a reboot.

Works from the cluster's folder alone. What cannot be cleared is an error, never passed over.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tools.local_cluster import control_groups, network, private_mounts, processes
from tools.local_cluster.errors import LocalClusterError
from tools.local_cluster.interrupts import uninterrupted
from tools.local_cluster.layout import CGROUP_OF_ALL, Layout
from tools.local_cluster.settings import load_settings

_PATIENCE_S: Final = 4.0


def clear(layout: Layout) -> None:
    """End the cluster's processes and remove what they made.

    Raises:
        LocalClusterError: something could not be removed.
    """
    with uninterrupted():
        _end_processes(layout)
        control_groups.remove(layout.cgroup)
        _remove_network(layout)
        if not any(control_groups.folders(CGROUP_OF_ALL)):
            private_mounts.remove_mount_points()
        _remove_state(layout)


def end_others(layout: Layout, keep: Collection[str]) -> None:
    """End the components that were started beside those named in `keep`."""
    with uninterrupted():
        processes.end((p for p in processes.recorded(layout) if p.name not in keep), patience_s=_PATIENCE_S)


def anything_left(layout: Layout) -> bool:
    """Whether `clear` would find something."""
    return (
        layout.root.exists()
        or network.bridge_exists(layout.bridge)
        or any(control_groups.folders(layout.cgroup))
        or bool(processes.running(layout))
    )


def _end_processes(layout: Layout) -> None:
    # The kubelet and containerd first: they would start containers again.
    own = {p.pid for p in processes.recorded(layout)}
    left = processes.end((p for p in processes.running(layout) if p.pid in own), patience_s=_PATIENCE_S)
    control_groups.kill(layout.cgroup)
    # Then what they started: a container's shim ends by itself when its container has.
    left += processes.end(processes.running(layout), patience_s=0.5)
    if left:
        names = ", ".join(f"{p.name} (pid {p.pid})" for p in left)
        raise LocalClusterError(f"cluster {layout.name!r}: could not end {names}")


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


def _remove_state(layout: Layout) -> None:
    for _ in range(50):  # a process that has just been killed may still be creating a file
        if not layout.root.exists():
            return
        shutil.rmtree(layout.root, ignore_errors=True)
        time.sleep(0.02)
    raise LocalClusterError(f"could not remove {layout.root}: remove it by hand")
