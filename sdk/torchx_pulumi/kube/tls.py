"""Certificates: which authority is trusted, and what is shown to the server. Files are read again when they change."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx_pulumi.kube.kubeconfig_fields import decoded
from torchx_pulumi.kube.transport import urllib3

FILES = ("certificate-authority", "client-certificate", "client-key")
"""Fields of a cluster and its user that name files with certificates."""

Stamp = tuple[tuple[int, int, int] | None, ...]
"""What changes with files: time, size and inode of each; None where there is none."""


def files_of(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> list[str]:
    """Return the files whose contents a connection depends on."""
    both = {**user, **cluster}
    return [str(both[name]) for name in FILES if both.get(name) and not both.get(f"{name}-data")]


def stamp_of(files: list[str]) -> Stamp:
    """Return what changes when one of the files does."""
    return tuple(map(_stamp, files))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        # What is absent is said where it is read.
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def tls_options(
    cluster: Mapping[str, Any], user: Mapping[str, Any], certificate_and_key: bytes | None
) -> dict[str, Any]:
    """Return what urllib3 needs to know to trust the server, and to be trusted.

    Args:
        cluster: The cluster of a kubeconfig.
        user: The user of it.
        certificate_and_key: Shown instead of the user's own. None: they are shown, if it has them.

    Raises:
        OSError: A file cannot be read.
        ValueError: It holds no certificate or key.
    """
    context = trusting(_contents(cluster, "certificate-authority"))
    options: dict[str, Any] = {"ssl_context": context}
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        options["cert_reqs"] = "CERT_NONE"
    if cluster.get("tls-server-name"):
        options["server_hostname"] = cluster["tls-server-name"]
    certificate, key = _contents(user, "client-certificate"), _contents(user, "client-key")
    if certificate_and_key is None and certificate and key:
        certificate_and_key = certificate + b"\n" + key
    if certificate_and_key is not None:
        _load(context, certificate_and_key)
    return options


def proxy_context(cluster: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts an HTTPS proxy: by the system's authorities, or by the cluster's own.

    Raises:
        OSError: A file cannot be read.
        ValueError: It holds no certificate.
    """
    context = trusting(_contents(cluster, "certificate-authority"))
    context.load_default_certs()
    return context


def trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts an authority. None: those of the system."""
    # Made by urllib3, which knows whether Python or it itself compares names and addresses in this release.
    context: ssl.SSLContext = urllib3().util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if authority:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    # Authorities that clusters make for themselves lack extensions that this would ask for.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _contents(section: Mapping[str, Any], name: str) -> bytes | None:
    """Return a certificate or key that a kubeconfig holds or names; what it holds comes first, as with kubectl."""
    if section.get(f"{name}-data"):
        return decoded(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


def _no_password() -> str:
    raise ValueError("the key has a password, which kubeconfigs cannot hold; store it without one")


def _load(context: ssl.SSLContext, certificate_and_key: bytes) -> None:
    """Load a certificate with its key; Python reads these from a file only, which is gone again at once."""
    descriptor, name = tempfile.mkstemp(prefix="torchx-pulumi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate_and_key)
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(name, password=_no_password)
    finally:
        Path(name).unlink()
