"""A layer: a tar archive in a gzip stream of stored blocks, with the same bytes for the same files everywhere.

The stream is not compressed. Compressed bytes differ between zlib and zlib-ng and between their releases, so the digest
of the layer would depend on the machine that computes it. Workspaces are small, and nodes do not unpack anything.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.images.content.archive import END, Member, archive_of, joined, padded
from torchx_pulumi.images.content.hashing import cache_folder, files_address, write_cache
from torchx_pulumi.images.reference import DIGEST

BLOCK: Final = 65_535
"""Bytes of a stored block: the most that deflate allows."""
_FRAME: Final = 5
"""Bytes before each block."""
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""No name, time 0, unknown system."""
_PIECE: Final = 4 * BLOCK
"""Bytes of a piece. Larger ones take more memory and no less time."""
_VERSION: Final = 2
"""Part of the key of the cache. It changes with the bytes of layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFacts:
    """What is known of a layer once its bytes were made."""

    digest: str
    """Digest of the gzip stream."""
    diff_id: str
    """Digest of the archive."""
    archive_size: int
    """Bytes of the archive."""
    crc: int
    """CRC-32 of the archive."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer whose bytes are made from the files each time they are read."""

    members: Sequence[Member] = field(repr=False)
    facts: LayerFacts

    @property
    def digest(self) -> str:
        """Return the digest of the gzip stream."""
        return self.facts.digest

    @property
    def size(self) -> int:
        """Return the bytes of the gzip stream."""
        return len(_HEADER) + self.facts.archive_size + _FRAME * self._blocks + 8

    @property
    def _blocks(self) -> int:
        return -(-self.facts.archive_size // BLOCK)

    @cached_property
    def _starts(self) -> array[int]:
        """Return where each member begins in the archive."""
        return array("Q", accumulate((member.stored_size for member in self.members[:-1]), initial=0))

    def read(self, offset: int = 0) -> Iterator[bytes]:
        """Yield the gzip stream from an offset. Files before the offset are not read."""
        block = min(max(0, offset - len(_HEADER)) // (BLOCK + _FRAME), self._blocks)
        skipped = offset - (len(_HEADER) + block * (BLOCK + _FRAME) if block else 0)
        return _without_first(self._stream(block), skipped)

    def _stream(self, block: int) -> Iterator[bytes]:
        """Yield the gzip stream from a block on. The first one follows the header."""
        if block == 0:
            yield _HEADER
        left = self.facts.archive_size - block * BLOCK
        for piece in _cut(self._archive(block * BLOCK)) if left > 0 else ():
            left -= len(piece)
            yield _framed(piece, is_last=left == 0)
        yield struct.pack("<II", self.facts.crc, self.facts.archive_size & 0xFFFFFFFF)

    def _archive(self, offset: int) -> Iterator[bytes]:
        if offset == 0:
            yield from archive_of(self.members)
            return
        starts = self._starts
        first = max(0, bisect_right(starts, offset) - 1)
        skipped = offset - (starts[first] if starts else 0)
        for member in self.members[first:]:
            header = member.header()
            yield header[skipped:]
            skipped = max(0, skipped - len(header))
            if skipped < padded(member.size):
                # From within the padding on, there is nothing to read.
                begin = min(skipped, member.size)
                yield from _without_first(member.content(begin), skipped - begin)
            skipped = max(0, skipped - padded(member.size))
        yield END[skipped:]


def known_layer(members: Sequence[Member], word: str) -> Layer | None:
    """Return the layer of members if the user's cache knows it. No file is read.

    Args:
        members: Members in the order of the archive.
        word: COPY or ADD. A layer of ADD is known only if no file of it is unpacked.
    """
    try:
        read: Any = json.loads(_cache_file(members, word).read_text("ascii"))
        check = read.pop("check")
        facts = LayerFacts(**read)
        if check == _check(facts) and re.fullmatch(DIGEST, facts.digest):
            return Layer(members=members, facts=facts)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass  # absent or damaged: the files are read
    return None


def make_layer(members: Sequence[Member], word: str) -> Layer:
    """Read the files of a layer and return it. The user's cache knows it from then on.

    Args:
        members: As for `known_layer`.
        word: As for `known_layer`.

    Raises:
        ImageError: A file changed after it was hashed, or can no longer be read.
    """
    facts = _measure(members)
    content = json.dumps({**asdict(facts), "check": _check(facts)})
    write_cache(_cache_file(members, word), [content.encode("ascii")])
    return Layer(members=members, facts=facts)


def _check(facts: LayerFacts) -> str:
    """Return what tells a damaged cache: with a wrong digest, every push would be refused."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _cache_file(members: Iterable[Member], word: str) -> Path:
    """Return the file of the cache. Its name is a hash of all that headers and contents are made of."""
    digest = hashlib.sha256(f"torchx-pulumi layer {_VERSION} {word}".encode())
    digest.update(files_address(member.entry for member in members).encode())
    for member in members:
        digest.update(f"\0{member.path}\0{member.owner}".encode("utf-8", "surrogateescape"))
    return cache_folder().with_name("layers") / f"{digest.hexdigest()}.json"


def _measure(members: Sequence[Member]) -> LayerFacts:
    archive, stream = hashlib.sha256(), hashlib.sha256(_HEADER)
    crc, size, before = 0, 0, b""
    for piece in _cut(archive_of(members)):
        archive.update(piece)
        crc = zlib.crc32(piece, crc)
        stream.update(_framed(before, is_last=False))
        size, before = size + len(piece), piece
    stream.update(_framed(before, is_last=True))
    stream.update(struct.pack("<II", crc, size & 0xFFFFFFFF))
    return LayerFacts(
        digest=f"sha256:{stream.hexdigest()}", diff_id=f"sha256:{archive.hexdigest()}", archive_size=size, crc=crc
    )


def _cut(archive: Iterable[bytes]) -> Iterator[bytes]:
    """Yield an archive in pieces of whole blocks, but for the last one."""
    rest = b""
    for piece in joined(archive, _PIECE):
        rest += piece
        whole = len(rest) - len(rest) % _PIECE
        for begin in range(0, whole, _PIECE):
            yield rest[begin : begin + _PIECE]
        rest = rest[whole:]
    if rest:
        yield rest


def _framed(piece: bytes, *, is_last: bool) -> bytes:
    """Return a piece as stored blocks of deflate: a bit for the last one, the length, its complement, the bytes."""
    made = []
    for begin in range(0, len(piece), BLOCK):
        part = piece[begin : begin + BLOCK]
        ends = is_last and begin + BLOCK >= len(piece)
        made += [struct.pack("<BHH", ends, len(part), len(part) ^ 0xFFFF), part]
    return b"".join(made)


def _without_first(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    for piece in pieces:
        if count < len(piece):
            yield piece[count:] if count else piece
        count = max(0, count - len(piece))
