"""The one policy of retries: requests to registries, and pulls and pushes of the Docker daemon."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from urllib3.exceptions import InvalidHeader, MaxRetryError
from urllib3.util.retry import Retry

from torchx_pulumi.model.errors import ImageError

RETRIED: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP statuses after which a request is sent again."""
LONGEST_WAIT_S: Final = 30.0
"""Longest wait before an attempt, also of one that `Retry-After` asks for."""
_METHODS: Final = frozenset(("HEAD", "GET", "POST", "PUT", "DELETE"))
"""Methods that may be repeated. A PATCH may not: the registry may have taken a part of what was sent."""

on_wait: ContextVar[Callable[[str], None] | None] = ContextVar("on_wait", default=None)
"""Called with the reason of a wait before it begins. None: nothing is called."""

Result = TypeVar("Result")


class Retries(Retry):  # type: ignore[misc]  # its base has no types with urllib3 1.26
    """Number of attempts, and the wait between them.

    In contrast to its base class, it follows `Retry-After` for all statuses that are retried, limits it with both
    versions of urllib3, waits before the first repetition, and does not repeat what fails permanently.
    """

    RETRY_AFTER_STATUS_CODES = RETRIED
    pause: Callable[[float], None] = staticmethod(time.sleep)
    first_wait_s = 0.5

    @classmethod
    def of(cls, tries: int, first_wait_s: float, pause: Callable[[float], None] = time.sleep) -> Retries:
        """Return a policy.

        Args:
            tries: Attempts in total, at least 1.
            first_wait_s: Seconds after the first attempt. Each wait is twice the previous one, at most 30 s.
            pause: Waits for a number of seconds.
        """
        made = cls(
            total=tries - 1, status_forcelist=RETRIED, allowed_methods=_METHODS, raise_on_status=False, redirect=False
        )
        made.first_wait_s, made.pause = first_wait_s, pause
        return made

    def new(self, **changes: Any) -> Retries:
        """Return a copy with changes."""
        made: Retries = super().new(**changes)
        made.first_wait_s, made.pause = self.first_wait_s, self.pause
        return made

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Retries:
        """Return the policy after a failed attempt.

        Raises:
            MaxRetryError: There is no further attempt.
        """
        if error is not None and is_permanent(error):
            raise MaxRetryError(_pool, url or "", error)
        counted: Retries = super().increment(method, url, response, error, _pool, _stacktrace)
        return counted

    def wait_s(self, response: Any = None) -> float:
        """Return the seconds to wait before the next attempt."""
        asked = None
        if response is not None:
            try:
                asked = self.get_retry_after(response)
            except (InvalidHeader, ValueError, OverflowError):
                asked = None
        own = self.first_wait_s * 2 ** max(len(self.history) - 1, 0)
        return float(min(own if asked is None else asked, LONGEST_WAIT_S))

    def sleep(self, response: Any = None) -> None:
        """Wait before the next attempt."""
        wait_s, tell = self.wait_s(response), on_wait.get()
        if tell is not None and self.history:
            last = self.history[-1]
            reason = f"it answered {last.status}" if last.status else short_reason(last.error)
            tell(f"trying again in {wait_s:.0f} s: {reason}")
        self.pause(wait_s)


def with_retries(work: Callable[[], Result], retries: Retries, tell: Callable[[ImageError], None]) -> Result:
    """Call a function until it succeeds, fails permanently, or the attempts are used up.

    Args:
        work: The function.
        retries: The policy.
        tell: Called with the error of an attempt that is not the last one.

    Raises:
        ImageError: The error of the last attempt.
    """
    while True:
        try:
            return work()
        except ImageError as error:
            retries = after(error, retries)
            tell(error)
            retries.sleep()


def after(error: ImageError, retries: Retries) -> Retries:
    """Return the policy after an attempt that failed.

    Raises:
        ImageError: The same error: it is permanent, or there is no further attempt.
    """
    if not error.retryable:
        raise error
    try:
        return retries.increment(error=error)
    except MaxRetryError:
        raise error from error.__cause__


def is_permanent(error: BaseException) -> bool:
    """Return whether another attempt would fail the same way: an unknown host, or an untrusted certificate."""
    text = str(error)
    return any(
        word in text for word in ("Name or service not known", "CERTIFICATE_VERIFY_FAILED", "getaddrinfo failed")
    )


def short_reason(error: object) -> str:
    """Return the system's message of an error. Libraries wrap it in the names of their objects."""
    import re

    found = re.search(
        r"\[Errno -?\d+\] ([^'\")]+)|(timed out|CERTIFICATE_VERIFY_FAILED|Connection aborted)", str(error)
    )
    reason = (found[1] or found[2]).strip() if found else str(error)
    proxy = "its proxy: " if "ProxyError" in str(error) else ""
    # The address of a proxy may have a password.
    return proxy + re.sub(r"//[^/\s]*@", "//***@", reason)
