"""From the words of a webhook, the API server or the engine that refused a job to what they mean."""

from __future__ import annotations

import re

from torchx_pulumi.model.status import Reason
from torchx_pulumi.schedulers.diagnosis.evidence import Diagnosis, ObjectRef
from torchx_pulumi.schedulers.volcano.queues import closed_queue, missing_queue

MAX_DETAIL = 600
"""Characters of a refusal that a diagnosis shows."""


def diagnose_refusal(text: str) -> Diagnosis | None:
    """Judge a refusal by its text. None: the text is none of a refusal.

    >>> diagnose_refusal('can only submit job to queue with state `Open`, queue `q` status is `Closed`').reason.value
    'QueueClosed'
    """
    said = " ".join(text.split())
    for pattern, judge in _JUDGES:
        match = re.search(pattern, said, re.IGNORECASE)
        if match:
            return judge(match, said[max(match.start() - MAX_DETAIL // 2, 0) :][:MAX_DETAIL].strip())
    return None


def _refused(summary: str, detail: str, resolution: str, *objects: ObjectRef) -> Diagnosis:
    return Diagnosis(reason=Reason.REFUSED, summary=summary, detail=detail, resolution=resolution, objects=objects)


def _quota(match: re.Match[str], detail: str) -> Diagnosis:
    name = match[1]
    return Diagnosis(
        reason=Reason.OVER_QUOTA,
        summary=f"the ResourceQuota {name!r} of the namespace has no room for it",
        detail=detail,
        resolution="wait until something in the namespace ends, delete what has ended, or have the quota raised",
        objects=(ObjectRef(kind="ResourceQuota", name=name),),
    )


def _namespace(match: re.Match[str], detail: str) -> Diagnosis:
    name = match[1]
    where = ObjectRef(kind="Namespace", name=name)
    advice = "create the namespace (createNamespace does it), or correct the option namespace"
    return _refused(f"namespace {name!r} does not exist", detail, advice, where)


def _priority(match: re.Match[str], detail: str) -> Diagnosis:
    name = match[1]
    where = ObjectRef(kind="PriorityClass", name=name)
    advice = "correct priority_class (`kubectl get priorityclasses` lists them)"
    return _refused(f"priority class {name!r} does not exist", detail, advice, where)


def _kind(match: re.Match[str], detail: str) -> Diagnosis:
    advice = "install what defines it (Volcano or MCAD), or choose another cluster; `torchx-pulumi doctor` checks it"
    return _refused(f"the cluster does not know the kind {match[1]}", detail, advice)


def _account(match: re.Match[str], detail: str) -> Diagnosis:
    name = match[1]
    where = ObjectRef(kind="ServiceAccount", name=name)
    return _refused(f"service account {name!r} does not exist", detail, "create it, or correct service_account", where)


_JUDGES = (
    (
        r"queue `([^`]+)` status is `(\w+)`",
        lambda match, detail: closed_queue(match[1], match[2], detail),
    ),
    (
        r'unable to find (?:job )?queue:? .*?"([^"]+)" not found',
        lambda match, detail: missing_queue(match[1], detail),
    ),
    (r"exceeded quota: ([\w.-]+)", _quota),
    (r'namespaces? \\?"([^"\\]+)\\?" not found', _namespace),
    (r"no PriorityClass with name ([\w.-]+)", _priority),
    (r'serviceaccount \\?"([^"\\]+)\\?" not found', _account),
    (r'no matches for kind \\?"([^"\\]+)\\?"', _kind),
    (
        r'admission webhook "([^"]+)" denied the request:? ?(.*)',
        lambda match, detail: _refused(
            f"webhook {match[1]!r} refused it: {match[2][:300].strip()}",
            detail,
            "correct what the webhook names, and launch again",
        ),
    ),
    (
        r"(?:failed calling webhook) \\?\"([^\"\\]+)\\?\"",
        lambda match, detail: _refused(
            f"webhook {match[1]!r} does not answer",
            detail,
            "see that the webhook's deployment runs (`torchx-pulumi doctor` checks it), then launch again",
        ),
    ),
    (
        r"is forbidden: (User|system:)",
        lambda _, detail: _refused(
            "the cluster forbids it to this account", detail, "ask its administrator for the permission"
        ),
    ),
)
"""Pattern -> what makes a diagnosis of its match; the first that matches counts."""
