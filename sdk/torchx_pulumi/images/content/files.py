"""The places that a workspace's files come from: local folders and files, and anything that fsspec opens.

Reading only: what is there, its bytes, and the marks by which a file that did not change is known.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote

from torchx_pulumi.model.errors import ImageError


class Kind(str, Enum):
    """What stands at a path."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    SPECIAL = "special"
    """Socket, pipe or device: nothing that an image can hold."""


@dataclass(frozen=True, slots=True)
class Found:
    """One path of a source. Positional: a workspace has tens of thousands of them."""

    path: str
    """Relative to the source, with `/`. Bytes that are no UTF-8 are escaped as `os.fsdecode` does. Empty: the root."""
    kind: Kind
    size: int
    """Bytes of a file."""
    executable: bool
    target: str = ""
    """Where a link points to."""
    mark: tuple[int, int, int, int] | None = None
    """Size, mtime and ctime in nanoseconds, inode; equal marks mean equal bytes. None: the source has none."""


class Source(Protocol):
    """A place with files."""

    @property
    def name(self) -> str:
        """What messages and the cache call it."""
        ...

    @property
    def is_file(self) -> bool:
        """Whether it is a single file."""
        ...

    def children(self, folder: str) -> Iterator[Found]:
        """Yield what is directly in a folder; the single file has the path ``.

        Raises:
            OSError: The folder cannot be read.
        """
        ...

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            OSError: It cannot be read.
        """
        ...

    def mark(self, path: str) -> tuple[int, int, int, int] | None:
        """Return the file's mark as it is now."""
        ...


class LocalSource:
    """A folder or a file of this machine."""

    def __init__(self, name: str) -> None:
        try:
            self._root = os.path.realpath(Path(name).expanduser())
        except (ValueError, RuntimeError) as error:
            raise ImageError(f"workspace {name!r}: is no path: {error}") from error
        if not os.path.exists(self._root):  # noqa: PTH110  a name of any encoding
            raise ImageError(f"workspace {name!r}: there is no such folder; relative paths start at {Path.cwd()}")
        self.name = self._root
        self.is_file = not os.path.isdir(self._root)  # noqa: PTH112

    def children(self, folder: str) -> Iterator[Found]:
        """Yield what is directly in a folder."""
        if self.is_file:
            yield _found("", os.lstat(self._root), self._root)
            return
        prefix = f"{folder}/" if folder else ""
        with os.scandir(os.path.join(self._root, folder) if folder else self._root) as entries:  # noqa: PTH118
            for entry in entries:
                yield _found(prefix + entry.name, entry.stat(follow_symlinks=False), entry.path)

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading."""
        # A pipe without a writer would block for ever: it may stand where a file was, or a link may lead to it.
        file = open(self._path(path), "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "is a socket, a pipe or a device", path)
        return file

    def mark(self, path: str) -> tuple[int, int, int, int] | None:
        """Return the file's mark as it is now."""
        return _mark(os.lstat(self._path(path)))

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root  # noqa: PTH118


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _found(path: str, status: os.stat_result, full: str) -> Found:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return Found(path, Kind.FILE, status.st_size, bool(mode & stat.S_IXUSR), mark=_mark(status))
    if stat.S_ISDIR(mode):
        return Found(path, Kind.FOLDER, 0, True)
    if stat.S_ISLNK(mode):
        return Found(path, Kind.LINK, 0, False, target=os.readlink(full))  # noqa: PTH115
    return Found(path, Kind.SPECIAL, 0, False)


def _mark(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class FsspecSource:
    """What an fsspec URL names, for example `s3://bucket/code` or `memory://project`."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise ImageError(
                f"workspace {url!r}: a URL needs fsspec, which cannot be imported ({error}); `pip install fsspec`"
            ) from error
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
            self._root = str(self._root).rstrip("/")
            found: Any = self._fs.info(self._root or "/")
        except FileNotFoundError as error:
            raise ImageError(f"workspace {url!r}: there is nothing at that URL") from error
        except (OSError, ValueError, ImportError) as error:
            raise ImageError(f"workspace {url!r}: cannot be opened: {error}") from error
        self.name = url
        self.is_file = found["type"] == "file"

    def children(self, folder: str) -> Iterator[Found]:
        """Yield what is directly in a folder."""
        if self.is_file:
            yield self._read("", self._fs.info(self._root))
            return
        for info in self._fs.ls(self._path(folder) or "/", detail=True):
            name = posixpath.basename(str(info["name"]).rstrip("/"))
            path = posixpath.join(folder, name)
            # Object stores list a folder's own marker among what is in it.
            if name and self._path(path) == self._fs._strip_protocol(str(info["name"])).rstrip("/"):
                yield self._read(path, info)

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading."""
        opened: IO[bytes] = self._fs.open(self._path(path), "rb")
        return opened

    def mark(self, path: str) -> tuple[int, int, int, int] | None:  # noqa: ARG002  the Protocol's
        """Return None: what tells versions of a file apart differs from store to store."""
        return None

    def _read(self, path: str, info: Any) -> Found:
        if info["type"] == "directory":
            return Found(path, Kind.FOLDER, 0, True)
        if info["type"] != "file":
            return Found(path, Kind.SPECIAL, 0, False)
        return Found(path, Kind.FILE, int(info["size"] or 0), bool(int(info.get("mode") or 0) & stat.S_IXUSR))

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def open_source(workspace: str) -> Source:
    """Open what a workspace names: a path, or a URL that fsspec knows.

    Raises:
        ImageError: It is not there, or cannot be opened.
    """
    if workspace.startswith("file://"):
        return LocalSource(_path_of(workspace.removeprefix("file://")))
    if "://" in workspace:
        return FsspecSource(workspace)
    return LocalSource(workspace)


def _path_of(text: str) -> str:
    """Return the path of a file URL. TorchX and fsspec write paths as they are, other programs write `%20`."""
    decoded = unquote(text, errors="surrogateescape")
    return decoded if not Path(text).expanduser().exists() and Path(decoded).expanduser().exists() else text
