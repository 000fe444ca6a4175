"""A layer: a tar archive in a gzip stream of stored blocks, with the same bytes for the same files everywhere.

The stream is not compressed. Compressed bytes differ between zlib and zlib-ng and between their releases, so the digest
of the layer would depend on the machine that computes it. Workspaces are small, and nodes do not unpack anything.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torchx_pulumi.images.content.archive import Member, archive_of, cut
from torchx_pulumi.images.content.hashing import cache_folder, files_address, write_cache

BLOCK: Final = 65_535
"""Bytes of a stored block: the most that deflate allows."""
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""No name, time 0, unknown system."""
_PIECE: Final = 4 * BLOCK
"""Bytes of a piece. Larger ones take more memory and no less time."""
_VERSION: Final = 2
"""Part of the key of the cache. It changes with the bytes of layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer whose bytes are made from the files each time they are read."""

    members: Sequence[Member] = field(repr=False)
    digest: str
    """Digest of the gzip stream."""
    diff_id: str
    """Digest of the archive."""
    size: int
    """Bytes of the gzip stream."""

    def read(self) -> Iterator[bytes]:
        """Return the pieces of the gzip stream. A file that changed since it was hashed is an error."""
        return (piece for _, piece in _gzip(self.members))


def known_layer(members: Sequence[Member], word: str) -> Layer | None:
    """Return the layer of members if the user's cache knows it. No file is read.

    Args:
        members: Members in the order of the archive.
        word: COPY or ADD. A layer of ADD is known only if no file of it is unpacked.
    """
    try:
        check, *facts = json.loads(_cache_file(members, word).read_text("ascii"))
        if check == _check(facts):
            digest, diff_id, size = facts
            return Layer(members=members, digest=digest, diff_id=diff_id, size=size)
    except (OSError, ValueError, TypeError):
        pass  # absent or damaged: the files are read
    return None


def make_layer(members: Sequence[Member], word: str) -> Layer:
    """Read the files of a layer and return it. The user's cache knows it from then on; arguments as of `known_layer`.

    Raises:
        ImageError: A file changed after it was hashed, or can no longer be read.
    """
    archive, stream, size = hashlib.sha256(), hashlib.sha256(), 0
    for content, piece in _gzip(members):
        archive.update(content)
        stream.update(piece)
        size += len(piece)
    facts = [f"sha256:{stream.hexdigest()}", f"sha256:{archive.hexdigest()}", size]
    write_cache(_cache_file(members, word), [json.dumps([_check(facts), *facts]).encode("ascii")])
    return Layer(
        members=members, digest=f"sha256:{stream.hexdigest()}", diff_id=f"sha256:{archive.hexdigest()}", size=size
    )


def _check(facts: Sequence[object]) -> str:
    """Return a digest of the cache entry: with a wrong one, every push would be refused."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _cache_file(members: Sequence[Member], word: str) -> Path:
    """Return the file of the cache. Its name is a hash of all that headers and contents are made of."""
    digest = hashlib.sha256(f"torchx-pulumi layer {_VERSION} {word}".encode())
    digest.update(files_address(member.entry for member in members).encode())
    for member in members:
        digest.update(f"\0{member.path}\0{member.owner}".encode("utf-8", "surrogateescape"))
    return cache_folder().with_name("layers") / f"{digest.hexdigest()}.json"


def _gzip(members: Sequence[Member]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pieces of the archive, each with the part of the gzip stream that holds it."""
    yield b"", _HEADER
    crc, size, before = 0, 0, b""
    for piece in cut(archive_of(members), _PIECE):
        if before:
            yield before, _framed(before, is_last=False)
        crc, size, before = zlib.crc32(piece, crc), size + len(piece), piece
    yield before, _framed(before, is_last=True) + struct.pack("<II", crc, size & 0xFFFFFFFF)


def _framed(piece: bytes, *, is_last: bool) -> bytes:
    """Return a piece as stored blocks of deflate: a bit for the last one, the length, its complement, the bytes."""
    made = []
    for begin in range(0, len(piece), BLOCK):
        part = piece[begin : begin + BLOCK]
        ends = is_last and begin + BLOCK >= len(piece)
        made += [struct.pack("<BHH", ends, len(part), len(part) ^ 0xFFFF), part]
    return b"".join(made)
