"""Where an archive keeps its files: a folder or an object store. Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from torchx_pulumi.model.errors import DeployError
from torchx_pulumi.stack_state.files import ABSENT, make_folder
from torchx_pulumi.stack_state.store import ObjectStore, open_store

BLOCK_BYTES = 1 << 20
"""Bytes that are copied at once."""

REQUEST_TIMEOUT_S = 30.0
"""Timeout of one request to an object store."""

STALE_S = 3600.0
"""Age of a temporary file whose writer was killed."""


class LogStorage(Protocol):
    """Files of an archive by their path in it.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the storage cannot be used, with
    errno ENOSPC if it is full.
    """

    def read(self, path: str) -> bytes | None:
        """Return the content of a file. None: it does not exist."""

    def open(self, path: str) -> BinaryIO | None:
        """Open a file for reading. None: it does not exist."""

    def put(self, path: str, source: BinaryIO) -> None:
        """Write a file with all that can be read of a source. Until it is complete, readers see the old file."""

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it. Empty `folder`: the whole archive."""

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_empty_folders(self, folder: str) -> None:
        """Remove a folder and the folders in it and above it that have no files."""


class FolderStorage:
    """`LogStorage` in a folder. Its files have mode 0600, folders that it makes have 0700."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> bytes | None:
        """Return the content of a file. None: it does not exist."""
        try:
            return (self._root / path).read_bytes()
        except ABSENT:
            return None

    def open(self, path: str) -> BinaryIO | None:
        """Open a file for reading. None: it does not exist."""
        try:
            return (self._root / path).open("rb")
        except ABSENT:
            return None

    def put(self, path: str, source: BinaryIO) -> None:
        """Write a file with all that can be read of a source."""
        target = self._root / path
        handle, temporary = self._temporary_file(target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                shutil.copyfileobj(source, file, BLOCK_BYTES)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(target)
            temporary = ""
        finally:
            if temporary:
                Path(temporary).unlink(missing_ok=True)

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it."""
        top = self._root / folder
        found = []
        for path, _, names in os.walk(top, onerror=_raise_unless_absent):
            found += [(Path(path) / name).relative_to(top).as_posix() for name in names if not name.startswith(".")]
        return sorted(found)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(*ABSENT):
            (self._root / path).unlink()

    def remove_empty_folders(self, folder: str) -> None:
        """Remove a folder and the folders in it and above it that have no files."""
        for path, _, _ in os.walk(self._root / folder, topdown=False):
            _remove_if_empty(Path(path))
        for above in Path(folder).parents:
            if above != Path():
                _remove_if_empty(self._root / above)

    def _temporary_file(self, folder: Path) -> tuple[int, str]:
        """Create a temporary file, readable by its owner only, in a folder that is made if it is absent."""
        try:
            make_folder(folder)
        except DeployError as error:
            raise cast("OSError", error.__cause__) from error
        with os.scandir(folder) as entries:
            hidden = [entry for entry in entries if entry.name.startswith(".") and entry.name.endswith(".tmp")]
        for entry in hidden:
            with contextlib.suppress(FileNotFoundError):
                if time.time() - entry.stat().st_mtime > STALE_S:
                    Path(entry.path).unlink()
        return tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)


class ObjectStorage:
    """`LogStorage` in an object store, through the clients of Pulumi backends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: ObjectStore | None = None
        self._lock = threading.Lock()

    def read(self, path: str) -> bytes | None:
        """Return the content of an object. None: it does not exist."""
        return self._store().read_bytes(path)

    def open(self, path: str) -> BinaryIO | None:
        """Open an object for reading. None: it does not exist."""
        return self._store().open(path)

    def put(self, path: str, source: BinaryIO) -> None:
        """Write an object with all that can be read of a source, in parts if it is large."""
        self._store().upload(path, source)

    def paths(self, folder: str) -> list[str]:
        """Return the paths of all objects below a folder, relative to it: one request for 1,000 objects."""
        return self._store().paths(folder)

    def remove(self, path: str) -> None:
        """Remove an object, if it exists."""
        self._store().remove(path)

    def remove_empty_folders(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""

    def _store(self) -> ObjectStore:
        """Return the client, which is opened by the first call."""
        with self._lock:
            if self._opened is None:
                store = open_store(self._url, REQUEST_TIMEOUT_S)
                if not isinstance(store, ObjectStore):
                    raise OSError(
                        f"objects at {self._url.partition('?')[0]} cannot be accessed: no client is installed"
                    )
                self._opened = store
            return self._opened


def _remove_if_empty(folder: Path) -> None:
    # It has other files, is a link, or may not be removed: an empty folder harms no reader.
    with contextlib.suppress(OSError):
        folder.rmdir()


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, ABSENT):
        raise error
