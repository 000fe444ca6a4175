"""A log as it comes over a connection: blocks of bytes cut into lines, and a close that releases whoever waits."""

from __future__ import annotations

import codecs
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from torchx_pulumi.cluster.wire import urllib3
from torchx_pulumi.errors import ClusterError


class LogStream:
    """The lines of one response; see `LogLines`."""

    def __init__(self, response: Any, where: str, *, keep_ends: bool) -> None:
        self._closed = False
        self._response = response
        self._where = where
        self._end = "\n" if keep_ends else ""
        self._blocks = response.stream(amt=None, decode_content=False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lines: deque[str] = deque()
        self._rest = ""

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
                self._lines.append(self._rest)
            # Read to its end, the connection is good for the next question.
            self._closed = True
            self._response.release_conn()
            return
        *lines, self._rest = (self._rest + self._decode(block)).split("\n")
        self._lines.extend(line + self._end for line in lines)

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
    waiting = getattr(connection, "sock", None)
    if waiting is None:
        # The server said that it would close the connection, so only the body's reader holds it.
        file = getattr(getattr(response, "_fp", None), "fp", None)
        waiting = getattr(getattr(file, "raw", None), "_sock", None)
    if waiting is None:
        return
    try:
        waiting.shutdown(socket.SHUT_RDWR)
    except OSError:
        # The other side was quicker.
        return
