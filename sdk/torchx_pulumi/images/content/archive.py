"""Files as a tar stream, with the same bytes for the same content. It is not held in memory.

The time of a file follows from its content. CPython takes a compiled module as current if time and size of the source
are those that it was compiled from, so two contents of one size must not have one time.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.files import Entry, FileKind
from torchx_pulumi.images.content.hashing import chunks
from torchx_pulumi.model.errors import ImageError

FILE_MODE: Final = 0o644
EXECUTABLE_MODE: Final = 0o755
FIRST_TIME: Final = 315_619_200
"""1980-01-02 in seconds since 1970: zip files have no earlier times, in any time zone."""
LAST_TIME: Final = 1_577_750_400
"""2019-12-31."""
END: Final = bytes(2 * tarfile.BLOCKSIZE)
"""End of an archive."""
_LONGEST_NAME: Final = 100
"""Bytes of a path or of a link's target in a plain header."""
_MOST_BYTES: Final = 8**11 - 1
_MOST_ID: Final = 8**7 - 1
_REST: Final = b"ustar  \0".ljust(255, b"\0")
"""The end of a plain header: the format, and no names of owners."""
_REST_SUM: Final = sum(_REST) + 8 * ord(" ")
"""Its part of the checksum, whose own digits count as spaces."""
_BATCH: Final = 1 << 16
"""Bytes of a piece."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive."""

    path: str
    entry: Entry
    owner: tuple[int, int] = (0, 0)
    """User and group."""

    @property
    def size(self) -> int:
        """Return the bytes of its content."""
        return self.entry.size if self.entry.kind is FileKind.FILE else 0

    @property
    def modified(self) -> int:
        """Return its time in seconds since 1970: of a file, a number between 1980 and 2020 made of its hash."""
        if self.entry.kind is not FileKind.FILE:
            return FIRST_TIME
        return FIRST_TIME + int(self.entry.sha256[:15], 16) % (LAST_TIME - FIRST_TIME)

    def header(self) -> bytes:
        """Return its header."""
        found = self.entry
        kind, mode = tarfile.REGTYPE, EXECUTABLE_MODE if found.executable else FILE_MODE
        if found.kind is FileKind.FOLDER:
            kind, mode = tarfile.DIRTYPE, EXECUTABLE_MODE
        elif found.kind is FileKind.LINK:
            kind, mode = tarfile.SYMTYPE, 0o777
        return tar_header(
            self.path, kind, mode, size=self.size, target=found.target, owner=self.owner, modified=self.modified
        )

    def content(self) -> Iterator[bytes]:
        """Yield its content, filled up to whole blocks.

        Raises:
            ImageError: The file changed after it was hashed, or can no longer be read.
        """
        if self.entry.kind is not FileKind.FILE:
            return
        path, digest, size = self.entry.path, hashlib.sha256(), 0
        try:
            with self.entry.open() as file:
                for chunk in chunks(file):
                    digest.update(chunk)
                    kept = chunk[: max(0, self.size - size)]
                    size += len(chunk)
                    yield kept
        except OSError as error:
            raise ImageError(f"{path!a}: can no longer be read ({error.strerror or error}); run again") from error
        if digest.hexdigest() != self.entry.sha256:
            raise ImageError(
                f"{path!a}: changed after it was hashed, so the image would not match its tag; "
                "run again when nothing writes to the workspace"
            )
        yield bytes(-self.size % tarfile.BLOCKSIZE)


def tar_header(
    path: str,
    kind: bytes,
    mode: int,
    *,
    size: int = 0,
    target: str = "",
    owner: tuple[int, int] = (0, 0),
    modified: int = FIRST_TIME,
) -> bytes:
    """Return a header in the GNU format, which supports names of any bytes and any length.

    The bytes are those of `tarfile`, which takes eight times as long for the common case.
    """
    name, link = path.encode("utf-8", "surrogateescape"), target.encode("utf-8", "surrogateescape")
    if kind == tarfile.DIRTYPE and not name.endswith(b"/"):
        name += b"/"
    if len(name) > _LONGEST_NAME or len(link) > _LONGEST_NAME or size > _MOST_BYTES or max(owner) > _MOST_ID:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size, info.linkname, info.mtime = kind, mode, size, target, modified
        info.uid, info.gid = owner
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, *owner, size, modified)
    checksum = sum(name) + sum(numbers) + sum(kind) + sum(link) + _REST_SUM
    return b"%b%b%06o\0 %b%b%b" % (name.ljust(100, b"\0"), numbers, checksum, kind, link.ljust(100, b"\0"), _REST)


def archive_of(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield the archive of members, in small pieces.

    Raises:
        ImageError: A file changed after it was hashed, or can no longer be read.
    """
    for member in members:
        yield member.header()
        yield from member.content()
    yield END


def stream(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the archive of a context in pieces.

    Raises:
        ImageError: As of `archive_of`.
    """
    return cut(archive_of(Member(entry.path, entry) for entry in entries), _BATCH)


def cut(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of a size. The last one may be smaller."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        while len(rest) >= size:
            yield bytes(rest[:size])
            del rest[:size]
    if rest:
        yield bytes(rest)
