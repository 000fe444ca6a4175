"""Lock files that exclude threads and processes, on file systems with and without locks.

`flock` is used where it works. Lustre and NFS may refuse it; the lock is then a second file that is created
exclusively and names its owner. POSIX record locks are not used: a process loses all of its locks on a file as soon as
one of its threads closes that file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from torchx_pulumi.model.app_entry import Owner
from torchx_pulumi.storage.files import file_error, make_folder
from torchx_pulumi.storage.owners import describe_owner, hold, is_working, let_go, this_process

NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Error numbers of a file system without locks."""

POLL_S = 0.02
LIMIT_S = 60.0
"""Longest wait for a marker file that does not change; locks are held for moments."""

_guard = threading.Lock()
"""Held while a descriptor is opened or closed, and during a fork."""

_open: set[_Descriptor] = set()
"""Descriptors of locks that this process holds or waits for; a forked child closes its copies of them."""


class _Descriptor:
    """An open file that carries a `flock`."""

    def __init__(self, path: Path) -> None:
        with _guard:
            self.number: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open.add(self)

    def close(self) -> None:
        """Close the file, which releases the lock; may be called again."""
        with _guard:
            self._close()

    def _close(self) -> None:
        if self.number is not None:
            os.close(self.number)
        self.number = None
        _open.discard(self)


def _after_fork() -> None:
    # The parent keeps the lock when the child closes its copy.
    for descriptor in [*_open]:
        descriptor._close()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_after_fork)


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
    descriptor = _Descriptor(path)
    try:
        taken = _flock(descriptor, wait=wait)
        if taken is not None:
            yield taken
            return
    finally:
        descriptor.close()
    with _marker_held(path.with_name(f"{path.name}.held"), wait=wait) as taken:
        yield taken


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder against other threads and processes, for moments only, never during a launch.

    Raises:
        DeployError: The lock cannot be acquired.
    """
    make_folder(folder)
    path = folder / ".lock"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held(path))
        except OSError as error:
            raise file_error(path, "locked", error) from error
        yield


def _flock(descriptor: _Descriptor, *, wait: bool) -> bool | None:
    """Acquire the lock of an open file. None: the file system has no locks."""
    try:
        fcntl.flock(descriptor.number or 0, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    return True


@contextlib.contextmanager
def _marker_held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a marker file, which is created exclusively."""
    owner = this_process()
    hold(owner)
    taken = False
    try:
        taken = _create(path, owner)
        end, last = time.monotonic() + LIMIT_S, _content(path)
        while not taken and wait:
            now = _content(path)
            if now != last:
                end, last = time.monotonic() + LIMIT_S, now
            if time.monotonic() > end:
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"{describe_owner(_owner(now))} has held it for {LIMIT_S:.0f} s; end that process, or remove "
                    f"{path} if it is gone",
                    str(path),
                )
            time.sleep(POLL_S)
            taken = _create(path, owner)
        yield taken
    finally:
        # A forked child also runs this block, and does not own the lock.
        if taken and os.getpid() == owner.pid:
            path.unlink(missing_ok=True)
        # Last: any process may remove a lock whose owner has released it.
        let_go(owner)


def _create(path: Path, owner: Owner) -> bool:
    """Create a marker file; one whose owner has ended is removed first."""
    with contextlib.suppress(FileExistsError):
        return _write(path, owner)
    last = _content(path)
    found = _owner(last)
    # A file that is being written has no owner yet.
    if found is None or is_working(found):
        return False
    aside = path.with_name(f"{path.name}.removing")
    try:
        _write(aside, owner)
    except FileExistsError:
        _remove_old(aside)
        return False
    try:
        # An owner removes its file before it releases the claim, so this file is not the next owner's.
        if _content(path) == last:
            path.unlink(missing_ok=True)
    finally:
        aside.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        return _write(path, owner)
    return False


def _remove_old(path: Path) -> None:
    """Remove the file of a process that was killed while it removed a lock."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime > LIMIT_S:
            path.unlink()


def _write(path: Path, owner: Owner) -> bool:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps(dataclasses.asdict(owner)).encode())
    finally:
        os.close(handle)
    return True


def _content(path: Path) -> bytes | None:
    """Return the content of a marker file. None: it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _owner(content: bytes | None) -> Owner | None:
    """Return the owner in a marker file. None: it has none."""
    try:
        return Owner(**json.loads(content or b""))
    except (ValueError, TypeError):
        return None
