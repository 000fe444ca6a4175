"""A Docker daemon for e2e tests: the machine's own where one runs, else a private one; and what tests do with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.local_docker import LocalDocker, running_host


@contextlib.contextmanager
def docker_host() -> Iterator[str]:
    """Yield the DOCKER_HOST of a daemon that runs."""
    found = running_host()
    if found:
        yield found
        return
    # Sockets lie in it, whose paths the kernel cuts.
    folder = Path(tempfile.mkdtemp(prefix="txd-"))
    daemon = LocalDocker(folder)
    try:
        daemon.start()
        yield daemon.host
    finally:
        daemon.remove()
        shutil.rmtree(folder, ignore_errors=True)


def docker_environment(host: str, folder: Path) -> dict[str, str]:
    """Return the environment of programs that use a daemon: no configuration and no cache but a folder's."""
    return {
        **os.environ,
        "DOCKER_HOST": host,
        "DOCKER_CONFIG": str(folder / "docker"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
