"""Errors of the local cluster. Their text is all that a user sees: where, what was found, what to do next."""

from __future__ import annotations


class LocalClusterError(Exception):
    """The cluster could not be brought up, read or taken down."""


class ApiError(LocalClusterError):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"API server: {status}: {message}")
        self.status = status
        """HTTP status code."""
        self.message = message
        """What the server said."""
