"""The context as a tar stream, with the same bytes for the same content. It is not held in memory."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from torchx_pulumi.images.content.files import FileKind
from torchx_pulumi.images.content.hashing import chunks
from torchx_pulumi.images.content.tree import Entry
from torchx_pulumi.model.errors import ImageError

FILE_MODE: Final = 0o644
EXECUTABLE_MODE: Final = 0o755
_BATCH: Final = 1 << 16
"""Bytes of a piece. Small files are joined."""


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
    gathered, size = [], 0
    for piece in _pieces(entries, hashes, extra or {}):
        gathered.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join([*gathered, bytes(2 * tarfile.BLOCKSIZE)])


def _pieces(entries: Sequence[Entry], hashes: Mapping[str, str], extra: Mapping[str, bytes]) -> Iterator[bytes]:
    for path, content in sorted(extra.items()):
        yield _header(path, tarfile.REGTYPE, FILE_MODE, size=len(content))
        yield content
        yield _padding(len(content))
    for entry in entries:
        found = entry.found
        if found.kind is FileKind.FOLDER:
            yield _header(entry.path, tarfile.DIRTYPE, EXECUTABLE_MODE)
        elif found.kind is FileKind.LINK:
            yield _header(entry.path, tarfile.SYMTYPE, 0o777, target=found.target)
        else:
            mode = EXECUTABLE_MODE if found.executable else FILE_MODE
            yield _header(entry.path, tarfile.REGTYPE, mode, size=found.size)
            yield from _content(entry, hashes[entry.path])


def _content(entry: Entry, expected: str) -> Iterator[bytes]:
    digest, size = hashlib.sha256(), 0
    try:
        with entry.source.open(entry.found.path) as file:
            for chunk in chunks(file):
                digest.update(chunk)
                size += len(chunk)
                if size <= entry.found.size:
                    yield chunk
    except OSError as error:
        raise ImageError(f"{entry.path!a}: can no longer be read ({error.strerror or error}); run again") from error
    if digest.hexdigest() != expected:
        raise ImageError(
            f"{entry.path!a}: changed after it was hashed, so the image would not match its tag; "
            "run again when nothing writes to the workspace"
        )
    yield _padding(size)


def _header(path: str, kind: bytes, mode: int, *, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.size, info.linkname = kind, mode, size, target
    # The GNU format supports names of any bytes and any length.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
