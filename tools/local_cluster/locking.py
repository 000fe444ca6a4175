"""Locks that keep two runs of the tool from working on one thing at a time. They vanish with the process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from tools.local_cluster.layout import Layout
from tools.local_cluster.progress import Progress


@contextlib.contextmanager
def cluster_lock(layout: Layout, progress: Progress) -> Iterator[None]:
    """Hold one cluster; wait for another run that does, and say so."""
    # The folder above is shared with the records of launched apps, which are closed to others as well.
    layout.lock.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    layout.lock.parent.mkdir(exist_ok=True, mode=0o700)
    begin, said = time.monotonic(), False
    while (descriptor := _try_lock(layout)) is None:
        if not said:
            progress.say(f"another run is working on cluster {layout.name!r}: waiting for it to finish")
            said = True
        progress.waiting([f"the other run on {layout.name!r}"], time.monotonic() - begin)
        time.sleep(0.1)
    progress.waiting([], 0)
    try:
        yield
    finally:
        if not layout.root.exists():
            layout.lock.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def choosing_lock(layout: Layout) -> Iterator[None]:
    """Hold the folder of all clusters for the moment in which ports and addresses are chosen and written down."""
    descriptor = os.open(layout.root.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(layout: Layout) -> int | None:
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if layout.lock.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass  # held, or removed by its last holder in between
    os.close(descriptor)
    return None
