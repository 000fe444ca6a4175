"""Which process works on an app, and whether it still does.

Processes of one boot and one PID namespace can see each other: the process table decides. Of all others only the lease
is known, which an owner renews before each step and while it waits (docs/decisions/0010).
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from torchx_pulumi.model.app_entry import Owner

CheckOwner = Callable[[], None]
"""Called before each step of a launch or a deletion and while it waits.

It renews the lease. It raises TakenOverError where another process has taken the app over; the caller then stops and
changes nothing more.
"""

LEASE_VARIABLE = "TORCHX_PULUMI_LEASE_S"

_PROC = Path("/proc")

_BOOT_SLACK_S = 60.0
"""Where a boot has no id it is known by its time, which moves when the clock is set."""

_held: set[tuple[str, int]] = set()
"""What this process works on: the claim, and the process id (a fork does not continue its parent's work)."""

_guard = threading.Lock()


class Life(Enum):
    """What is known of an owner."""

    WORKS = "works"
    """The process is at work; or it cannot be seen from here and its lease has not expired."""
    EXPIRED = "expired"
    """The process cannot be seen from here, and its lease has expired. It may have ended or be asleep."""
    ENDED = "ended"
    """The process has ended, or does not work on the app any more."""


def unowned() -> None:
    """Check nothing: the `CheckOwner` of a caller that has no index entry."""


def lease_s() -> float:
    """Return for how many seconds an owner is taken to be at work after its last sign of life."""
    given = os.environ.get(LEASE_VARIABLE, "")
    return max(float(given), 1.0) if re.fullmatch(r"\d+(\.\d+)?", given) else 120.0


def this_process() -> Owner:
    """Return this process as an owner, with a claim of its own and a new lease."""
    pid = os.getpid()
    now = time.time()
    return Owner(
        host=socket.gethostname(),
        pid=pid,
        started=started(pid),
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        claim=secrets.token_hex(8),
        seen_at=now,
        lease_until=now + lease_s(),
    )


def renewed(owner: Owner) -> Owner:
    """Return an owner with a new lease."""
    now = time.time()
    return dataclasses.replace(owner, seen_at=now, lease_until=now + lease_s())


def is_same(one: Owner | None, other: Owner | None) -> bool:
    """Return whether two owners are the same claim of the same process, whatever their leases say."""
    if one is None or other is None:
        return one is other
    return dataclasses.replace(one, seen_at=None, lease_until=None) == dataclasses.replace(
        other, seen_at=None, lease_until=None
    )


def hold(owner: Owner) -> None:
    """Note that this process works on what an owner claimed."""
    with _guard:
        _held.add((owner.claim, os.getpid()))


def let_go(owner: Owner) -> None:
    """Note that this process does not work on it any more."""
    with _guard:
        _held.discard((owner.claim, os.getpid()))


def life_of(owner: Owner | None) -> Life:
    """Return what is known of an owner."""
    if owner is None:
        return Life.ENDED
    if _is_near(owner):
        if owner.claim and owner.pid == os.getpid() and owner.started == started(owner.pid):
            with _guard:
                return Life.WORKS if (owner.claim, owner.pid) in _held else Life.ENDED
        return Life.WORKS if lives(owner.pid, owner.started) else Life.ENDED
    return Life.WORKS if (owner.lease_until or 0.0) > time.time() else Life.EXPIRED


def is_working(owner: Owner | None) -> bool:
    """Return whether an owner has to be taken to be at work."""
    return life_of(owner) is Life.WORKS


def describe_owner(owner: Owner | None) -> str:
    """Return an owner in words: its process, its host, and when it gave its last sign of life."""
    if owner is None:
        return "another process"
    where = "" if _is_near(owner) else " (which cannot be seen from here)"
    seen = "" if owner.seen_at is None else f", last seen {_age(time.time() - owner.seen_at)} ago"
    return f"process {owner.pid} on {owner.host}{where}{seen}"


def lives(pid: int, since: str = "") -> bool:
    """Return whether a process of this machine and PID namespace lives.

    Args:
        pid: Its number.
        since: When it started, as `started` says it. Empty: not known.
    """
    if pid <= 0:
        return False
    import psutil  # 50 ms, and not needed where nothing is under way

    try:
        if psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return False
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        # Another user's process; when it started is not known either.
        return True
    now = started(pid)
    return not since or not now or since == now


def started(pid: int) -> str:
    """Return what tells a process from a later one with its number. Empty: the process is gone or not readable.

    On Linux: the boot and the clock tick in it, as 0.1.0 wrote it. Elsewhere: the time of its start.
    """
    try:
        # The name before them may hold spaces and parentheses.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return f"{_boot_id_of_linux()}:{fields[19].decode()}"
    except (OSError, IndexError):
        if (_PROC / "self" / "stat").exists():
            return ""
    import psutil  # see above

    try:
        return f"{psutil.Process(pid).create_time():.3f}"
    except psutil.Error:
        return ""


def started_at(pid: int) -> float | None:
    """Return when a process of this machine started, in seconds since 1970. None: the process is gone."""
    import psutil  # see above

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def boot_id() -> str:
    """Return what tells this boot of this machine from all others."""
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


def is_here(boot: str | None, namespace: int | None) -> bool:
    """Return whether processes of a boot and a PID namespace can be seen from this process."""
    return boot is not None and namespace == pid_namespace() and _is_same_boot(boot, boot_id())


def _is_near(owner: Owner) -> bool:
    """Return whether an owner's process can be looked up.

    0.1.0 noted the host's name and, on Linux, the boot in `started`. Two machines may have one name.
    """
    if owner.boot_id is None:
        boot = owner.started.rpartition(":")[0]
        return owner.host == socket.gethostname() and boot in ("", _boot_id_of_linux())
    return is_here(owner.boot_id, owner.pid_namespace)


def _is_same_boot(one: str, other: str) -> bool:
    if one == other:
        return True
    hosts, times = zip(*((host, at) for host, _, at in (text.rpartition("@") for text in (one, other))), strict=True)
    if hosts[0] != hosts[1] or not all(hosts) or not all(text.isdigit() for text in times):
        return False
    return abs(int(times[0]) - int(times[1])) < _BOOT_SLACK_S


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
