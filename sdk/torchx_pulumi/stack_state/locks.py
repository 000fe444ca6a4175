"""A lock on a file, against other threads and other processes, on file systems with locks and without.

`flock` is what is used wherever it works. Lustre and NFS may refuse it: then a second file, made so that only one can
make it, stands for the lock and names its owner. POSIX record locks are no third way: a process loses all of them on a
file as soon as any thread of it closes that file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from torchx_pulumi.model.app_entry import Owner
from torchx_pulumi.stack_state.owner import describe_owner, hold, is_working, let_go, this_process

NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""What a file system without locks says."""

POLL_S = 0.02
LIMIT_S = 60.0
"""How long a file that stands for a lock is waited for; who holds one, holds it for moments."""

_guard = threading.Lock()
"""Held while a descriptor is opened or closed, and while the process forks."""

_open: set[_Descriptor] = set()
"""Descriptors of locks that this process holds or waits for. A fork has a copy of each, which would keep the lock."""


class _Descriptor:
    """An open file that carries a `flock`."""

    def __init__(self, path: Path) -> None:
        with _guard:
            self.number: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open.add(self)

    def close(self) -> None:
        """Close the file, which gives the lock back; may be called again."""
        with _guard:
            self._close()

    def _close(self) -> None:
        if self.number is not None:
            os.close(self.number)
        self.number = None
        _open.discard(self)


def _after_fork() -> None:
    # Closing a copy leaves the lock with the parent.
    for descriptor in [*_open]:
        descriptor._close()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_after_fork)


@contextlib.contextmanager
def held(path: Path, *, wait: bool = True, per_host: bool = False) -> Iterator[bool]:
    """Hold the lock of a file; a process that ends gives it back.

    Args:
        path: The file; it is made if it is absent, and stays.
        wait: Wait until the lock is free.
        per_host: Where the file system has no locks, hosts that share the folder do not exclude each other.

    Yields:
        Whether the lock is held. False: it is not free, and `wait` is False.

    Raises:
        OSError: The file cannot be written.
        TimeoutError: The file system has no locks, and another process did not give this one back.
    """
    descriptor = _Descriptor(path)
    try:
        taken = _flock(descriptor, wait=wait)
        if taken is not None:
            yield taken
            return
    finally:
        descriptor.close()
    name = f"{path.name}.{socket.gethostname()}.held" if per_host else f"{path.name}.held"
    with _marked(path.with_name(name), wait=wait) as taken:
        yield taken


def _flock(descriptor: _Descriptor, *, wait: bool) -> bool | None:
    """Take the lock of an open file. None: the file system has no locks."""
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
def _marked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file that only one can make."""
    owner = this_process()
    hold(owner)
    taken = False
    try:
        taken = _make(path, owner)
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
            taken = _make(path, owner)
        yield taken
    finally:
        # A fork has a copy of this block, and not of the lock.
        if taken and os.getpid() == owner.pid:
            path.unlink(missing_ok=True)
        # Last: a lock whose owner has let go is anybody's to remove.
        let_go(owner)


def _make(path: Path, owner: Owner) -> bool:
    """Make the file of a lock; one whose owner does not work any more is removed first."""
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
        # An owner removes its file before it lets go. A file that is still there now is not the next owner's.
        if _content(path) == last:
            path.unlink(missing_ok=True)
    finally:
        aside.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        return _write(path, owner)
    return False


def _remove_old(path: Path) -> None:
    """Remove a file that a process left which was killed while it removed a lock."""
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
    """Return what a lock's file says. None: there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _owner(content: bytes | None) -> Owner | None:
    """Return the owner that a lock's file names. None: it names none."""
    try:
        return Owner(**json.loads(content or b""))
    except (ValueError, TypeError):
        return None
