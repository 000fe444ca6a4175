"""Why a job does not run, or did not succeed: observed objects in, ranked diagnoses out. Pure, and never raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchx_pulumi.model.status import Condition, JobState, JobStatus
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, Evidence, Finding, ObjectRef
from torchx_pulumi.schedulers.diagnosis.pods import diagnose_pods
from torchx_pulumi.schedulers.diagnosis.ranking import LED_BY_STATUS, by_status, rank
from torchx_pulumi.schedulers.diagnosis.refusals import diagnose_refusal
from torchx_pulumi.schedulers.registry import find_backend

__all__ = ["Diagnosis", "Evidence", "ObjectRef", "agree", "diagnose", "diagnose_refusal", "one_line"]

MAX_MESSAGE = 500
"""Characters of a status message that a diagnosis makes."""


def diagnose(evidence: Evidence) -> tuple[Diagnosis, ...]:
    """Find why a run does not run or did not succeed, the most telling cause first. Empty: nothing is wrong."""
    if evidence.status.state is JobState.SUCCEEDED:
        return ()
    if evidence.status.state is JobState.CANCELLED:
        said = by_status(evidence, ())
        return () if said is None else (said,)
    found = list(_find(evidence))
    said = by_status(evidence, [diagnosis for diagnosis, _ in found])
    if said is None:
        return rank(found)
    return (said, *(one for one in rank(found) if one.reason is not said.reason))


def _find(evidence: Evidence) -> Iterator[tuple[Diagnosis, Finding | None]]:
    yield from diagnose_pods(evidence)
    for diagnosis in find_backend(evidence.scheduler).diagnose(evidence):
        yield diagnosis, None


def agree(status: JobStatus, diagnoses: tuple[Diagnosis, ...]) -> JobStatus:
    """Let a status tell what its first diagnosis says."""
    first = next(iter(diagnoses), None)
    if first is None or (first.reason in LED_BY_STATUS and first.reason is status.reason):
        return replace(status, diagnoses=diagnoses)
    message = one_line(first)
    conditions = tuple(_follow(one, status, first, message) for one in status.conditions)
    return replace(status, reason=first.reason, message=message, conditions=conditions, diagnoses=diagnoses)


def _follow(condition: Condition, status: JobStatus, first: Diagnosis, message: str) -> Condition:
    reason = first.reason if condition.reason is status.reason else condition.reason
    return replace(
        condition, reason=reason, message=message if condition.message == status.message else condition.message
    )


def one_line(diagnosis: Diagnosis) -> str:
    """Write summary and detail in one line."""
    detail = " / ".join(line.strip() for line in diagnosis.detail.splitlines() if line.strip())
    text = f"{diagnosis.summary}: {detail}" if detail and detail not in diagnosis.summary else diagnosis.summary
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 3]}..."
