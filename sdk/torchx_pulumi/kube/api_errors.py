"""What an API server's refusals and failed connections mean to whoever asked."""

from __future__ import annotations

import json
import ssl
from typing import Any

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.transport import urllib3
from torchx_pulumi.model.errors import ClusterError

SHOWN = 500
"""Characters of an answer that are shown if the API server did not send it: proxies send whole pages."""


def refusal(
    status: int, body: bytes, where: str, kind: Kind | None, *, absence_is_fine: bool = True
) -> ClusterError | None:
    """Translate what the API server answered.

    Args:
        status: HTTP status.
        body: What it said.
        where: What messages call the cluster.
        kind: What was asked for. None: something that is served everywhere.
        absence_is_fine: Whether it is no error that the object named is absent.

    Returns:
        None: the object is absent.
    """
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    said_more: dict[str, Any] = answer if isinstance(answer, dict) else {}
    said = str(said_more.get("message") or text[:SHOWN]).strip()
    reason = str(said_more.get("reason") or "")
    if status == 404:
        details = said_more.get("details")
        named = details.get("name") if isinstance(details, dict) else None
        if named and not absence_is_fine:
            return ClusterError(f"{where} answered 404: {said}", reason=reason)
        if kind is None or named:
            return None
        absent = "Volcano is not installed there" if kind.group.endswith("volcano.sh") else "what defines it is absent"
        return ClusterError(
            f"{where} does not serve {kind.kind} ({kind.api_version}): {absent}; install it, or choose another cluster",
            reason="NotServed",
        )
    if status == 401:
        return ClusterError(
            f"{where} does not accept the credentials of this kubeconfig: {said}; log in again",
            # Proxies in front of an API server answer in words of their own.
            reason=reason or "Unauthorized",
        )
    if status == 403:
        return ClusterError(
            f"{where} forbids it: {said}; ask its administrator for the permission", reason=reason or "Forbidden"
        )
    if status == 400 and "waiting to start" in said:
        return ClusterError(f"{said} (at {where})", retryable=True, reason="NotStarted")
    retryable = status == 429 or status >= 500
    return ClusterError(f"{where} answered {status}: {said}", retryable=retryable, reason=reason)


def unreachable(error: BaseException, where: str) -> ClusterError:
    """Translate a connection that failed."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, urllib3().exceptions.SSLError) and _distrusted(cause):
        return ClusterError(f"{where} shows a certificate that the kubeconfig does not trust: {cause}")
    text = str(cause).rpartition(">: ")[2] or type(cause).__name__
    return ClusterError(
        f"{where} cannot be reached: {text}; check that it runs and that the context is the right one",
        retryable=True,
        reason="Silent" if isinstance(error, urllib3().exceptions.ReadTimeoutError) else "Unreachable",
    )


def _distrusted(error: BaseException) -> bool:
    """Tell a certificate that is not believed from an encrypted connection that broke."""
    inner = error.args[0] if error.args else None
    # Older releases of urllib3 compare names themselves, and have an error of their own for it.
    return isinstance(inner, ssl.SSLCertVerificationError) or type(inner).__name__ == "CertificateError"
