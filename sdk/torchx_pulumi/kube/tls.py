"""TLS options: trusted authorities and client certificates."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from torchx_pulumi.kube.kubeconfig import contents_of


class Material(NamedTuple):
    """Certificates and keys as PEM, as far as there are any."""

    authority: bytes | None
    """Certificates of the cluster's authority. None: those of the system."""
    certificate_and_key: bytes | None
    """Client certificate and its key. None: the client shows none."""


def material_of(cluster: Mapping[str, Any], user: Mapping[str, Any], of_plugin: bytes | None) -> Material:
    """Read the certificates of a cluster and its user. Files are read each time, because they are renewed in place.

    Args:
        cluster: The cluster of a kubeconfig.
        user: The user of it.
        of_plugin: Client certificate and key of a plugin. None: those of the user, if it has them.

    Raises:
        OSError: A file cannot be read.
    """
    pair = of_plugin
    certificate, key = contents_of(user, "client-certificate"), contents_of(user, "client-key")
    if pair is None and certificate and key:
        pair = certificate + b"\n" + key
    return Material(contents_of(cluster, "certificate-authority"), pair)


def tls_options(cluster: Mapping[str, Any], material: Material) -> dict[str, Any]:
    """Return the TLS options of urllib3 for a cluster.

    Raises:
        ValueError: A certificate or key is not valid.
    """
    context = _trusting(material.authority)
    options: dict[str, Any] = {"ssl_context": context}
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        options["cert_reqs"] = "CERT_NONE"
    if cluster.get("tls-server-name"):
        options["server_hostname"] = cluster["tls-server-name"]
    if material.certificate_and_key is not None:
        _load(context, material.certificate_and_key)
    return options


def proxy_context(cluster: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context for an HTTPS proxy, which trusts the authorities of the system and of the cluster.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file has no valid certificate.
    """
    context = _trusting(contents_of(cluster, "certificate-authority"))
    context.load_default_certs()
    return context


def _trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return a context that trusts an authority. None: the authorities of the system."""
    # Depending on its release, urllib3 or Python verifies host names: urllib3 sets the context up accordingly.
    context: ssl.SSLContext = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    if authority:
        context.load_verify_locations(cadata=authority.decode())
    else:
        context.load_default_certs()
    # Self-signed authorities of clusters lack extensions that strict verification requires.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return context


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
