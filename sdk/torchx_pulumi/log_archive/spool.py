"""A log on its way into an archive: compressed in an unnamed temporary file, with a limit, in bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
from typing import BinaryIO, cast

from torchx_pulumi.logs.resuming import read_line

COMPRESSION = 6
"""Level of gzip."""

BLOCK_BYTES = 1 << 20
"""Bytes that are copied at once."""

LONGEST_STAMP = 64
"""Characters of a line in which its time is looked for."""

LINE_END = "\n"

WITHIN_CHARACTER = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that begin no character."""


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
        self._file = _temporary_file()
        self._zipped = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=COMPRESSION, mtime=0)
        self._half = limit_bytes // 2
        self._head_room = limit_bytes - self._half
        self._tail: BinaryIO | None = None
        """The end of what follows the first half. None: the first half has room."""
        self._tail_bytes = 0
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
        if self._tail is None:
            data = self._fill_head(data)
        if data and self._tail is not None:
            self._fill_tail(self._tail, data)
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
        for file in (self._zipped, self._file, self._tail):
            # The log is dropped: what cannot be written of it does not matter.
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()

    def _fill_head(self, data: bytes) -> bytes:
        """Write to the first half. Return what has no room in it: whole lines, unless the line is a long one."""
        head = data
        if len(data) > self._head_room:
            is_long = self.in_line or len(data) > self._half
            # Decoding drops a character that is not whole.
            head = data[: self._head_room].decode(errors="ignore").encode() if is_long else b""
            self._tail = _temporary_file()
        if head:
            self._zipped.write(head)
            self._head_room -= len(head)
            self._cut_line = not head.endswith(b"\n")
        return data[len(head) :]

    def _fill_tail(self, tail: BinaryIO, data: bytes) -> None:
        """Add to what follows the first half, of which at least the last half of the limit is kept."""
        tail.write(data)
        self._tail_bytes += len(data)
        if self._tail_bytes > 2 * self._half + BLOCK_BYTES:
            self._tail = _temporary_file()
            with tail:
                tail.seek(-self._half, os.SEEK_END)
                shutil.copyfileobj(tail, self._tail, BLOCK_BYTES)
            self.left_out_bytes += self._tail_bytes - self._half
            self._tail_bytes = self._half

    def _write_tail(self, tail: BinaryIO) -> None:
        begin = max(self._tail_bytes - self._half, 0)
        tail.seek(begin)
        if self.left_out_bytes + begin:
            start = begin
            while block := tail.readline(BLOCK_BYTES):
                start += len(block)
                if block.endswith(b"\n"):
                    break
            in_line = start == self._tail_bytes
            if in_line:
                # No line begins in the last half: it is the end of one.
                tail.seek(begin)
                first = tail.read(4)
                start = begin + len(first) - len(first.lstrip(WITHIN_CHARACTER))
                tail.seek(start)
            self.left_out_bytes += start
            stamp = read_line(self.last_line, 0).stamp
            stamp = f"{stamp} " if stamp else ""
            text = (
                f"[torchx-pulumi: {self.left_out_bytes:,} bytes of this log were left out here: it has more than "
                f"{self._limit:,} bytes, the limit for one run of a container{self._advice}]"
            )
            mark = f"{LINE_END if self._cut_line else ''}{stamp}{text}\n{stamp if in_line else ''}"
            self._zipped.write(mark.encode())
        shutil.copyfileobj(tail, self._zipped, BLOCK_BYTES)


def _temporary_file() -> BinaryIO:
    return cast("BinaryIO", tempfile.TemporaryFile())
