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
        info = tarfile.TarInfo(self.path)
        info.type, info.mode, info.size, info.linkname = kind, mode, self.size, target
        info.uid, info.gid = self.owner
        # The GNU format supports names of any bytes and any length.
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")

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
