"""Messages of failed requests: what was asked for, what the registry answered, what to do next."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from torchx_pulumi.images.reference import DOCKER_HUB, Reference
from torchx_pulumi.images.registry.retries import RETRIED, short_reason
from torchx_pulumi.model.errors import ImageError

_LONGEST: Final = 400
"""Characters of a registry's own message that are shown."""
_LIMITS: Final = re.compile(r"quota|no space|storage|size limit|exceed", re.IGNORECASE)


class RefusedRequestError(ImageError):
    """A registry answered with a status that the request does not expect."""

    def __init__(
        self, message: str, *, status: int, retryable: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        """The HTTP status."""
        self.headers = headers or {}
        """Headers of the response. `Retry-After` is read as of a response."""
        super().__init__(message, retryable=retryable)


def message_in(content: bytes) -> str:
    """Return the registry's own message: code and message of each error, or a short text. Empty: it sent no message.

    >>> message_in(b'{"errors": [{"code": "DENIED", "message": "quota exceeded"}]}')
    'DENIED: quota exceeded'
    """
    text = "".join(each if each.isprintable() else " " for each in content[:8192].decode("utf-8", "replace")).strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        # A page of a proxy says less than its status.
        return "" if text.startswith("<") else " ".join(text.split())[:_LONGEST]
    errors = found.get("errors") if isinstance(found, dict) else None
    if not isinstance(errors, list):
        errors = [found]
    said = "; ".join(_one(each) for each in errors if isinstance(each, dict) and _one(each))[:_LONGEST]
    return "".join(each if each.isprintable() else " " for each in said)


def _one(error: dict[str, object]) -> str:
    code, message, detail = error.get("code") or error.get("error"), error.get("message"), error.get("detail")
    parts = [str(each) for each in (code, message or error.get("details")) if each]
    if detail and isinstance(detail, str):
        parts.append(detail)
    return ": ".join(parts)


def refused(
    status: int,
    reason: str,
    content: bytes,
    reference: Reference,
    what: str,
    tries: int,
    note: str = "",
    headers: Mapping[str, str] | None = None,
) -> RefusedRequestError:
    """Return the error of an unexpected status.

    Args:
        status: The HTTP status.
        reason: The text after it.
        content: Beginning of the body.
        reference: The repository.
        what: What was asked for.
        tries: Attempts that were made.
        note: What credentials could not be read. Empty: nothing.
        headers: Headers of the response.
    """
    said = message_in(content)
    quoted = f" ({said})" if said else ""
    limit = bool(_LIMITS.search(said))
    if status in (401, 403) and not limit:
        return RefusedRequestError(denied(reference, f"answers {status}{quoted}", what, note), status=status)
    times = f" after {tries} tries" if tries > 1 else ""
    answer = f"answers {status} {reason}".rstrip()
    if status == 429:
        answer, hint = "is limiting the rate of requests", "log in with a higher limit or wait"
    elif status == 413:
        hint = "raise the limit of its proxy for the size of a request (client_max_body_size of nginx)"
    elif status == 507 or limit:
        hint = "free space in it, or raise its quota"
    elif status == 404:
        hint = f"check that the repository {reference.path} exists and that this account may use it"
    else:
        hint = "see its logs"
    return RefusedRequestError(
        f"registry {reference.registry}: {answer}{quoted}{times}, asked for {what}; {hint}, then run again",
        status=status,
        retryable=status in RETRIED and not (limit and status != 429),
        headers=headers,
    )


def denied(reference: Reference, what: str, asked: str, note: str = "") -> str:
    """Return the message of a refusal for lack of credentials or permissions."""
    login = "docker login" if reference.registry == DOCKER_HUB else f"docker login {reference.registry}"
    return (
        f"registry {reference.registry}: {what}, asked for {asked}; "
        f"run `{login}` with an account that may use {reference.path}" + (f" ({note})" if note else "")
    )


def certificates(reference: Reference, error: object, what: str) -> str:
    """Return the message of certificates that cannot be read."""
    return (
        f"registry {reference.registry}: {error}, asked for {what}; see REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and the "
        "folders certs.d of Docker's configuration"
    )


def unreachable(reference: Reference, error: object, what: str) -> str:
    """Return the message of a registry that does not answer."""
    return (
        f"registry {reference.registry}: cannot be reached ({short_reason(error)}), asked for {what}; "
        "check that it runs and that this machine may reach it, then run again"
    )
