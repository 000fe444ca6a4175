"""Why a job does not run, or did not succeed: observed objects in, ranked diagnoses out. Pure, and never raises.

The only writer of explanations: messages of a status, of its replicas and its conditions, and diagnoses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from torchx_pulumi.model.status import Condition, Diagnosis, JobState, JobStatus, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Evidence, PodProblem
from torchx_pulumi.schedulers.diagnosis.messages import explain_status, with_replica_messages
from torchx_pulumi.schedulers.diagnosis.pods import diagnose_pods, in_one_line
from torchx_pulumi.schedulers.diagnosis.ranking import CAUSES, diagnose_status, rank


def explain(
    evidence: Evidence,
    *,
    describe: Callable[[Evidence], str | None],
    diagnose: Callable[[Evidence], Iterator[Diagnosis]],
    replica_messages: Mapping[Reason, str],
) -> JobStatus:
    """Return the status with messages and diagnoses. Reason and message are those of the first diagnosis.

    The parameters after the first are the fields of `protocol.Variant`.
    """
    pods_read = evidence.pods is not None
    status = with_replica_messages(evidence.status, pods_read=pods_read, words=replica_messages)
    evidence = replace(evidence, status=status)
    status = replace(status, message=explain_status(evidence, describe(evidence)))
    diagnoses = _diagnose(replace(evidence, status=status), diagnose)
    first = next(iter(diagnoses), None)
    reason, message = status.reason, status.message
    if first is not None and not (first.reason is reason and reason in CAUSES and CAUSES[reason].leads):
        reason, message = first.reason, in_one_line(first.summary, first.detail)

    def complete(condition: Condition) -> Condition:
        explained = (condition.type, condition.status) in (("PodsScheduled", "False"), ("Finished", "True"))
        return replace(
            condition,
            reason=reason if condition.reason is status.reason else condition.reason,
            message=message if explained else "",
        )

    conditions = tuple(map(complete, status.conditions))
    return replace(status, reason=reason, message=message, conditions=conditions, diagnoses=diagnoses)


def _diagnose(evidence: Evidence, by_scheduler: Callable[[Evidence], Iterator[Diagnosis]]) -> tuple[Diagnosis, ...]:
    """Return why a run does not run or did not succeed, the most likely cause first."""
    if evidence.status.state is JobState.SUCCEEDED:
        return ()
    found: list[tuple[Diagnosis, PodProblem | None]] = []
    if evidence.status.state is not JobState.CANCELLED:
        found += diagnose_pods(evidence)
        found += [(one, None) for one in by_scheduler(evidence)]
    own = diagnose_status(evidence, found=bool(found))
    if own is None:
        return rank(found)
    return (own, *(one for one in rank(found) if one.reason is not own.reason))
