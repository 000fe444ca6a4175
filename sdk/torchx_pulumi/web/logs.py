"""The log of a replica for the page and the API."""

from __future__ import annotations

from dataclasses import dataclass

NOTE = "# torchx-pulumi: "
"""Beginning of a line that is not of the log: it says where the log is read from, or why it goes no further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """The log to read."""

    role: str
    """Name of the role."""
    replica: int
    """Replica in the role, from 0."""
    attempt: int | None = None
    """Number of the attempt, of those whose logs are kept, from 1. None: the present one."""
    run: str | None = None
    """Uid of the job object, or its beginning. None: the present run."""
    container: str | None = None
    """Name of a container. None: the one that is read by default."""
    tail: int | None = None
    """Lines at the end of the log to begin with. None: all lines."""
    follow: bool = False
    """Go on until the app has ended. An attempt or a run that is over ends by itself."""
    timestamps: bool = True
    """Each line begins with its time, as Kubernetes writes it."""
