"""Errors of requests to an API server: from responses with an error status and from failed connections."""

from __future__ import annotations

import json
import ssl
from typing import Any

from torchx_pulumi.kube.kinds import Kind
from torchx_pulumi.kube.protocol import EXPIRED
from torchx_pulumi.kube.transport import urllib3
from torchx_pulumi.model.errors import ClusterError

SHOWN = 500
"""Characters of a body that are shown if it is not a Kubernetes status: proxies send whole pages."""


def response_error(
    status: int, body: bytes, where: str, kind: Kind | None, *, absence_is_fine: bool = True
) -> ClusterError | None:
    """Return the error of a response.

    Args:
        status: HTTP status.
        body: Body of the response.
        where: Name of the cluster in messages.
        kind: Kind of the requested object. None: a path that every API server has.
        absence_is_fine: An absent object is not an error.

    Returns:
        None: the object is absent.
    """
    text = body.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    details: dict[str, Any] = answer if isinstance(answer, dict) else {}
    message = str(details.get("message") or text[:SHOWN]).strip()
    reason = str(details.get("reason") or "")
    if status == 404:
        about = details.get("details")
        named = about.get("name") if isinstance(about, dict) else None
        if named and not absence_is_fine:
            return ClusterError(f"{where} answered 404: {message}", reason=reason)
        if kind is None or named:
            return None
        absent = f"{kind.installed_by} is not installed there" if kind.installed_by else "its definition is absent"
        return ClusterError(
            f"{where} does not serve {kind.kind} ({kind.api_version}): {absent}; install it, or choose another cluster",
            reason="NotServed",
        )
    if status == 401:
        return ClusterError(
            f"{where} does not accept the credentials of this kubeconfig: {message}; log in again",
            # A proxy in front of an API server sends no Kubernetes status.
            reason=reason or "Unauthorized",
        )
    if status == 403:
        return ClusterError(
            f"{where} forbids it: {message}; ask its administrator for the permission", reason=reason or "Forbidden"
        )
    if status == 410 or (status == 504 and "Too large resource version" in message):
        # Older API servers say `Gone`. The version is too large where the cluster was restored from a backup.
        return ClusterError(f"{where} answered 410: {message}", retryable=True, reason=EXPIRED)
    if status == 400 and "waiting to start" in message:
        return ClusterError(f"{message} (at {where})", retryable=True, reason="NotStarted")
    retryable = status == 429 or status >= 500
    return ClusterError(f"{where} answered {status}: {message}", retryable=retryable, reason=reason)


def connection_error(error: BaseException, where: str) -> ClusterError:
    """Return the error of a failed connection."""
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
    """Return whether a TLS error means an untrusted certificate, not an interrupted connection."""
    inner = error.args[0] if error.args else None
    # Older releases of urllib3 compare host names themselves and raise their own error.
    return isinstance(inner, ssl.SSLCertVerificationError) or type(inner).__name__ == "CertificateError"
