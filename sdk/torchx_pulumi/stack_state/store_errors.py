"""Errors of the clients of object stores as `OSError`, so that all stores fail in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

REFUSALS = frozenset(
    {
        # botocore
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "NoAuthTokenError",
        "SSOError",
        "TokenRetrievalError",
        # google.auth
        "DefaultCredentialsError",
        "RefreshError",
        # azure.core
        "ClientAuthenticationError",
    }
)
"""Names of the errors of object store clients for missing or invalid credentials."""

REFUSED_STATUS = (401, 403)
"""Status codes of HTTP responses that deny access."""


@contextmanager
def as_os_error() -> Iterator[None]:
    """Convert the errors of object store clients to `PermissionError` and `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        kind = PermissionError if _is_refusal(error) else OSError
        raise kind(f"{type(error).__name__}: {error}") from error


def _is_refusal(error: Exception) -> bool:
    response = getattr(error, "response", None)
    answer = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    status = {str(answer), str(getattr(error, "status_code", None)), str(getattr(error, "code", None))}
    names = {base.__name__ for base in type(error).__mro__}
    return not names.isdisjoint(REFUSALS) or not status.isdisjoint(map(str, REFUSED_STATUS))
