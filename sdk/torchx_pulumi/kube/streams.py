"""Lines of a log and events of a watch, read from a connection; `close` ends the wait of other threads."""

from __future__ import annotations

import codecs
import json
import time
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Final, TypeVar

from torchx_pulumi.kube.concurrent import in_thread
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import WatchEvent
from torchx_pulumi.kube.transport import Response, response_error, urllib3
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at

GROW_S: Final = 1.0
"""Seconds after which the received part of an unfinished line is returned."""

LONGEST_PART: Final = 1 << 20
"""Characters of a line that are buffered. A longer line is returned in parts."""

LONGEST_STAMP: Final = 35
"""Characters of the longest time at the beginning of a line."""

LONGEST_EVENT: Final = 64 << 20
"""Bytes of an event. API servers store objects of at most about 3 MiB."""

T = TypeVar("T")


class _Stream:
    """The blocks of one response."""

    def __init__(self, response: Response, where: str, what: str) -> None:
        self._closed = False
        # Among objects that refer to each other, `__del__` may come after the socket was collected.
        self._close_response = weakref.finalize(self, response.close)
        """Closes the connection, at the latest when the stream is not read any more."""
        # A forked child would end the connection of its parent.
        self._close_response.atexit = False
        self._where = where
        """Name of the cluster in messages."""
        self._what = what
        """What is read, in messages."""
        self._blocks = response.blocks()
        self._ahead: Future[bytes | None] | None = None
        """The next block while it is read in another thread."""

    def _arrives(self, seconds: float) -> bool:
        """Return whether the next block is received in time. It is read in a thread of its own."""
        if self._ahead is None:
            # The thread must not keep the stream alive.
            self._ahead = in_thread(partial(next, self._blocks, None))
        return bool(wait([self._ahead], seconds).done)

    def _read(self) -> bytes | None:
        """Return the next block, or None if the stream ended or was closed. An interrupted stream raises an error."""
        try:
            ahead, self._ahead = self._ahead, None
            return ahead.result() if ahead else next(self._blocks, None)
        except (urllib3().exceptions.HTTPError, OSError, AttributeError, ValueError) as error:
            if self._closed:
                return None
            silent = isinstance(error, urllib3().exceptions.ReadTimeoutError)
            raise self._interrupted(error, "Silent" if silent else "BrokenStream") from error
        except BaseException:
            self.close()
            raise

    def _next(self, lines: deque[T]) -> T:
        """Return the next one of the lines to which `_read_lines` adds."""
        while not lines:
            if self._closed:
                raise StopIteration
            self._read_lines()
        return lines.popleft()

    def _read_lines(self) -> None:
        raise NotImplementedError

    def _interrupted(self, why: object, reason: str = "BrokenStream") -> ClusterError:
        self.close()
        return ClusterError(
            f"the {self._what} from {self._where} was interrupted: {why}", retryable=True, reason=reason
        )

    def _ended(self) -> None:
        """Note that the response was read to its end: its connection is not closed, as it can be used again."""
        self._closed = True
        self._close_response.detach()

    def close(self) -> None:
        """Close the connection and end the wait of other threads."""
        self._closed = True
        self._close_response()


class LogStream(_Stream, Iterator[str]):
    """`LogLines` of one response."""

    def __init__(
        self, response: Response, where: str, *, keep_ends: bool, grow_s: float | None = None, stamped: bool = False
    ) -> None:
        super().__init__(response, where, "log stream")
        self._read_to_end = False
        self._end = "\n" if keep_ends else ""
        self._grow_s = grow_s
        """Seconds after which the received part of an unfinished line is returned. None: never."""
        self._stamped = stamped
        """Each line begins with its time, which is never split."""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lines: deque[str] = deque()
        self._rest = ""
        """Received part of a line, without what of it was returned."""
        self._rest_since = 0.0
        self._begins = True
        """No part of that line has been returned."""

    @property
    def finished(self) -> bool:
        """Return whether the log was read to its end and the last line was returned."""
        return self._read_to_end and not self._lines

    def __next__(self) -> str:
        """Return the next line."""
        return self._next(self._lines)

    def _read_lines(self) -> None:
        """Read one block, or take the received part of a line for which nothing more is received."""
        # A part of a line's time is not returned.
        in_stamp = self._stamped and self._begins and len(self._rest) <= LONGEST_STAMP and " " not in self._rest
        if self._rest and not in_stamp and self._grow_s is not None and not self._arrives(self._grow_s):
            self._take_part(len(self._rest))
            return
        block = self._read()
        if block is None:
            if not self._closed:
                self._ended()
                self._read_to_end = True
                self._take_part(len(self._rest))
            return
        *lines, rest = (self._rest + self._decode(block)).split("\n")
        self._lines.extend(line + self._end for line in lines)
        if lines or not self._rest:
            self._rest_since = time.monotonic()
        self._rest = rest
        self._begins = self._begins or bool(lines)
        # Progress bars end their updates with a carriage return: complete updates are returned.
        updates = max(rest.rfind("\r"), 0)
        if len(rest) > LONGEST_PART:
            self._take_part(updates if updates and len(rest) - updates <= LONGEST_PART else len(rest))
        elif self._grow_s is not None and time.monotonic() - self._rest_since > self._grow_s:
            self._take_part(updates)

    def _take_part(self, length: int) -> None:
        """Return the first characters of an unfinished line, if there are any."""
        if length:
            self._lines.append(self._rest[:length])
            self._rest, self._rest_since, self._begins = self._rest[length:], time.monotonic(), False


class WatchStream(_Stream, Iterator[WatchEvent]):
    """`WatchEvents` of one response."""

    def __init__(self, response: Response, where: str, kind: Kind, *, silence_s: float) -> None:
        """Read a response; the watch counts as interrupted after `silence_s` seconds without an event."""
        super().__init__(response, where, f"watch of {kind.plural}")
        response.set_silence(silence_s)
        self._kind = kind
        self._lines: deque[bytes] = deque()
        self._rest = bytearray()
        """Received part of an event."""

    def __next__(self) -> WatchEvent:
        """Return the next event."""
        text = self._next(self._lines).decode("utf-8", "replace").strip()
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        kind, found = at(event, "type"), at(event, "object")
        if kind == "ERROR" and isinstance(found, dict):
            self.close()
            code, body = found.get("code"), json.dumps(found).encode()
            refused = response_error(code if isinstance(code, int) else 500, body, self._where, self._kind)
            ended = f"{self._where} ended the {self._what}: {found.get('message')}"
            raise refused or ClusterError(ended, retryable=True)
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK") or not isinstance(at(found, "metadata"), dict):
            raise self._interrupted(f"it sent {text[:80]!r}, which is not an event")
        return WatchEvent(type=kind, object={"apiVersion": self._kind.api_version, "kind": self._kind.kind, **found})

    def _read_lines(self) -> None:
        """Read one block."""
        block = self._read()
        if block is None:
            if self._rest and not self._closed:
                raise self._interrupted("it ended within an event")
            self._ended()
            return
        first, *more = block.split(b"\n")
        self._rest += first
        for text in more:
            if self._rest.strip():
                self._lines.append(bytes(self._rest))
            self._rest = bytearray(text)
        if len(self._rest) > LONGEST_EVENT:
            raise self._interrupted(f"it sent an event of more than {LONGEST_EVENT >> 20} MiB")
