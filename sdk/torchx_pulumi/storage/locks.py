"""Lock files that exclude threads and processes, on file systems with and without locks.

`filelock` uses `flock`, which the end of a process releases and which a forked child does not keep. Lustre and NFS may
refuse it; the lock is then a second file that is created exclusively and names its owner. It is removed if its owner
has ended, which only a process of the same host and PID namespace can tell.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from torchx_pulumi.storage.files import file_errors, make_folder

NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Error numbers of a file system without locks."""

POLL_S = 0.01
LIMIT_S = 60.0
"""Longest wait on a file system without locks; locks are held for moments."""


@contextlib.contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file; the end of the process releases it.

    Args:
        path: The file; it is created if absent, and stays.
        wait: Wait until the lock is free.

    Yields:
        Whether the lock is held. False: another process holds it, and `wait` is False.

    Raises:
        OSError: The file cannot be written.
        TimeoutError: The file system has no locks, and another process did not release this one.
    """
    import filelock  # 70 ms, and reading takes no lock

    lock: filelock.BaseFileLock = filelock.FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    try:
        try:
            lock.acquire(blocking=wait, poll_interval=POLL_S)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            lock = filelock.SoftFileLock(path.with_name(f"{path.name}.held"), mode=0o600, thread_local=False)
            lock.acquire(LIMIT_S, blocking=wait, poll_interval=POLL_S)
    except filelock.Timeout as error:
        if wait:
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"{_owner(Path(error.lock_file))} has held it for {LIMIT_S:.0f} s; end that process, or remove "
                f"{error.lock_file} if it is gone",
                error.lock_file,
            ) from error
        yield False
        return
    try:
        yield True
    finally:
        # In a forked child, this releases nothing.
        lock.release()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder against other threads and processes, for moments only, never during a launch.

    Raises:
        DeployError: The lock cannot be acquired.
    """
    make_folder(folder)
    path = folder / ".lock"
    with contextlib.ExitStack() as stack:
        with file_errors(path, "locked"):
            stack.enter_context(held(path))
        yield


def _owner(path: Path) -> str:
    """Return a description of the owner in a lock file, whose first lines are its process id and host."""
    try:
        pid, host = path.read_text(encoding="utf-8").splitlines()[:2]
    except (OSError, ValueError):
        return "another process"
    # Linux adds the PID namespace to the host.
    return f"process {pid} on {host.partition('?')[0]}"
