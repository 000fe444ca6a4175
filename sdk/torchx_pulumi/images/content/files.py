"""Sources of a workspace's files: local folders and files, and URLs that fsspec opens. They are only read."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from torchx_pulumi.model.errors import ImageError

Mark = tuple[int, int, int, int]
"""Size, mtime and ctime in nanoseconds, inode. Equal marks mean equal bytes."""


class FileKind(str, Enum):
    """Kind of a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special"
    """Socket, pipe or device, which an image cannot contain."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a source, and its place in an image's context."""

    source: Source | GeneratedFile
    inside: str
    """Path relative to the source, with `/`. Bytes that are not UTF-8 are escaped as by `os.fsdecode`."""
    kind: FileKind
    size: int = 0
    """Size of a file in bytes."""
    executable: bool = False
    target: str = ""
    """Target of a link."""
    mark: Mark | None = None
    """None: the source has no marks."""
    path: str = ""
    """Path in the context, with `/`."""
    sha256: str = ""
    """SHA-256 of a file's content, 64 hex digits. Empty: not a file, or not hashed yet."""

    def open(self) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: The file cannot be read.
        """
        return self.source.open(self.inside)


class LocalSource:
    """A local folder or file.

    `name` is its name in messages and in the cache; `is_file` says whether it is a single file.
    """

    def __init__(self, name: str) -> None:
        try:
            self._root = os.path.realpath(Path(name).expanduser())
        except (ValueError, RuntimeError) as error:
            raise ImageError(f"workspace {name!r}: is not a path: {error}") from error
        if not os.path.exists(self._root):  # noqa: PTH110  a name of any encoding
            raise ImageError(f"workspace {name!r}: there is no such folder; relative paths start at {Path.cwd()}")
        self.name = self._root
        self.is_file = not os.path.isdir(self._root)  # noqa: PTH112

    def children(self, folder: str) -> Iterator[Entry]:
        """Yield the direct contents of a folder. The path of a single file is empty.

        Raises:
            OSError: The folder cannot be read.
        """
        if self.is_file:
            yield self._entry("", os.lstat(self._root), self._root)
            return
        prefix = f"{folder}/" if folder else ""
        with os.scandir(self._path(folder)) as entries:
            for entry in entries:
                yield self._entry(prefix + entry.name, entry.stat(follow_symlinks=False), entry.path)

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: The file cannot be read.
        """

        def at_once(name: str, flags: int) -> int:
            # Opening a pipe without a writer would block. A file may have been replaced by one, or link to one.
            return os.open(name, flags | os.O_NONBLOCK)

        file = open(self._path(path), "rb", buffering=0, opener=at_once)  # noqa: SIM115
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "is a socket, a pipe or a device", path)
        return file

    def mark(self, path: str) -> Mark | None:
        """Return the current mark of a file."""
        return _mark(os.lstat(self._path(path)))

    def _entry(self, path: str, status: os.stat_result, full: str) -> Entry:
        mode = status.st_mode
        if stat.S_ISREG(mode):
            return Entry(self, path, FileKind.FILE, status.st_size, bool(mode & stat.S_IXUSR), mark=_mark(status))
        if stat.S_ISLNK(mode):
            return Entry(self, path, FileKind.LINK, target=os.readlink(full))  # noqa: PTH115
        return Entry(self, path, FileKind.FOLDER if stat.S_ISDIR(mode) else FileKind.SPECIAL)

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root  # noqa: PTH118


def _mark(status: os.stat_result) -> Mark:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class FsspecSource:
    """A URL of fsspec, for example `s3://bucket/code` or `memory://project`. Its methods are those of `LocalSource`."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise ImageError(
                f"workspace {url!r}: a URL needs fsspec, which cannot be imported ({error}); `pip install fsspec`"
            ) from error
        try:
            # fsspec shares instances, and each of them keeps the listings that it read.
            self._fs, self._root = fsspec.core.url_to_fs(url, skip_instance_cache=True)
            self._root = str(self._root).rstrip("/")
            found: Any = self._fs.info(self._root or "/")
        except FileNotFoundError as error:
            raise ImageError(f"workspace {url!r}: there is nothing at that URL") from error
        except (OSError, ValueError, ImportError) as error:
            raise ImageError(f"workspace {url!r}: cannot be opened: {error}") from error
        self.name = url
        self.is_file = found["type"] == "file"

    def children(self, folder: str) -> Iterator[Entry]:
        """Yield the direct contents of a folder."""
        self._fs.invalidate_cache()
        if self.is_file:
            yield self._read("", self._fs.info(self._root))
            return
        for info in self._fs.ls(self._path(folder) or "/", detail=True):
            name = posixpath.basename(str(info["name"]).rstrip("/"))
            path = posixpath.join(folder, name)
            # Object stores list the marker object of a folder among its contents.
            if name and self._path(path) == self._fs._strip_protocol(str(info["name"])).rstrip("/"):
                yield self._read(path, info)

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading."""
        # The size of a listing ends the reading of some stores, whatever the object has now.
        self._fs.invalidate_cache()
        opened: IO[bytes] = self._fs.open(self._path(path), "rb")
        return opened

    def mark(self, path: str) -> Mark | None:  # noqa: ARG002  as of `LocalSource`
        """Return None: stores have no common attribute of a file's version."""
        return None

    def _read(self, path: str, info: Any) -> Entry:
        if info["type"] == "file":
            is_executable = bool(int(info.get("mode") or 0) & stat.S_IXUSR)
            return Entry(self, path, FileKind.FILE, int(info["size"] or 0), is_executable)
        return Entry(self, path, FileKind.FOLDER if info["type"] == "directory" else FileKind.SPECIAL)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


@dataclass(frozen=True, slots=True)
class GeneratedFile:
    """A file that this package adds to a context. Its methods are those of `LocalSource`."""

    content: bytes
    name: str = "generated"

    def open(self, path: str) -> IO[bytes]:  # noqa: ARG002  as of `LocalSource`
        """Return its content as a file."""
        return BytesIO(self.content)

    def mark(self, path: str) -> Mark | None:  # noqa: ARG002  as of `LocalSource`
        """Return None: it is hashed each time."""
        return None


Source = LocalSource | FsspecSource
"""A source of a workspace's files."""


def open_source(workspace: str) -> Source:
    """Open the source of a workspace: a path, or a URL of fsspec.

    Raises:
        ImageError: The source does not exist, or cannot be opened.
    """
    if workspace.startswith("file://"):
        text = workspace.removeprefix("file://")
        # TorchX and fsspec do not encode the path of a file URL, other programs write `%20`.
        decoded = unquote(text, errors="surrogateescape")
        is_encoded = not Path(text).expanduser().exists() and Path(decoded).expanduser().exists()
        return LocalSource(decoded if is_encoded else text)
    return FsspecSource(workspace) if "://" in workspace else LocalSource(workspace)
