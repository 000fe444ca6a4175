"""Findings of the doctor's checks, and the launches that it checks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torchx_pulumi.model.documentation import page


class Verdict(str, Enum):
    """Result of a check."""

    OK = "ok"
    PROBLEM = "problem"
    """A launch would fail."""
    SKIPPED = "skipped"
    """Not checked, or not needed. The detail has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check, with its explanation."""

    check: str
    """Name of the check, which is part of the JSON output."""
    verdict: Verdict
    detail: str
    """The observation, in one sentence."""
    resolution: str = ""
    """Next step for the user. Empty: none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorScope:
    """The launches that the doctor checks for."""

    scheduler: str | None = None
    """`volcano` or `mcad`. None: whichever of them the cluster has."""
    queue: str | None = None
    """Volcano queue, or with `scheduler` mcad a LocalQueue of Kueue. None: Volcano's `default`, and no LocalQueue."""
    namespace: str = "default"
    image_repo: str | None = None
    """Repository for patched images. None: no image is built."""


def ok(check: str, detail: str, warning: str | None = None) -> Finding:
    """Return the finding of a check without problems.

    Args:
        check: Name of the check.
        detail: The observation.
        warning: About a version outside the supported range. None: there is nothing to warn about.
    """
    if warning is None:
        return Finding(check=check, verdict=Verdict.OK, detail=detail)
    advice = f"if a launch fails, use a version of {page('tested-versions')}"
    return Finding(check=check, verdict=Verdict.OK, detail=f"{detail}; {warning}", resolution=advice)


def problem(check: str, detail: str, resolution: str) -> Finding:
    """Return the finding of a check with a problem."""
    return Finding(check=check, verdict=Verdict.PROBLEM, detail=detail, resolution=resolution)


def skipped(check: str, detail: str, resolution: str = "") -> Finding:
    """Return the finding of a check that was skipped."""
    return Finding(check=check, verdict=Verdict.SKIPPED, detail=detail, resolution=resolution)
