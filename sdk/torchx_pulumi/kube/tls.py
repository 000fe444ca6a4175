"""TLS options: trusted authorities and client certificates. Files are read again when they change."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3

from torchx_pulumi.kube.kubeconfig_fields import decoded

FILES = ("certificate-authority", "client-certificate", "client-key")
"""Fields of a cluster and its user that name files with certificates."""

FileVersions = tuple[tuple[int, int, int] | None, ...]
"""Modification time, size and inode of each file; None for a missing file."""


def files_of(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> list[str]:
    """Return the certificate and key files that a connection depends on."""
    both = {**user, **cluster}
    return [str(both[name]) for name in FILES if both.get(name) and not both.get(f"{name}-data")]


def versions_of(files: list[str]) -> FileVersions:
    """Return a value that changes when one of the files changes."""
    versions: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            found = Path(path).stat()
        except OSError:
            # Reading the file reports that it is missing.
            versions.append(None)
        else:
            versions.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(versions)


def tls_options(
    cluster: Mapping[str, Any], user: Mapping[str, Any], certificate_and_key: bytes | None
) -> dict[str, Any]:
    """Return the TLS options of urllib3 for a cluster and its user.

    Args:
        cluster: The cluster of a kubeconfig.
        user: The user of it.
        certificate_and_key: Client certificate and key as PEM. None: those of the user, if it has them.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file has no valid certificate or key.
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
    """Return a context for an HTTPS proxy, which trusts the authorities of the system and of the cluster.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file has no valid certificate.
    """
    context = trusting(_contents(cluster, "certificate-authority"))
    context.load_default_certs()
    return context


def trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts an authority (PEM). None: the authorities of the system."""
    # Depending on its release, urllib3 or Python verifies host names: urllib3 sets the context up accordingly.
    context: ssl.SSLContext = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if authority:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    # Self-signed authorities of clusters lack extensions that strict verification requires.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


def _contents(section: Mapping[str, Any], name: str) -> bytes | None:
    """Return a certificate or key from a kubeconfig or the file it names. As in kubectl, inline data wins."""
    if section.get(f"{name}-data"):
        return decoded(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else None


def _no_password() -> str:
    raise ValueError("the key has a password, which kubeconfigs cannot hold; store it without one")


def _load(context: ssl.SSLContext, certificate_and_key: bytes) -> None:
    """Load a certificate with its key. Python reads them from a file only, which is removed at once."""
    descriptor, name = tempfile.mkstemp(prefix="torchx-pulumi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate_and_key)
        # Without the callback, OpenSSL would ask for a password at the terminal.
        context.load_cert_chain(name, password=_no_password)
    finally:
        Path(name).unlink()
