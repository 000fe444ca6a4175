"""A log as it comes over a connection: blocks of bytes cut into lines, and a close that releases whoever waits."""

from __future__ import annotations

import codecs
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from torchx_pulumi.kube.transport import urllib3
from torchx_pulumi.model.errors import ClusterError

GROW_S = 1.0
"""How long a line may stay unfinished before the part that has come is returned."""

LONGEST_PART = 1 << 20
"""Characters of a line that are held at most; a longer line comes in parts."""


LONGEST_STAMP = 35
"""Characters of the longest time that a line begins with."""


class LogStream:
    """The lines of one response; see `LogLines`."""

    def __init__(
        self, response: Any, where: str, *, keep_ends: bool, grow_s: float | None = None, stamped: bool = True
    ) -> None:
        """Read a response.

        Args:
            response: The response of urllib3.
            where: What messages call the cluster.
            keep_ends: Lines keep their newline.
            grow_s: How long a line may stay unfinished before the part that has come is returned. None: for ever.
            stamped: Each line begins with its time, which is never returned in parts.
        """
        self._closed = False
        self._finished = False
        self._response = response
        self._where = where
        self._end = "\n" if keep_ends else ""
        self._grow_s = grow_s
        self._stamped = stamped
        self._begins = True
        """No part of the present line was returned."""
        self._blocks = response.stream(amt=None, decode_content=False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lines: deque[str] = deque()
        self._rest: list[str] = []
        self._size = 0
        self._rest_since = 0.0

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end, and the last line was returned."""
        return self._finished and not self._lines

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        return self

    def __next__(self) -> str:
        """Return the next line."""
        while not self._lines:
            if self._closed:
                raise StopIteration
            self._read()
        return self._lines.popleft()

    def _read(self) -> None:
        """Read one block; an interrupted stream is an error, not an end."""
        if self._may_be_parted() and _is_idle(self._response, self._grow_s or 0):
            self._lines.append(self._take_rest())
            self._begins = False
            return
        try:
            block = next(self._blocks, None)
        except (urllib3().exceptions.HTTPError, OSError, AttributeError, ValueError) as error:
            if self._closed:
                return
            self.close()
            silent = isinstance(error, urllib3().exceptions.ReadTimeoutError)
            raise ClusterError(
                f"the log stream from {self._where} broke off: {error}",
                retryable=True,
                reason="Silent" if silent else "BrokenStream",
            ) from error
        except BaseException:
            self.close()
            raise
        if block is None:
            if self._rest:
                self._lines.append(self._take_rest())
            # Read to its end, the connection is good for the next question.
            self._closed = self._finished = True
            self._response.release_conn()
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
            # Progress that is written over and over is returned up to the last complete turn.
            self._lines.extend(filter(None, [self._take_part(only_turns=True)]))

    def _may_be_parted(self) -> bool:
        """Return whether something has come of a line, and more than a part of its time."""
        if not self._rest or self._grow_s is None:
            return False
        in_stamp = self._stamped and self._begins and self._size <= LONGEST_STAMP
        return not (in_stamp and not any(" " in text for text in self._rest))

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

    def _take_part(self, *, only_turns: bool = False) -> str:
        """Return the begun line up to its last carriage return, or all of it where it has none."""
        text = self._take_rest()
        cut = text.rfind("\r")
        if cut <= 0 or (not only_turns and len(text) - cut > LONGEST_PART):
            cut = 0 if only_turns else len(text)
        self._add(text[cut:])
        self._begins = self._begins and not cut
        return text[:cut]

    def close(self) -> None:
        """Give the connection up; whoever waits for a line is released."""
        if self._closed:
            return
        self._closed = True
        _interrupt(self._response)
        self._response.close()
        self._response.release_conn()

    def __del__(self) -> None:
        """Give up the connection of a log that nobody reads on."""
        self.close()


def _interrupt(response: Any) -> None:
    """Wake a thread that reads; closing a socket alone leaves it waiting."""
    connection = getattr(response, "connection", None)
    # Where the server said that it would close the connection, only the body's reader holds it.
    waiting = getattr(connection, "sock", None) or _socket_of(_reader_of(response))
    if waiting is None:
        return
    # Encryption within that of a proxy has its socket inside.
    waiting = getattr(waiting, "socket", waiting)
    try:
        waiting.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The other side was quicker.
        return


def _reader_of(response: Any) -> Any:
    """Return the buffered reader of a response's body. None: it has none, or was read to its end."""
    return getattr(getattr(response, "_fp", None), "fp", None)


def _socket_of(reader: Any) -> Any:
    return getattr(getattr(reader, "raw", None), "_sock", None)


def _is_idle(response: Any, seconds: float) -> bool:
    """Return whether nothing comes of a response for so long; False at once where something has come already."""
    reader = _reader_of(response)
    waiting = _socket_of(reader)
    if waiting is None or _has_come(reader, waiting):
        return False
    try:
        return not urllib3().util.wait_for_read(waiting, seconds)
    except (OSError, ValueError):
        # Another thread closed the stream; reading says so.
        return False


def _has_come(reader: Any, waiting: Any) -> bool:
    """Return whether bytes have been read, or deciphered, and not taken yet."""
    limit = waiting.gettimeout()
    try:
        waiting.settimeout(0)
        return bool(reader.peek(1))
    except ssl.SSLWantReadError:
        return False
    except (OSError, ValueError):
        # The connection is broken or closed; reading says so.
        return True
    finally:
        waiting.settimeout(limit)
