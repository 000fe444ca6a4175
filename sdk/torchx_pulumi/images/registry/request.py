"""Requests to registries, their responses, and the errors of those that fail: request, answer and next step.

Data and texts only; `client` sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torchx_pulumi.images.reference import DOCKER_HUB, Reference
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import one_line

RETRIED: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP statuses after which a request is sent again."""
TIMEOUT_S: Final = (10.0, 60.0)
"""Timeouts of a connection attempt and of a response."""
_LONGEST: Final = 400
"""Characters of a registry's own message that are shown."""
_LIMITS: Final = re.compile(r"quota|no space|storage|size limit|exceed", re.IGNORECASE)
_LASTING: Final = ("Name or service not known", "CERTIFICATE_VERIFY_FAILED", "getaddrinfo failed")
"""In errors of a connection that another attempt within seconds would have too."""
_REASON: Final = re.compile(r"\[Errno -?\d+\] ([^'\")]+)|(timed out|CERTIFICATE_VERIFY_FAILED|Connection aborted)")


def pull_scope(repository: Reference) -> str:
    """Return the scope for reading a repository."""
    return f"repository:{repository.path}:pull"


def push_scope(repository: Reference) -> str:
    """Return the scope for writing to a repository."""
    return f"repository:{repository.path}:pull,push"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRequest:
    """A request to a registry, or to its token service."""

    method: str
    url: str
    """With host, or a path below the registry's address."""
    reference: Reference
    """The repository, whose registry gets the credentials."""
    scopes: tuple[str, ...]
    """Permissions that the request needs."""
    what: str
    """The wanted object, for messages."""
    expected: Container[int] = (200,)
    """Statuses that are returned. Others are errors."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | Callable[[], Iterator[bytes]] | None = field(default=None, repr=False)
    """Content. A function begins it again for each time it is sent; its length is in the headers."""
    authorization: str | None = field(default=None, repr=False)
    """Value of that header; empty: none. None: as the registry's challenge asks."""
    repeated: bool = True
    """Send it again after errors that may pass. False: the caller does."""
    timeout_s: tuple[float, float] = TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    """A response that was read as a whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)

    def json(self) -> Any:
        """Return the content as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            return None


class RegistryError(ImageError):
    """A registry does not answer, or answers with a status that the request does not expect."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        retryable: bool = False,
        is_lasting: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        """The HTTP status. None: there was no response."""
        self.reason = reason
        """What happened, in a few words. Empty: only the message says it."""
        self.is_lasting = is_lasting
        """Whether another attempt within seconds ends in the same way."""
        self.retry_after_s = retry_after_s
        """Seconds before another attempt that the registry asks for. None: it does not."""
        super().__init__(message, retryable=retryable)


def refused(response: Any, content: bytes, request: RegistryRequest, tries: int, note: str) -> RegistryError:
    """Return the error of a response of urllib3 with an unexpected status.

    `content` is the beginning of its body, `tries` the number of attempts so far, and `note` as of `denied`.
    """
    status = response.status
    said = message_in(content)
    quoted = f" ({said})" if said else ""
    limit = bool(_LIMITS.search(said))
    if status in (401, 403) and not limit:
        return denied(request, f"answers {status}{quoted}", status=status, note=note)
    answer = f"answers {status} {response.reason or ''}".rstrip()
    if status == 429:
        answer, hint = "is limiting the rate of requests", "log in with a higher limit or wait"
    elif status == 413:
        hint = "raise the limit of its proxy for the size of a request (client_max_body_size of nginx)"
    elif status == 507 or limit:
        hint = "free space in it, or raise its quota"
    elif status == 404:
        hint = f"check that the repository {request.reference.path} exists and that this account may use it"
    else:
        hint = "see its logs"
    times = f" after {tries} tries" if tries > 1 else ""
    wait = response.headers.get("Retry-After", "").strip()
    return RegistryError(
        f"registry {request.reference.registry}: {answer}{quoted}{times}, asked for {request.what}; {hint}, "
        "then run again",
        status=status,
        reason=f"it answered {status}",
        retryable=status in RETRIED and not (limit and status != 429),
        # Dates are allowed too, and no registry sends them.
        retry_after_s=float(wait) if wait.isdigit() else None,
    )


def denied(request: RegistryRequest, what: str, *, status: int = 401, note: str = "") -> RegistryError:
    """Return the error of a refusal for lack of credentials or permissions.

    The message has the registry's action (`what`), and a note why credentials of a pod could not be read, if any.
    """
    reference = request.reference
    login = "docker login" if reference.registry == DOCKER_HUB else f"docker login {reference.registry}"
    return RegistryError(
        f"registry {reference.registry}: {what}, asked for {request.what}; "
        f"run `{login}` with an account that may use {reference.path}" + (f" ({note})" if note else ""),
        status=status,
    )


def unreachable(request: RegistryRequest, error: object, *, by_proxy: bool = False) -> RegistryError:
    """Return the error of a registry that does not answer.

    Args:
        request: The request.
        error: The error of the connection. Libraries wrap the system's message in the names of their objects.
        by_proxy: The connection to the proxy failed.
    """
    text = str(error)
    found = _REASON.search(text)
    reason = (found[1] or found[2]).strip() if found else text
    # The address of a proxy may have a password.
    reason = ("its proxy: " if by_proxy else "") + re.sub(r"//[^/\s]*@", "//***@", reason)
    return RegistryError(
        f"registry {request.reference.registry}: cannot be reached ({reason}), asked for {request.what}; "
        "check that it runs and that this machine may reach it, then run again",
        reason=reason,
        retryable=True,
        is_lasting=any(word in text for word in _LASTING),
    )


def message_in(content: bytes) -> str:
    """Return the registry's own message: code and message of each error, or a short text; empty without a message.

    >>> message_in(b'{"errors": [{"code": "DENIED", "message": "quota exceeded"}]}')
    'DENIED: quota exceeded'
    """
    text = one_line(content[:8192].decode("utf-8", "replace"))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        # A page of a proxy says less than its status.
        return "" if text.startswith("<") else text[:_LONGEST]
    errors = found.get("errors") if isinstance(found, dict) else None
    parts = [
        [error.get("code") or error.get("error"), error.get("message") or error.get("details"), error.get("detail")]
        for error in (errors if isinstance(errors, list) else [found])
        if isinstance(error, dict)
    ]
    said = "; ".join(": ".join(part for part in each if part and isinstance(part, str)) for each in parts)
    return one_line(said)[:_LONGEST]
