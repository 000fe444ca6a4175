"""Uploads that were begun, in the user's cache: an attempt after a killed one continues where the registry is."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from torchx_pulumi.images.content.hashing import cache_folder
from torchx_pulumi.images.reference import Reference

_KEPT_S: Final = 7 * 86_400.0
"""Seconds after which a file is removed. Registries remove uploads after a week by default."""


class UploadSession:
    """The address at which an upload continues."""

    def __init__(self, file: int | None, path: Path | None, location: str | None) -> None:
        self._file = file
        self._path = path
        self._location = location

    @property
    def location(self) -> str | None:
        """Return the address. None: no upload was begun."""
        return self._location

    @location.setter
    def location(self, location: str | None) -> None:
        self._location = location
        if self._file is None or self._path is None:
            return
        # Without the file, the next attempt begins again.
        with contextlib.suppress(OSError):
            if location is None:
                os.ftruncate(self._file, 0)
            else:
                # A process that is killed has written all of a line or nothing. What follows the line is old.
                os.pwrite(self._file, f"{json.dumps({'location': location})}\n".encode(), 0)

    def finish(self) -> None:
        """Remove the file of an upload that is complete."""
        self._location = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


def session_folder() -> Path:
    """Return the folder of the user's uploads."""
    return cache_folder().with_name("uploads")


@contextlib.contextmanager
def upload_session(target: Reference, digest: str) -> Iterator[UploadSession]:
    """Yield the session of a blob's upload. One that another process uses is not continued.

    Args:
        target: The repository.
        digest: Digest of the blob.
    """
    folder = session_folder()
    name = hashlib.sha256(f"{target.registry}/{target.path}@{digest}".encode()).hexdigest()[:40]
    path = folder / f"{name}.json"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _remove_old(folder)
            # The address may hold a token of the registry.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            location = _location(os.pread(file, 1 << 16, 0))
        except OSError:
            yield UploadSession(None, None, None)
            return
        yield UploadSession(file, path, location)


def _location(content: bytes) -> str | None:
    try:
        found = json.loads(content.partition(b"\n")[0]).get("location")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def _remove_old(folder: Path) -> None:
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _KEPT_S:
                path.unlink()
