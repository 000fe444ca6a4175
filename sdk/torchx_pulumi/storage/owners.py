"""Owners of apps and locks: processes, and whether they still run; lock files that exclude threads and processes.

Processes of the same boot and PID namespace are looked up in the process table. Those of an earlier container of this
pod have ended. For all others the lease decides, which the owner of an app renews before each step and while it waits
(docs/decisions/0010).

`filelock` uses `flock`, which the end of a process releases and which a forked child does not keep. Lustre and NFS may
refuse it; the lock is then a second file that is created exclusively and names its owner. It is removed if its owner
has ended, which only a process of the same host and PID namespace can tell.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path

from torchx_pulumi.model.app_entry import Owner
from torchx_pulumi.storage.files import file_errors, make_folder

CheckOwner = Callable[[], None]
"""Called before each step of a launch or a deletion and while it waits.

It renews the lease. It raises TakenOverError if another process has taken the app over; the caller then stops without
further changes.
"""

LEASE_VARIABLE = "TORCHX_PULUMI_LEASE_S"

POD_VARIABLE = "TORCHX_PULUMI_POD_UID"
"""Variable with the uid of the pod of this process, which only one container of the pod may have."""

NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
"""Error numbers of a file system without locks."""

POLL_S = 0.01
LIMIT_S = 60.0
"""Longest wait on a file system without locks; locks are held for moments."""

_PROC = Path("/proc")

_BOOT_SLACK_S = 60.0
"""Tolerance for boot times, which change when the clock is set. They identify a boot that has no id."""

_held: set[tuple[str, int]] = set()
"""Claims that this process holds, with its process id: a forked child does not continue its parent's work."""


class Life(Enum):
    """State of an owner."""

    WORKS = "works"
    """The process runs; or it cannot be looked up from here and its lease has not expired."""
    EXPIRED = "expired"
    """The process cannot be looked up from here, and its lease has expired. It may have ended or be suspended."""
    ENDED = "ended"
    """The process has ended, or has released the app."""


def unowned() -> None:
    """Do nothing: the `CheckOwner` of a caller without an index entry."""


def lease_s() -> float:
    """Return the duration of a lease in seconds: TORCHX_PULUMI_LEASE_S, at least 1; default 120."""
    given = os.environ.get(LEASE_VARIABLE, "")
    return max(float(given), 1.0) if re.fullmatch(r"\d+(\.\d+)?", given) else 120.0


def this_process() -> Owner:
    """Return this process as an owner with a new claim and a new lease."""
    return replace(local_process(os.getpid()), claim=secrets.token_hex(8))


def local_process(pid: int) -> Owner:
    """Return a process of this PID namespace as an owner with a new lease."""
    owner = Owner(host=socket.gethostname(), pid=pid, started=started(pid), pod_uid=os.environ.get(POD_VARIABLE))
    return renewed(replace(owner, boot_id=boot_id(), pid_namespace=pid_namespace()))


def renewed(owner: Owner) -> Owner:
    """Return an owner with a new lease."""
    now = time.time()
    return replace(owner, seen_at=now, lease_until=now + lease_s())


def is_same(one: Owner | None, other: Owner | None) -> bool:
    """Return whether two owners are the same claim of the same process; leases are ignored."""
    if one is None or other is None:
        return one is other
    return replace(one, seen_at=other.seen_at, lease_until=other.lease_until) == other


@contextlib.contextmanager
def holding(owner: Owner) -> Iterator[None]:
    """Hold the claim of an owner, which is this process, until the block ends."""
    claim = (owner.claim, os.getpid())
    _held.add(claim)
    try:
        yield
    finally:
        _held.discard(claim)


def life_of(owner: Owner | None) -> Life:
    """Return the state of an owner; None has ended."""
    if owner is None:
        return Life.ENDED
    if not is_here(owner):
        if owner.pod_uid and owner.pod_uid == os.environ.get(POD_VARIABLE):
            # An earlier container of this pod: the next one is started after it has ended.
            return Life.ENDED
        return Life.WORKS if (owner.lease_until or 0.0) > time.time() else Life.EXPIRED
    is_own = owner.claim and owner.pid == os.getpid() and owner.started == started(owner.pid)
    works = (owner.claim, owner.pid) in _held if is_own else lives(owner.pid, owner.started)
    return Life.WORKS if works else Life.ENDED


def is_working(owner: Owner | None) -> bool:
    """Return whether an owner still works, judged by its process or, on another host, by its lease."""
    return life_of(owner) is Life.WORKS


def describe_owner(owner: Owner | None) -> str:
    """Return a description of an owner: process id, host, and time since its last lease renewal."""
    if owner is None:
        return "another process"
    where = "" if is_here(owner) else " (which cannot be seen from here)"
    seen = "" if owner.seen_at is None else f", last seen {_age(time.time() - owner.seen_at)} ago"
    return f"process {owner.pid} on {owner.host}{where}{seen}"


def lives(pid: int, since: str = "") -> bool:
    """Return whether a local process is running; a zombie is not.

    Args:
        pid: Its process id in this PID namespace.
        since: Its start (`started`); empty if unknown.
    """
    if pid <= 0:
        return False
    import psutil  # 50 ms, and often not needed

    try:
        if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return False
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        # Another user's process, whose start is not known either.
        return True
    now = started(pid)
    return not since or not now or since == now


def started(pid: int) -> str:
    """Return the start of a process, which distinguishes it from a later process with the same id.

    Empty: the process has ended or is not readable. On Linux: boot id and clock tick, which setting the clock does not
    change. Elsewhere: the start time of psutil.
    """
    if not (_PROC / "self" / "stat").exists():
        since = started_at(pid)
        return "" if since is None else f"{since:.3f}"
    try:
        # The process name before these fields may contain spaces and parentheses.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot_id()}:{fields[19].decode()}"
    except (OSError, IndexError):
        return ""


def started_at(pid: int) -> float | None:
    """Return the start time of a local process in seconds since 1970, or None if it has ended."""
    import psutil  # see above

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def boot_id() -> str:
    """Return an identifier of this boot: its id on Linux, `host@seconds since 1970` elsewhere."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil  # see above

        return f"{socket.gethostname()}@{psutil.boot_time():.0f}"


def pid_namespace() -> int | None:
    """Return the inode of this process's PID namespace, or None if the system has none."""
    try:
        return (_PROC / "self" / "ns" / "pid").stat().st_ino
    except OSError:
        return None


def is_here(owner: Owner) -> bool:
    """Return whether an owner's process can be looked up from here: it is of the same boot and PID namespace."""
    if owner.boot_id is None or owner.pid_namespace != pid_namespace():
        return False
    here = boot_id()
    (host, _, at), (this_host, _, this_at) = owner.boot_id.rpartition("@"), here.rpartition("@")
    is_near = at.isdigit() and this_at.isdigit() and abs(int(at) - int(this_at)) < _BOOT_SLACK_S
    return owner.boot_id == here or (bool(host) and host == this_host and is_near)


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
                f"{_holder(Path(error.lock_file))} has held it for {LIMIT_S:.0f} s; end that process, or remove "
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


def _holder(path: Path) -> str:
    """Return a description of the owner in a lock file, whose first lines are its process id and host."""
    try:
        pid, host = path.read_text(encoding="utf-8").splitlines()[:2]
    except (OSError, ValueError):
        return "another process"
    # Linux adds the PID namespace to the host.
    return f"process {pid} on {host.partition('?')[0]}"


def _age(seconds: float) -> str:
    """Return a duration in the unit that fits it."""
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"
