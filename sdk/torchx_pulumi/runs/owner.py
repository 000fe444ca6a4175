"""Which process works on an app, and whether it still lives."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from torchx_pulumi.runs.entry import Owner

_PROC = Path("/proc")

_working: set[tuple[str, int]] = set()
"""What this process works on: key, and the process that said so (a fork knows what its parent did)."""

_guard = threading.Lock()


def this_process() -> Owner:
    """Return this process as an owner."""
    pid = os.getpid()
    return Owner(host=socket.gethostname(), pid=pid, started=_started(pid))


@contextlib.contextmanager
def working_on(key: str) -> Iterator[None]:
    """Note that this process works on something, until the block ends however it ends."""
    mark = (key, os.getpid())
    with _guard:
        _working.add(mark)
    try:
        yield
    finally:
        with _guard:
            _working.discard(mark)


def is_working(owner: Owner | None, key: str) -> bool:
    """Say whether an owner still works on something.

    Of this very process it is known; of another one of this machine, that the process lives. Another machine cannot
    be asked: its processes are taken to live.
    """
    if owner is None:
        return False
    if owner == this_process():
        with _guard:
            return (key, owner.pid) in _working
    if owner.host != socket.gethostname():
        return True
    return lives(owner.pid) and owner.started in ("", _started(owner.pid))


def lives(pid: int) -> bool:
    """Say whether a process of this machine lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A zombie can be signalled, and works no more.
    return _stat(pid)[:1] not in ([b"Z"], [b"X"])


def _started(pid: int) -> str:
    """Return when a process was started: the boot and the clock tick after it. Empty where nobody tells."""
    fields = _stat(pid)
    if len(fields) < 20:
        return ""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{boot}:{fields[19].decode()}"


def _stat(pid: int) -> list[bytes]:
    """Return the kernel's words on a process, from its state on. Empty: there are none."""
    try:
        # The name before them may hold spaces and parentheses.
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
