"""Files as a tar stream, with the same bytes for the same content. It is not held in memory."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.images.content.files import FileKind
from torchx_pulumi.images.content.hashing import chunks
from torchx_pulumi.images.content.tree import Entry
from torchx_pulumi.model.errors import ImageError

FILE_MODE: Final = 0o644
EXECUTABLE_MODE: Final = 0o755
END: Final = bytes(2 * tarfile.BLOCKSIZE)
"""End of an archive."""
_LONGEST_NAME: Final = 100
"""Bytes of a path or of a link's target in a plain header."""
_MOST_BYTES: Final = 8**11 - 1
_MOST_ID: Final = 8**7 - 1
_REST: Final = b"ustar  \0".ljust(255, b"\0")
"""The end of a plain header: the format, and no names of owners."""
_REST_SUM: Final = sum(_REST) + 8 * ord(" ")
"""What it adds to the checksum, whose own digits count as spaces."""
_BATCH: Final = 1 << 16
"""Bytes of a piece. Small files are joined."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive."""

    path: str
    source: Entry | bytes
    """Entry of the context, or the content of a generated file."""
    owner: tuple[int, int] = (0, 0)
    """User and group."""

    @property
    def size(self) -> int:
        """Return the bytes of its content."""
        if isinstance(self.source, bytes):
            return len(self.source)
        return self.source.found.size if self.source.found.kind is FileKind.FILE else 0

    @property
    def stored_size(self) -> int:
        """Return the bytes in the archive: header and content, in whole blocks."""
        target = "" if isinstance(self.source, bytes) else self.source.found.target
        # Only longer names, and larger numbers, have further blocks.
        is_short = len(self.path) < _LONGEST_NAME and self.path.isascii() and len(target) * 4 < _LONGEST_NAME
        is_plain = is_short and self.size <= _MOST_BYTES and max(self.owner) <= _MOST_ID
        return (tarfile.BLOCKSIZE if is_plain else len(self.header())) + padded(self.size)

    def header(self) -> bytes:
        """Return its header."""
        if isinstance(self.source, bytes):
            kind, mode, target = tarfile.REGTYPE, FILE_MODE, ""
        else:
            found = self.source.found
            kind, mode, target = tarfile.REGTYPE, EXECUTABLE_MODE if found.executable else FILE_MODE, ""
            if found.kind is FileKind.FOLDER:
                kind, mode = tarfile.DIRTYPE, EXECUTABLE_MODE
            elif found.kind is FileKind.LINK:
                kind, mode, target = tarfile.SYMTYPE, 0o777, found.target
        return tar_header(self.path, kind, mode, size=self.size, target=target, owner=self.owner)

    def content(self, hashes: Mapping[str, str], offset: int = 0) -> Iterator[bytes]:
        """Yield its content from an offset, filled up to whole blocks.

        Raises:
            ImageError: The file changed after it was hashed, or can no longer be read. A file that is not read from
                its beginning is not compared.
        """
        if isinstance(self.source, bytes):
            yield self.source[offset:]
        elif self.source.found.kind is FileKind.FILE:
            yield from _content(self.source, hashes[self.source.path], offset)
        yield bytes(min(-self.size % tarfile.BLOCKSIZE, max(0, padded(self.size) - offset)))


def tar_header(
    path: str, kind: bytes, mode: int, *, size: int = 0, target: str = "", owner: tuple[int, int] = (0, 0)
) -> bytes:
    """Return a header in the GNU format, which supports names of any bytes and any length. Its time is 0.

    The bytes are those of `tarfile`, which takes eight times as long for the common case.
    """
    name, link = path.encode("utf-8", "surrogateescape"), target.encode("utf-8", "surrogateescape")
    if kind == tarfile.DIRTYPE and not name.endswith(b"/"):
        name += b"/"
    if len(name) > _LONGEST_NAME or len(link) > _LONGEST_NAME or size > _MOST_BYTES or max(owner) > _MOST_ID:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.size, info.linkname = kind, mode, size, target
        info.uid, info.gid = owner
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    numbers = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, *owner, size, 0)
    checksum = sum(name) + sum(numbers) + sum(kind) + sum(link) + _REST_SUM
    return b"%b%b%06o\0 %b%b%b" % (name.ljust(100, b"\0"), numbers, checksum, kind, link.ljust(100, b"\0"), _REST)


def padded(size: int) -> int:
    """Return the bytes of a content in an archive, which has whole blocks."""
    return size + -size % tarfile.BLOCKSIZE


def stream(
    entries: Sequence[Entry], hashes: Mapping[str, str], extra: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """Yield the archive in pieces.

    Args:
        entries: Entries in the order of the archive.
        hashes: SHA-256 of every file by path.
        extra: Further files by path.

    Raises:
        ImageError: A file changed after it was hashed, or can no longer be read.
    """
    members = [Member(path, content) for path, content in sorted((extra or {}).items())]
    yield from joined(_pieces([*members, *(Member(entry.path, entry) for entry in entries)], hashes), _BATCH)


def _pieces(members: Iterable[Member], hashes: Mapping[str, str]) -> Iterator[bytes]:
    for member in members:
        yield member.header()
        yield from member.content(hashes)
    yield END


def joined(pieces: Iterable[bytes], least: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces that have at least so many bytes, but for the last one."""
    gathered, size = [], 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= least:
            yield b"".join(gathered)
            gathered, size = [], 0
    if size:
        yield b"".join(gathered)


def _content(entry: Entry, expected: str, offset: int) -> Iterator[bytes]:
    digest, size = hashlib.sha256(), offset
    try:
        with entry.source.open(entry.found.path) as file:
            if offset:
                file.seek(offset)
            for chunk in chunks(file):
                digest.update(chunk)
                kept = chunk[: max(0, entry.found.size - size)]
                size += len(chunk)
                yield kept
    except OSError as error:
        raise ImageError(f"{entry.path!a}: can no longer be read ({error.strerror or error}); run again") from error
    if size != max(offset, entry.found.size) or (offset == 0 and digest.hexdigest() != expected):
        raise ImageError(
            f"{entry.path!a}: changed after it was hashed, so the image would not match its tag; "
            "run again when nothing writes to the workspace"
        )
