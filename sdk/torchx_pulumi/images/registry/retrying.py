"""When a registry is asked again, and how long after."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

RETRIED: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers that another try may better."""
LONGEST_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how patiently something is tried again."""

    tries: int = 5
    """Tries in all."""
    first_s: float = 0.5
    """Seconds after the first try; each wait is twice the one before."""
    sleep: Callable[[float], None] = time.sleep
    """Waits."""

    def wait(self, failed: int, headers: Mapping[str, str] | None = None) -> bool:
        """Wait before the next try; False: there is none.

        Args:
            failed: Tries that have failed, from 1.
            headers: Of the answer; `Retry-After` in it wins, up to 30 s.
        """
        if failed >= self.tries:
            return False
        asked = _asked_for((headers or {}).get("Retry-After"))
        self.sleep(min(asked if asked is not None else self.first_s * 2 ** (failed - 1), LONGEST_WAIT_S))
        return True


def _asked_for(value: str | None) -> float | None:
    """Read `Retry-After`: seconds or a date."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None
