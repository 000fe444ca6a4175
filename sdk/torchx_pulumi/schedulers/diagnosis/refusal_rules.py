"""Why the API server refused an object, by the words of its message."""

from __future__ import annotations

import re
from typing import Final

from torchx_pulumi.model.status import Diagnosis, ObjectRef, Reason
from torchx_pulumi.schedulers.diagnosis.evidence import quote

RULES: Final[tuple[tuple[str, Reason, str | None, str, str], ...]] = (
    (
        r"exceeded quota: ([\w.-]+)",
        Reason.OVER_QUOTA,
        "ResourceQuota",
        "the ResourceQuota {0!r} of the namespace has no room for it",
        "wait until something in the namespace ends, delete what has ended, or have the quota raised",
    ),
    (
        r'namespaces? \\?"([^"\\]+)\\?" not found',
        Reason.REFUSED,
        "Namespace",
        "namespace {0!r} does not exist",
        "create the namespace (createNamespace does it), or correct the option namespace",
    ),
    (
        r"namespace ([\w.-]+) because it is being terminated",
        Reason.REFUSED,
        "Namespace",
        "namespace {0!r} is being deleted",
        "use another namespace, or create it again when it is gone, and launch again",
    ),
    (
        r"no PriorityClass with name ([\w.-]+)",
        Reason.REFUSED,
        "PriorityClass",
        "priority class {0!r} does not exist",
        "correct priority_class (`kubectl get priorityclasses` lists them)",
    ),
    (
        r'serviceaccount \\?"([^"\\]+)\\?" not found',
        Reason.REFUSED,
        "ServiceAccount",
        "service account {0!r} does not exist",
        "create it, or correct service_account",
    ),
    (
        r'no matches for kind \\?"([^"\\]+)\\?"',
        Reason.REFUSED,
        None,
        "the cluster does not know the kind {0}",
        "install what defines it (Volcano or MCAD), or choose another cluster; `torchx-pulumi doctor` checks it",
    ),
    (
        r'admission webhook \\?"([^"\\]+)\\?" denied the request:? ?(.{0,300})',
        Reason.REFUSED,
        None,
        "webhook {0!r} refused it: {1}",
        "correct what the webhook names, and launch again",
    ),
    (
        r'failed calling webhook \\?"([^"\\]+)\\?"',
        Reason.REFUSED,
        None,
        "webhook {0!r} does not answer",
        "check that the webhook's deployment runs (`torchx-pulumi doctor` checks it), then launch again",
    ),
    (
        r"is forbidden: (User|system:)",
        Reason.REFUSED,
        None,
        "this account has no permission for it",
        "ask the administrator of the cluster for the permission",
    ),
)
"""Pattern, reason, kind of the object that the first group names, summary and what to do; the first match counts."""


def diagnose_message(message: str) -> Diagnosis | None:
    """Return why an object was refused, or None if no rule knows the message."""
    for pattern, reason, kind, summary, resolution in RULES:
        if match := re.search(pattern, message, re.IGNORECASE):
            return Diagnosis(
                reason=reason,
                summary=summary.format(*match.groups()).strip(),
                detail=quote(match),
                resolution=resolution,
                objects=() if kind is None else (ObjectRef(kind=kind, name=match[1]),),
            )
    return None
