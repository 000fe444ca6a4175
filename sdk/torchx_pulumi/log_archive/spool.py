"""A log on its way into an archive: compressed in an unnamed temporary file, with a limit, in bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from torchx_pulumi.logs.resuming import read_line

COMPRESSION = 6
"""Level of gzip."""

BLOCK_BYTES = 1 << 20
"""Bytes that are copied at once."""

LONGEST_STAMP = 64
"""Characters of a line in which its time is looked for."""

_LINE_END = "\n"


class LimitedSpool:
    """Keeps the first half and the last half of a limit of a log; what is between them is left out and counted.

    Memory is bounded by the longest part that `add` gets. Temporary files have no name: they are gone with the process.
    """

    def __init__(self, limit_bytes: int, *, advice: str = "") -> None:
        """Begin an empty log.

        Args:
            limit_bytes: Most bytes of text to keep.
            advice: How to change the limit, for the line about what was left out.
        """
        self._limit = limit_bytes
        self._advice = advice
        self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - closed by `close`
        self._zipped = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=COMPRESSION, mtime=0)
        self._head_room = limit_bytes - limit_bytes // 2
        self._head_open = True
        self._tail: _Ring | None = None
        self.in_line = False
        """The last line has no end yet."""
        self._cut_line = False
        """The first half ends within a line."""
        self.first_line = ""
        """Beginning of the first line."""
        self.last_line = ""
        """Beginning of the last line."""
        self.lines = 0
        self.size = 0
        """Bytes of the whole log."""
        self.left_out_bytes = 0
        """Bytes between the first and the last half; known after `finish`."""

    def add(self, part: str) -> None:
        """Add a line, or a part of one.

        Raises:
            OSError: The disk with temporary files is full.
        """
        if not part:
            return
        if not self.in_line:
            self.lines += 1
            self.last_line = part[:LONGEST_STAMP]
            self.first_line = self.first_line or self.last_line
        data = part.encode("utf-8", "replace")
        self.size += len(data)
        if self._head_open:
            data = self._fill_head(data)
        if data:
            if self._tail is None:
                self._tail = _Ring(self._limit // 2)
            self._tail.write(data)
        self.in_line = not part.endswith("\n")

    def finish(self) -> BinaryIO:
        """Complete the log and return it, compressed, from its beginning. Nothing can be added any more.

        Raises:
            OSError: The disk with temporary files is full.
        """
        if self._tail is not None:
            self._write_tail(self._tail)
        self._zipped.close()
        self._file.seek(0)
        return self._file

    def close(self) -> None:
        """Remove the temporary files."""
        # The log is dropped: what cannot be written of it does not matter.
        with contextlib.suppress(OSError):
            self._zipped.close()
        with contextlib.suppress(OSError):
            self._file.close()
        if self._tail is not None:
            self._tail.close()

    def _fill_head(self, data: bytes) -> bytes:
        """Write to the first half. Return what has no room in it: whole lines, unless the line is a long one."""
        if len(data) <= self._head_room:
            self._write_head(data)
            return b""
        self._head_open = False
        if self.in_line or len(data) > self._limit // 2:
            cut = _character_end(data, self._head_room)
            self._write_head(data[:cut])
            return data[cut:]
        return data

    def _write_head(self, data: bytes) -> None:
        if data:
            self._zipped.write(data)
            self._head_room -= len(data)
            self._cut_line = not data.endswith(b"\n")

    def _write_tail(self, tail: _Ring) -> None:
        if not tail.lost:
            for block in tail.blocks(0):
                self._zipped.write(block)
            return
        start = tail.line_start()
        # Without a line end, the last half is the end of one line.
        begin = tail.character_start() if start is None else start
        self.left_out_bytes = tail.lost + begin
        last_stamp = read_line(self.last_line, 0).stamp
        stamp = f"{last_stamp} " if last_stamp else ""
        text = (
            f"[torchx-pulumi: {self.left_out_bytes:,} bytes of this log were left out here: it has more than "
            f"{self._limit:,} bytes, the limit for one run of a container{self._advice}]"
        )
        self._zipped.write(f"{_LINE_END if self._cut_line else ''}{stamp}{text}\n".encode())
        if start is None:
            self._zipped.write(stamp.encode())
        for block in tail.blocks(begin):
            self._zipped.write(block)


class _Ring:
    """The last bytes of what is written, in a temporary file of limited size."""

    def __init__(self, size: int) -> None:
        self._size = max(size, 1)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._written = 0

    @property
    def lost(self) -> int:
        """Return the number of bytes that were overwritten."""
        return max(self._written - self._size, 0)

    def write(self, data: bytes) -> None:
        """Add bytes."""
        if len(data) > self._size:
            self._written += len(data) - self._size
            data = data[-self._size :]
        view = memoryview(data)
        while view:
            at = self._written % self._size
            block = view[: self._size - at]
            self._file.seek(at)
            self._file.write(block)
            self._written += len(block)
            view = view[len(block) :]

    def blocks(self, begin: int) -> Iterator[bytes]:
        """Yield what is kept, from a position in it."""
        kept = min(self._written, self._size)
        while begin < kept:
            at = (self.lost + begin) % self._size
            self._file.seek(at)
            block = self._file.read(min(BLOCK_BYTES, self._size - at, kept - begin))
            yield block
            begin += len(block)

    def line_start(self) -> int | None:
        """Return the position of the first whole line. None: no line begins in what is kept."""
        passed = 0
        for block in self.blocks(0):
            found = block.find(b"\n")
            if found >= 0:
                start = passed + found + 1
                return start if start < min(self._written, self._size) else None
            passed += len(block)
        return None

    def character_start(self) -> int:
        """Return the position of the first whole character."""
        first = next(self.blocks(0), b"")[:4]
        return next((index for index, byte in enumerate(first) if byte & 0xC0 != 0x80), 0)

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._file.close()


def _character_end(data: bytes, most: int) -> int:
    """Return the largest number of bytes, up to a number, that ends with a whole character of UTF-8."""
    while most > 0 and data[most : most + 1] and data[most] & 0xC0 == 0x80:
        most -= 1
    return max(most, 0)
