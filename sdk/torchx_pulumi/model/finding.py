"""What the doctor is asked, and what it finds. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """What a check came to."""

    OK = "ok"
    PROBLEM = "problem"
    """A launch would fail, or something it needs would."""
    SKIPPED = "skipped"
    """Not looked at, or not needed for what was asked; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    """Name of the check; it never changes."""
    verdict: Verdict
    detail: str
    """What was found."""
    resolution: str = ""
    """What to do. Empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """For which launches the doctor looks."""

    scheduler: str | None = None
    """`volcano` or `mcad`. None: whichever of them the cluster has."""
    queue: str | None = None
    """Volcano queue. None: `default`."""
    namespace: str = "default"
    image_repo: str | None = None
    """Repository that patched images are pushed to. None: none, so that no image is built."""


def ok(check: str, detail: str) -> Finding:
    """Make the finding that all is well."""
    return Finding(check=check, verdict=Verdict.OK, detail=detail)


def problem(check: str, detail: str, resolution: str) -> Finding:
    """Make the finding that something is not."""
    return Finding(check=check, verdict=Verdict.PROBLEM, detail=detail, resolution=resolution)


def skipped(check: str, detail: str, resolution: str = "") -> Finding:
    """Make the finding that there was nothing to look at."""
    return Finding(check=check, verdict=Verdict.SKIPPED, detail=detail, resolution=resolution)
