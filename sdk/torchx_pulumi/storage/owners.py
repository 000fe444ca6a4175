"""Owners of apps and locks: processes, and whether they still run.

Processes of the same boot and PID namespace are looked up in the process table. For all others the lease decides, which
the owner of an app renews before each step and while it waits (docs/decisions/0010).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from torchx_pulumi.model.app_entry import Owner

CheckOwner = Callable[[], None]
"""Called before each step of a launch or a deletion and while it waits.

It renews the lease. It raises TakenOverError if another process has taken the app over; the caller then stops without
further changes.
"""

LEASE_VARIABLE = "TORCHX_PULUMI_LEASE_S"

POD_VARIABLE = "TORCHX_PULUMI_POD_UID"
"""Variable with the uid of the pod of this process, which only one container of the pod may have."""

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
    pid, boot = os.getpid(), boot_id()
    owner = Owner(host=socket.gethostname(), pid=pid, started=started(pid), boot_id=boot, pid_namespace=pid_namespace())
    return renewed(dataclasses.replace(owner, claim=secrets.token_hex(8)))


def renewed(owner: Owner) -> Owner:
    """Return an owner with a new lease."""
    now = time.time()
    return dataclasses.replace(owner, seen_at=now, lease_until=now + lease_s())


def is_same(one: Owner | None, other: Owner | None) -> bool:
    """Return whether two owners are the same claim of the same process; leases are ignored."""

    def without_lease(owner: Owner | None) -> Owner | None:
        return owner and dataclasses.replace(owner, seen_at=None, lease_until=None)

    return without_lease(one) == without_lease(other)


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
    """Return the state of an owner. ENDED: there is no owner."""
    if owner is None:
        return Life.ENDED
    if is_here(owner):
        is_own = owner.claim and owner.pid == os.getpid() and owner.started == started(owner.pid)
        works = (owner.claim, owner.pid) in _held if is_own else lives(owner.pid, owner.started)
        return Life.WORKS if works else Life.ENDED
    return Life.WORKS if (owner.lease_until or 0.0) > time.time() else Life.EXPIRED


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
        since: Its start (`started`). Empty: not known.
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

    Empty: the process has ended or is not readable. On Linux: boot id and clock tick, which psutil does not
    provide. Elsewhere: the start time of psutil.
    """
    try:
        # The process name before these fields may contain spaces and parentheses.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return f"{_boot_id_of_linux()}:{fields[19].decode()}"
    except (OSError, IndexError):
        if (_PROC / "self" / "stat").exists():
            return ""
    since = started_at(pid)
    return "" if since is None else f"{since:.3f}"


def started_at(pid: int) -> float | None:
    """Return the start time of a local process in seconds since 1970. None: the process has ended."""
    import psutil  # see above

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def boot_id() -> str:
    """Return an identifier of this boot: its id on Linux, `host@seconds since 1970` elsewhere."""
    found = _boot_id_of_linux()
    if found:
        return found
    import psutil  # see above

    return f"{socket.gethostname()}@{psutil.boot_time():.0f}"


def pid_namespace() -> int | None:
    """Return the inode of this process's PID namespace. None: the system has none."""
    try:
        return (_PROC / "self" / "ns" / "pid").stat().st_ino
    except OSError:
        return None


def container() -> dict[str, str] | None:
    """Return what identifies this container: the uid of its pod, and the start of its first process.

    A container is restarted after it has ended, and has another first process then: within a pod, another start is an
    earlier container that has ended. A container does not see its restart count. None: not known (POD_VARIABLE).
    """
    pod_uid, first = os.environ.get(POD_VARIABLE), started(1)
    return {"pod_uid": pod_uid, "started": first} if pod_uid and first else None


def is_here(owner: Owner) -> bool:
    """Return whether an owner's process can be looked up from here: it is of the same boot and PID namespace."""
    return (
        owner.boot_id is not None and owner.pid_namespace == pid_namespace() and _is_same_boot(owner.boot_id, boot_id())
    )


def _is_same_boot(one: str, other: str) -> bool:
    (host, _, at), (other_host, _, other_at) = one.rpartition("@"), other.rpartition("@")
    is_near = at.isdigit() and other_at.isdigit() and abs(int(at) - int(other_at)) < _BOOT_SLACK_S
    return one == other or (bool(host) and host == other_host and is_near)


def _boot_id_of_linux() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"
