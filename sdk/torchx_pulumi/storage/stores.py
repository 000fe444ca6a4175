"""Folders and object stores, with the same methods: the files of Pulumi backends and of log archives."""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs, urlsplit

from torchx_pulumi.model.object_schemes import CONNECTIONS, SCHEMES, ObjectScheme
from torchx_pulumi.storage.files import ABSENT, make_private_folder, replacing, share, shared_umask

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 1.0
"""Timeout of one request to an object store while a lock is held."""

READ_TIMEOUT_S = 10.0
"""Timeout of one request of a reader."""

UPLOAD_BYTES = 8 << 20
"""Bytes of a part of an upload."""

STALE_S = 3600.0
"""Age of the temporary file of an upload whose process was killed."""

REFUSALS = re.compile("Auth|Credential|Profile|Refresh|SSO|Token")
"""Part of the names of the errors of botocore, google.auth and azure.core for missing or invalid credentials."""

REFUSED_STATUS = {"401", "403"}
"""Status codes of HTTP responses that deny access."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The content of a file."""

    data: bytes
    tag: str | None = None
    """ETag of this version of the file. None: the store has no ETags."""


class _Files(ABC):
    """Files by their path below a root, for example `.pulumi/meta.yaml`.

    Methods raise `PermissionError` if access is denied, and another `OSError` if the store cannot be used, with errno
    ENOSPC if it is full.
    """

    @abstractmethod
    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a file by one request, or None if it does not exist."""

    def read(self, path: str) -> Stored | None:
        """Return a file with its version, or None if it does not exist."""
        try:
            # The version first: content that is replaced in between then has another version.
            tag, data = self._tag(path), self.read_bytes(path)
        except FileNotFoundError:
            return None
        return None if data is None else Stored(data=data, tag=tag)

    def is_unchanged(self, path: str, stored: Stored) -> bool:
        """Return whether a file still has the ETag of an earlier read, or without ETags the same content."""
        try:
            return self.read_bytes(path) == stored.data if stored.tag is None else self._tag(path) == stored.tag
        except FileNotFoundError:
            return False

    def _tag(self, path: str) -> str | None:  # noqa: ARG002 - only objects have one
        """Return the ETag of a file, or None if the store has no ETags. An absent file raises `FileNotFoundError`."""
        return None


class FolderStore(_Files):
    """Files in a folder."""

    keeps_backups = True
    """A checkpoint that was cut off is restored from its `.bak`."""

    reads_at_once = 1
    """How many threads may read at the same time: more do not read files faster, as Python's own work takes the time.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_bytes(self, path: str) -> bytes | None:
        try:
            return (self._root / path).read_bytes()
        except ABSENT:
            return None

    def open(self, path: str) -> BinaryIO | None:
        """Open a file for reading in blocks, or return None if it does not exist."""
        try:
            return (self._root / path).open("rb")
        except ABSENT:
            return None

    def write(self, path: str, data: bytes, *, replaces: Stored | None = None) -> None:  # noqa: ARG002 - no versions
        """Write a file atomically, with the permissions of the one before it.

        A store with ETags refuses the write if the file is no longer `replaces`.
        """
        target = self._root / path
        with replacing(target) as file:
            if target.exists():
                os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            file.write(data)

    def upload(self, path: str, source: BinaryIO, *, private: bool = True) -> None:
        """Write a file atomically with all that can be read of a source: all of it or nothing.

        The file and the folders that are created for it are readable by their owner only. If it is not private, it and
        its folder have the permissions that the umask leaves.
        """
        target = self._root / path
        make_private_folder(target.parent if private else target.parent.parent)
        target.parent.mkdir(exist_ok=True)
        for hidden in target.parent.glob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - hidden.stat().st_mtime > STALE_S:
                    hidden.unlink()
        with replacing(target, mode=0o600 if private else 0o666, sync=True) as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def lock(self, path: str, data: bytes) -> None:
        """Write a lock atomically. No other file may appear in its folder: Pulumi treats each one as a lock."""
        target = self._root / path
        # Not with all parents: a folder that is not mounted any more must not come to look like an empty backend.
        folder = self._root / Path(path).parts[0]
        for name in Path(path).parent.parts[1:]:
            folder /= name
            folder.mkdir(exist_ok=True)
        # Another member of the group writes its own lock there next.
        share(self._root, *(folder for folder in target.parents if self._root in folder.parents))
        umask = shared_umask(self._root)
        with replacing(target, folder=target.parent.parent) as file:
            if umask is not None:
                os.fchmod(file.fileno(), 0o666 & ~umask)
            file.write(data)

    def paths(self, folder: str) -> list[str]:
        """Return the sorted paths of all files below a folder, relative to it; empty if it does not exist.

        A link to a folder above it is passed over.
        """
        return sorted(path for path, _ in _files_below(self._root / folder))

    def versions(self, folder: str) -> dict[str, str]:
        """Return path and version of all files below a folder: time of change, size and inode, or the ETag.

        A file with the same version is unchanged. An empty version is unknown.
        """
        found = {}
        for path, entry in _files_below(self._root / folder):
            try:
                stat = entry.stat()
                found[path] = f"{stat.st_mtime_ns}.{stat.st_size}.{stat.st_ino}"
            except ABSENT:
                continue
            except OSError as error:
                # Of a link to itself, its reader says so; the other files are listed.
                if error.errno != errno.ELOOP:
                    raise
                found[path] = ""
        return found

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(*ABSENT):
            (self._root / path).unlink()

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder, unless it has files, is a link, or cannot be removed."""
        with contextlib.suppress(OSError):
            (self._root / folder).rmdir()

    def remove_empty_folders(self, folder: str) -> None:
        """Remove a folder and the folders in it and above it that have no files."""
        for path, _, _ in os.walk(self._root / folder, topdown=False):
            self.remove_if_empty(path)
        for above in Path(folder).parents:
            if above != Path():
                self.remove_if_empty(str(above))


@contextlib.contextmanager
def as_os_error() -> Iterator[None]:
    """Convert the errors of object store clients to `PermissionError` and `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        response = getattr(error, "response", None)
        answer = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
        status = {str(answer), str(getattr(error, "status_code", None)), str(getattr(error, "code", None))}
        refused = status & REFUSED_STATUS or any(REFUSALS.search(base.__name__) for base in type(error).__mro__)
        raise (PermissionError if refused else OSError)(f"{type(error).__name__}: {error}") from error


class ObjectStore(_Files):
    """Objects in a bucket or container, through a file system of fsspec; the methods are those of `FolderStore`."""

    # Writes of objects are atomic, and Pulumi never reads `.bak`.
    keeps_backups = False
    reads_at_once = CONNECTIONS

    def __init__(self, files: Any, root: str) -> None:
        """Take a file system.

        Args:
            files: The file system.
            root: Bucket or container, and the folder in it.
        """
        self._files = files
        self._root = root.rstrip("/")

    @as_os_error()
    def read_bytes(self, path: str) -> bytes | None:
        try:
            return bytes(self._files.cat_file(f"{self._root}/{path}"))
        except FileNotFoundError:
            return None

    @as_os_error()
    def _tag(self, path: str) -> str | None:
        tag: str | None = self._files.info(f"{self._root}/{path}", refresh=True).get("ETag")
        return tag

    @as_os_error()
    def open(self, path: str) -> BinaryIO | None:
        try:
            return cast("BinaryIO", self._files.open(f"{self._root}/{path}", "rb", cache_type="readahead"))
        except FileNotFoundError:
            return None

    @as_os_error()
    def write(self, path: str, data: bytes, *, replaces: Stored | None = None) -> None:
        condition = {"IfMatch": replaces.tag} if replaces is not None and replaces.tag is not None else {}
        self._files.pipe_file(f"{self._root}/{path}", data, **condition)

    @as_os_error()
    def upload(self, path: str, source: BinaryIO, *, private: bool = True) -> None:  # noqa: ARG002 - the bucket says it
        target = self._files.open(f"{self._root}/{path}", "wb", block_size=UPLOAD_BYTES)
        try:
            while block := source.read(UPLOAD_BYTES):
                target.write(block)
            target.close()
        except BaseException:
            target.discard()
            target.closed = True
            raise

    def lock(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def paths(self, folder: str) -> list[str]:
        return sorted(self.versions(folder))

    @as_os_error()
    def versions(self, folder: str) -> dict[str, str]:
        """Return path and ETag of all objects below a folder: one request for 1,000 objects."""
        root = f"{self._root}/{folder}/" if folder else f"{self._root}/"
        try:
            found = self._files.find(root.rstrip("/"), detail=True)
        except FileNotFoundError:
            return {}
        return {
            path.partition(root.lstrip("/"))[2]: str(item.get("ETag") or item.get("etag") or "")
            for path, item in found.items()
        }

    @as_os_error()
    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{path}")

    def remove_if_empty(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""

    def remove_empty_folders(self, folder: str) -> None:
        """Do nothing: an object store has no folders."""


Store = FolderStore | ObjectStore


def object_scheme(url: str) -> ObjectScheme | None:
    """Return how the object store of a URL is read and written. None: the URL is of another kind."""
    return SCHEMES.get(urlsplit(url).scheme)


@as_os_error()
def open_objects(url: str, timeout_s: float = REQUEST_TIMEOUT_S) -> ObjectStore | None:
    """Open a bucket or container.

    Args:
        url: Its URL, as Pulumi accepts it for a backend.
        timeout_s: Timeout of one request, where the client of the store has one.

    Returns:
        The store. None: the URL is of another kind, or the package for it is not installed, which is logged.

    Raises:
        PermissionError: The user has no credentials for it.
        OSError: The store refuses its settings, or the URL is not valid.
    """
    scheme, address = object_scheme(url), urlsplit(url)
    if scheme is None:
        return None
    given = {name: values[-1] for name, values in parse_qs(address.query).items()}
    settings = scheme.settings(given, os.environ, timeout_s)
    try:
        make = getattr(importlib.import_module(scheme.package), scheme.file_system)
        files = make(use_listings_cache=False, skip_instance_cache=True, **settings)
    except ImportError as error:
        logger.debug("objects at %s:// cannot be accessed directly: %s", address.scheme, error)
        return None
    if scheme.tries is not None:
        files.retries = scheme.tries
    parts = (part.strip("/") for part in (address.netloc, given.get("prefix", ""), address.path))
    return ObjectStore(files, "/".join(part for part in parts if part))


def _files_below(folder: Path, above: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield path and entry of all files below a folder; `above` is the beginning of the paths."""
    try:
        with os.scandir(folder) as listed:
            entries = [*listed]
    except ABSENT:
        return
    for entry in entries:
        if _is_folder(entry):
            if not _leads_up(Path(entry.path)):
                yield from _files_below(Path(entry.path), f"{above}{entry.name}/")
        elif not (entry.name.startswith(".") and entry.name.endswith(".tmp")):
            # Those of `replacing` are being written.
            yield f"{above}{entry.name}", entry


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or leads to one. A link to itself does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _leads_up(path: Path) -> bool:
    """Return whether a path is a link to a folder above it, below which all would be found again."""
    return path.is_symlink() and path.resolve() in {folder.resolve() for folder in path.parents}
