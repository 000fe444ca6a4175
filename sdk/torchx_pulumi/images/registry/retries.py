"""The one policy of attempts: requests to registries, and pulls and pushes of the Docker daemon."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from torchx_pulumi.model.errors import ImageError

LONGEST_WAIT_S: Final = 30.0
"""Longest wait before an attempt, also of one that `Retry-After` asks for."""

on_wait: ContextVar[Callable[[str], None] | None] = ContextVar("on_wait", default=None)
"""Called with the reason of a wait before it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Number of attempts, and the wait between them."""

    tries: int = 5
    """Attempts in total, at least 1."""
    first_wait_s: float = 0.5
    """Seconds after the first attempt. Each wait is twice the previous one, at most 30 s."""
    pause: Callable[[float], None] = time.sleep
    """Waits for a number of seconds."""


class Attempts:
    """The attempts of one piece of work."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self.failed = 0
        """Attempts that have failed since the work last got on."""

    def wait(self, error: ImageError) -> None:
        """Wait before the next attempt: as long as the error asks for, else as long as the policy says.

        Raises:
            ImageError: The error itself: another attempt would not help, or there is none left.
        """
        self.failed += 1
        is_lasting = not error.retryable or getattr(error, "is_lasting", False)
        if is_lasting or self.failed >= self._retries.tries:
            raise error
        asked_s = getattr(error, "retry_after_s", None)
        wait_s = self._retries.first_wait_s * 2 ** (self.failed - 1) if asked_s is None else asked_s
        wait_s = min(wait_s, LONGEST_WAIT_S)
        if tell := on_wait.get():
            tell(f"trying again in {wait_s:.0f} s: {getattr(error, 'reason', None) or error}")
        self._retries.pause(wait_s)
