"""Files that several processes read and write: atomic writes, private folders, absent told apart from unreadable.

`Path.is_file`, `Path.exists` and `Path.glob` return False for some errors of the file system, from Python 3.14 on for
all of them: permissions, a failing disk, a stale NFS handle. The functions here raise instead, so that an unreadable
state is never taken for a deleted one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from torchx_pulumi.model.errors import DeployError

ABSENT = (FileNotFoundError, NotADirectoryError)
"""Errors that prove that a file is absent."""


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file. Raise OSError if it cannot be inspected."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder. Raise OSError if it cannot be inspected."""
    return stat.S_ISDIR(_mode(path))


def path_exists(path: Path) -> bool:
    """Return whether a path exists. Raise OSError if it cannot be inspected."""
    return _mode(path) != 0


def _mode(path: Path) -> int:
    """Return the mode of a path, or 0 if it does not exist."""
    try:
        return path.stat().st_mode
    except ABSENT:
        return 0


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a folder; empty if the folder does not exist.

    Raises:
        OSError: The folder cannot be read.
    """
    try:
        return sorted(path.name for path in folder.iterdir())
    except ABSENT:
        return []


def read_json(path: Path) -> Any:
    """Return the JSON value in a file, or None if the file does not exist.

    Raises:
        DeployError: The file cannot be read, or is not valid JSON.
    """
    try:
        with file_errors(path, "read"), contextlib.suppress(*ABSENT):
            return json.loads(path.read_bytes())
    except ValueError as error:
        raise DeployError(f"{path} is not valid JSON: {error}; fix the file, or move it away") from error
    return None


@contextlib.contextmanager
def replacing(
    path: Path, *, mode: int = 0o666, sync: bool = False, folder: Path | None = None, new: bool = False
) -> Iterator[BinaryIO]:
    """Write a file atomically: readers see the old file or the new one. An error in the block leaves the old one.

    Args:
        path: The file.
        mode: Its permissions, before the umask.
        sync: Keep the file also after a power failure, for the price of some milliseconds.
        folder: Existing folder of the temporary file, on the same file system. None: that of the file.
        new: Create the file: of several writers, the first one succeeds. The file system needs hard links.

    Raises:
        FileExistsError: The file is `new`, and exists.
        OSError: The file cannot be written.
    """
    temporary = (folder or path.parent) / f".{uuid.uuid4().hex}.tmp"
    try:
        created = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(created, "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if new:
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, for its owner only; see `replacing`. Missing folders are created.

    Raises:
        DeployError: The file cannot be written, for example because the disk is full or the folder is read-only.
    """
    # `json.dump` writes by Python code, which takes five times as long as `json.dumps`.
    data = json.dumps(value, separators=(",", ":")).encode()
    make_folder(path.parent)
    with file_errors(path, "written"), replacing(path, mode=0o600, sync=True) as file:
        file.write(data)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists.

    Raises:
        DeployError: The file cannot be removed.
    """
    with file_errors(path, "removed"), contextlib.suppress(*ABSENT):
        path.unlink()


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700; existing folders keep their mode.

    Raises:
        OSError: The folder cannot be created.
    """
    for folder in (*reversed(path.parents), path):
        if not is_folder(folder):
            folder.mkdir(mode=0o700, exist_ok=True)


def make_folder(path: Path) -> None:
    """Create a folder of the local index; see `make_private_folder`.

    Raises:
        DeployError: The folder cannot be created.
    """
    with file_errors(path, "made"):
        make_private_folder(path)


def shared_umask(root: Path | None) -> int | None:
    """Return the umask for files in a backend's folder, or None for that of this process.

    A group shares a folder that has the set-group-ID bit and is writable by the group, as in git's shared
    repositories: every member has to be able to replace and remove what another member wrote.

    Args:
        root: The folder. None: the backend is not a folder.
    """
    try:
        mode = root.stat().st_mode if root is not None else 0
    except OSError:
        return None
    return ~mode & 0o077 if mode & stat.S_ISGID and mode & stat.S_IWGRP else None


def share(root: Path, *paths: Path) -> None:
    """Give the group of a shared backend access to existing files and folders in it that this user owns.

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


@contextlib.contextmanager
def file_errors(path: Path, action: str) -> Iterator[None]:
    """Raise errors of a file in the local index as `DeployError`, with the reason and what to do.

    The action is a past participle: `read`, `written`.
    """
    try:
        yield
    except OSError as error:
        reason = os_error_reason(error, "set XDG_STATE_HOME to another folder")
        raise DeployError(f"the record of launched apps: {path} cannot be {action}: {reason}") from error


def os_error_reason(error: OSError, advice: str) -> str:
    """Return the reason of a file system error, and what to do about it; `advice` says how to use another folder."""
    forbidden = f"this user has no permission; change the permissions, or {advice}"
    reasons = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "the quota of this user is used up; free some space",
        errno.EROFS: f"the file system is read-only; {advice}",
        errno.EACCES: forbidden,
        errno.EPERM: forbidden,
        errno.EEXIST: f"a file is where a folder has to be; remove it, or {advice}",
        errno.ENOTDIR: f"a file is where a folder has to be; remove it, or {advice}",
        errno.ESTALE: "the file system was mounted again meanwhile; start this process again",
    }
    return reasons.get(error.errno or 0, f"{error.strerror or error}; {advice}")
