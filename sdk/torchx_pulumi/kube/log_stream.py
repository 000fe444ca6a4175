"""Lines of a log that is read from a connection, and a `close` that ends the wait of other threads."""

from __future__ import annotations

import codecs
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait

from torchx_pulumi.kube.transport import Response, urllib3
from torchx_pulumi.model.errors import ClusterError

GROW_S = 1.0
"""Seconds after which the received part of an unfinished line is returned."""

LONGEST_PART = 1 << 20
"""Characters of a line that are buffered. A longer line is returned in parts."""

LONGEST_STAMP = 35
"""Characters of the longest time at the beginning of a line."""


class LogStream:
    """`LogLines` of one response."""

    def __init__(
        self,
        response: Response,
        where: str,
        *,
        keep_ends: bool,
        grow_s: float | None = None,
        stamped: bool = True,
        what: str = "log stream",
    ) -> None:
        """Read a response.

        Args:
            response: The response.
            where: Name of the cluster in messages.
            keep_ends: Lines keep their newline.
            grow_s: Seconds after which the received part of an unfinished line is returned. None: never.
            stamped: Each line begins with its time, which is never split.
            what: What is read, in messages.
        """
        self._closed = False
        self._finished = False
        self._response = response
        self._where = where
        self._what = what
        self._end = "\n" if keep_ends else ""
        self._grow_s = grow_s
        self._stamped = stamped
        self._begins = True
        """No part of the current line has been returned."""
        self._blocks = response.blocks()
        self._ahead: Future[bytes | None] | None = None
        """The next block while it is read in another thread."""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lines: deque[str] = deque()
        self._rest: list[str] = []
        self._size = 0
        self._rest_since = 0.0

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end and the last line was returned."""
        return self._finished and not self._lines

    def __iter__(self) -> Iterator[str]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        while not self._lines:
            if self._closed:
                raise StopIteration
            self._read()
        return self._lines.popleft()

    def _read(self) -> None:
        """Read one block. An interrupted stream raises an error."""
        try:
            if self._has_part() and not self._arrives():
                self._lines.append(self._take_rest())
                self._begins = False
                return
            ahead, self._ahead = self._ahead, None
            block = ahead.result() if ahead else next(self._blocks, None)
        except (urllib3().exceptions.HTTPError, OSError, AttributeError, ValueError) as error:
            if self._closed:
                return
            self.close()
            silent = isinstance(error, urllib3().exceptions.ReadTimeoutError)
            raise ClusterError(
                f"the {self._what} from {self._where} was interrupted: {error}",
                retryable=True,
                reason="Silent" if silent else "BrokenStream",
            ) from error
        except BaseException:
            self.close()
            raise
        if block is None:
            if self._rest:
                self._lines.append(self._take_rest())
            # The connection was read to its end and can be used again.
            self._closed = self._finished = True
            return
        first, *more = self._decode(block).split("\n")
        self._add(first)
        for text in more:
            self._lines.append(self._take_rest() + self._end)
            self._begins = True
            self._add(text)
        if self._size > LONGEST_PART:
            self._lines.append(self._take_part())
        elif self._rest and self._grow_s is not None and time.monotonic() - self._rest_since > self._grow_s:
            # Progress bars end their updates with a carriage return: complete updates are returned.
            self._lines.extend(filter(None, [self._take_part(only_updates=True)]))

    def _has_part(self) -> bool:
        """Return whether a part of the line was received that is more than a part of its time."""
        if not self._rest or self._grow_s is None:
            return False
        in_stamp = self._stamped and self._begins and self._size <= LONGEST_STAMP
        return not (in_stamp and not any(" " in text for text in self._rest))

    def _arrives(self) -> bool:
        """Return whether the next block is received within `grow_s`. It is read in a thread of its own."""
        if self._ahead is None:
            self._ahead = Future()
            threading.Thread(target=_read_block, args=(self._blocks, self._ahead), daemon=True).start()
        return bool(wait([self._ahead], self._grow_s).done)

    def _add(self, text: str) -> None:
        if text:
            if not self._rest:
                self._rest_since = time.monotonic()
            self._rest.append(text)
            self._size += len(text)

    def _take_rest(self) -> str:
        text = "".join(self._rest)
        self._rest.clear()
        self._size = 0
        return text

    def _take_part(self, *, only_updates: bool = False) -> str:
        """Return the unfinished line up to its last carriage return, or all of it if there is none."""
        text = self._take_rest()
        cut = text.rfind("\r")
        if cut <= 0 or (not only_updates and len(text) - cut > LONGEST_PART):
            cut = 0 if only_updates else len(text)
        self._add(text[cut:])
        self._begins = self._begins and not cut
        return text[:cut]

    def close(self) -> None:
        """Close the connection and end the wait of other threads."""
        if self._closed:
            return
        self._closed = True
        self._response.close()

    def __del__(self) -> None:
        """Close the connection of a log that is not read any more."""
        self.close()


def _read_block(blocks: Iterator[bytes], ahead: Future[bytes | None]) -> None:
    """Read the next block in a thread of its own, which must not keep the stream alive."""
    try:
        ahead.set_result(next(blocks, None))
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads the log
        ahead.set_exception(error)
