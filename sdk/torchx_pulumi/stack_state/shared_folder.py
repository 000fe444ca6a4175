"""Permissions in a backend that a group shares: the folder decides, whatever the umasks of its members are."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def shared_umask(root: Path | None) -> int | None:
    """Return the umask for what is written in a backend's folder. None: that of this process.

    A folder with the set-group-ID bit that its group may write is shared by the group, as git's shared repositories
    are: what one member writes, the others have to replace and remove.

    Args:
        root: The folder. None: the backend is no folder.
    """
    try:
        mode = root.stat().st_mode if root is not None else 0
    except OSError:
        return None
    return ~mode & 0o077 if mode & stat.S_ISGID and mode & stat.S_IWGRP else None


def share(root: Path, *paths: Path) -> None:
    """Give files and folders that this process made in a backend to those who share it; leave those of others alone.

    Args:
        root: Folder of the backend.
        paths: Files and folders in it; they are there.

    Raises:
        OSError: The permissions cannot be changed.
    """
    umask = shared_umask(root)
    if umask is None:
        return
    for path in paths:
        found = path.stat()
        if found.st_uid == os.geteuid():
            path.chmod((stat.S_ISGID | 0o777 if stat.S_ISDIR(found.st_mode) else 0o666) & ~umask)
