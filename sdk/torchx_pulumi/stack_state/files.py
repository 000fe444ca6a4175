"""Small JSON files that many processes read and write at once: written whole or not at all, readable by their owner."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.locks import held
from torchx_pulumi.stack_state.presence import ABSENT, is_folder

NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL}
)
"""What a file system without hard links says."""


def read_json(path: Path) -> Any:
    """Return the value of a file. None: there is no such file.

    Raises:
        DeployError: It cannot be read, or is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except ABSENT:
        return None
    except OSError as error:
        raise refused(path, "read", error) from error
    except ValueError as error:
        raise DeployError(f"{path} is no JSON: {error}; it was changed by hand: mend it, or move it away") from error


def write_json(path: Path, value: Any) -> None:
    """Write a file in one step: a reader finds the old value or the new one, also after the power went.

    Raises:
        DeployError: It cannot be written: a full disk, a read-only folder.
    """
    make_folder(path.parent)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = ""
    except OSError as error:
        raise refused(path, "written", error) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file; an absent one is left absent.

    Raises:
        DeployError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except NotADirectoryError:
        return
    except OSError as error:
        raise refused(path, "removed", error) from error


def write_new(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a file that must not be there. Of several writers the first one's stays, and a reader sees all of it.

    On a file system without hard links a reader may see the file before its text is in it, for a moment.

    Args:
        path: The file; its folder is there.
        text: What it holds.
        mode: Permissions, before the umask.

    Raises:
        FileExistsError: It is there.
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        _write_exclusively(temporary, text, mode)
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _write_exclusively(path, text, mode)
    finally:
        temporary.unlink(missing_ok=True)


def _write_exclusively(path: Path, text: str, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, readable by their owner only; those that are there stay as they are.

    Raises:
        DeployError: It cannot be made.
    """
    try:
        for folder in (*reversed(path.parents), path):
            if not is_folder(folder):
                folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise refused(path, "made", error) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, against other threads and other processes; meant for moments, never for a launch.

    Raises:
        DeployError: The lock cannot be taken.
    """
    make_folder(folder)
    path = folder / ".lock"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(path))
        except OSError as error:
            raise refused(path, "locked", error) from error
        yield


def refused(path: Path, what: str, error: OSError) -> DeployError:
    """Return the error of a file that cannot be used, with its reason and what to do."""
    reasons = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "the quota of this user is used up; free some space",
        errno.EROFS: "the file system is read-only; set XDG_STATE_HOME to a folder that can be written",
        errno.EACCES: "this user may not; change its permissions, or set XDG_STATE_HOME to a folder of this user's",
        errno.EPERM: "this user may not; change its permissions, or set XDG_STATE_HOME to a folder of this user's",
        errno.ESTALE: "its file system was mounted again meanwhile; start this process again",
    }
    reason = reasons.get(error.errno or 0, f"{error.strerror or error}; set XDG_STATE_HOME to another folder")
    return DeployError(f"the record of launched apps: {path} cannot be {what}: {reason}")
