"""Events of a watch that is read from a connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from torchx_pulumi.kube.api_errors import response_error
from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.log_stream import LogStream
from torchx_pulumi.kube.protocol import WatchEvent
from torchx_pulumi.kube.transport import Response
from torchx_pulumi.model.errors import ClusterError
from torchx_pulumi.model.object_fields import at

LONGEST_EVENT: Final = 64 << 20
"""Characters of an event. API servers store objects of at most about 3 MiB."""

TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class WatchStream:
    """`WatchEvents` of one response."""

    def __init__(self, response: Response, where: str, kind: Kind, *, silence_s: float) -> None:
        """Read a response.

        Args:
            response: The response.
            where: Name of the cluster in messages.
            kind: The watched kind.
            silence_s: Seconds without an event after which the watch counts as interrupted.
        """
        response.set_silence(silence_s)
        self._what = f"watch of {kind.plural}"
        # Lines keep their end: without it, a line is a part of an event.
        self._lines = LogStream(response, where, keep_ends=True, what=self._what)
        self._where = where
        self._kind = kind
        self._closed = False

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Return the next event."""
        text = self._next_line()
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        kind, found = at(event, "type"), at(event, "object")
        if kind == "ERROR" and isinstance(found, dict):
            raise self._refused(found)
        if kind not in TYPES or not isinstance(at(found, "metadata"), dict):
            raise self._broken(f"it sent {text[:80]!r}, which is not an event")
        return WatchEvent(type=kind, object={"apiVersion": self._kind.api_version, "kind": self._kind.kind, **found})

    def _next_line(self) -> str:
        """Return the next line that is not empty, joined from its parts."""
        parts: list[str] = []
        size = 0
        for part in self._lines:
            parts.append(part)
            size += len(part)
            if size > LONGEST_EVENT:
                raise self._broken(f"it sent an event of more than {LONGEST_EVENT >> 20} MiB")
            if part.endswith("\n"):
                text = "".join(parts).strip()
                if text:
                    return text
                parts, size = [], 0
        if parts and not self._closed:
            raise self._broken("it ended within an event")
        raise StopIteration

    def _broken(self, why: str) -> ClusterError:
        self.close()
        return ClusterError(
            f"the {self._what} from {self._where} was interrupted: {why}", retryable=True, reason="BrokenStream"
        )

    def _refused(self, status: dict[str, Any]) -> ClusterError:
        """Return the error of an event that has a Kubernetes status instead of an object."""
        self.close()
        code = status.get("code")
        body = json.dumps(status).encode()
        refused = response_error(code if isinstance(code, int) else 500, body, self._where, self._kind)
        return refused or ClusterError(f"{self._where} ended the {self._what}: {status.get('message')}", retryable=True)

    def close(self) -> None:
        """Close the connection and end the wait of other threads."""
        self._closed = True
        self._lines.close()
