"""Why a webhook, the API server or the engine refused an object, from the error message."""

from __future__ import annotations

from torchx_pulumi.model.status import Diagnosis, JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.pods import in_one_line
from torchx_pulumi.schedulers.diagnosis.refusal_rules import diagnose_message
from torchx_pulumi.schedulers.registry import find_backend, scheduler_names


def diagnose_refusal(text: str) -> Diagnosis | None:
    """Return why an object was refused, or None if the message is about something else.

    Args:
        text: Error message of the API server, or of the engine that quotes it.

    >>> diagnose_refusal('can only submit job to queue with state `Open`, queue `q` status is `Closed`').reason.value
    'QueueClosed'
    """
    message = " ".join(text.split())
    for name in scheduler_names():
        if found := find_backend(name).diagnose_refusal(message):
            return found
    return diagnose_message(message)


def refused_status(diagnosis: Diagnosis) -> JobStatus:
    """Return the status of a run whose launch was refused: FAILED, `Refused`, with the diagnosis."""
    message = in_one_line(diagnosis.summary, diagnosis.detail)
    return JobStatus(state=JobState.FAILED, reason=Reason.REFUSED, message=message, diagnoses=(diagnosis,))
