"""A view of the file system that only containerd, the kubelet and their children have.

Some of their folders cannot be configured. In this view those are the cluster's own, so that clusters do not share
them and nothing of the machine's is touched. All mounts of pods are in it too: they vanish with the last process.
Their files are open to other users, as containers without root rights need it; the cluster's own folder is not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.local_cluster.layout import Layout

FOLDERS: Final = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/run/containerd")
"""Fixed folders that are replaced: device plugins, address leases, links to logs, sockets of shims."""

_OPEN: Final = """\
echo $$ > "$1"
hidden="$2"
shift 2
for folder in {folders}; do
    mkdir -p "$folder" "$hidden$folder" || exit 1
    mount --bind "$hidden$folder" "$folder" || exit 1
done
umask 022
exec "$@"
"""
_REPLACE: Final = 'mount --bind "$0" /etc && exec "$@"'
_JOIN: Final = 'umask 022; exec nsenter --mount="/proc/$(cat "$0")/ns/mnt" "$@"'


def obstacle() -> str | None:
    """Say why there can be no such view here. None: there can."""
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"there is no `{program}` on PATH"
    done = subprocess.run(
        ["unshare", "--mount", "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return None if done.returncode == 0 else f"may not make a mount namespace ({done.stderr.strip()})"


def opening(layout: Layout, *command: str) -> tuple[str, ...]:
    """Return the command that runs `command` in a new view; it stays the same process."""
    script = _OPEN.format(folders=" ".join(FOLDERS))
    hidden = layout.data / "hidden"
    return ("unshare", "--mount", "sh", "-c", script, "open", str(_holder(layout)), str(hidden), *command)


def joining(layout: Layout, *command: str) -> tuple[str, ...]:
    """Return the command that runs `command` in the view that `opening` made."""
    return ("sh", "-c", _JOIN, str(_holder(layout)), *command)


def replacing_etc(folder: Path, *command: str) -> tuple[str, ...]:
    """Return the command that runs `command` in a view of its own, where `folder` is `/etc`; it stays the same process.

    For a program that wants a file there which cannot be elsewhere. The machine's own `/etc` does not change.
    """
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    return ("unshare", *user, "--mount", "sh", "-c", _REPLACE, str(folder), *command)


def remove_mount_points() -> None:
    """Remove the fixed folders that are empty: nobody else has put anything there.

    Only for when no cluster with a real node is left on the machine: removing a folder takes it out of all views.
    """
    for folder in map(Path, FOLDERS):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _holder(layout: Layout) -> Path:
    """Return the file that names the process whose view it is."""
    return layout.run / "view.pid"
