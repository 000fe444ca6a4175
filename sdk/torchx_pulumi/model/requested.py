"""A user's request to cancel or to resume a run. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torchx_pulumi.model.codec import from_json, to_json
from torchx_pulumi.model.timestamps import parse_time


class RequestedAction(str, Enum):
    """The requested action."""

    CANCEL = "cancel"
    RESUME = "resume"
    """The run is to go on: after a cancellation, or because the cluster refused one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """The last request about a run."""

    action: RequestedAction
    at: str
    """When it was made, ISO 8601 in UTC."""
    by: str | None = None
    """User who made it, if known."""
    counter: int = 1
    """1 for the first request about a run. A stack takes the request whose number follows the one that it has."""
    uid: str | None = None
    """Uid of the job object that it is about, if known."""
    attempt: int = 1
    """Attempt of the run when it was made."""
    resource_version: str | None = None
    """`metadata.resourceVersion` of the job object when it was made, if known."""

    @property
    def words(self) -> str:
        """Return the action and its time, for messages.

        >>> Requested(action=RequestedAction.CANCEL, at="2026-11-01T10:00:00Z").words
        'cancelled at 2026-11-01T10:00:00Z'
        """
        done = "cancelled" if self.action is RequestedAction.CANCEL else "asked to run again"
        return f"{done} at {self.at}"

    def is_about(self, uid: str | None) -> bool:
        """Return whether it is about the run with this uid. A request without a uid is about every run of its app."""
        return self.uid is None or uid is None or self.uid == uid


def follows(request: Requested, present: Requested | None) -> bool:
    """Return whether a stack takes a request: its counter is one more than that of the stack's present request."""
    known = 0 if present is None or not present.is_about(request.uid) else present.counter
    return request.counter == known + 1


def write_requested(request: Requested) -> dict[str, Any]:
    """Return a request in the shape of the output `torchx.requested`."""
    plain: dict[str, Any] = to_json(request)
    return plain


def read_requested(value: object) -> Requested | None:
    """Return a request in the shape of the output `torchx.requested`, or None if it is absent or unreadable."""
    if not isinstance(value, Mapping):
        return None
    try:
        found = from_json(Requested, value)
    except ValueError:
        # A later release wrote it, or it was changed by hand: it is not known what was asked for.
        return None
    # The time is shown as it is, and may not be any text of whoever can write the stack.
    return found if parse_time(found.at) is not None and int(found.counter) == found.counter else None
