"""Addresses of registries, and the certificates that Docker's configuration has for them."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

from torchx_pulumi.images.content.hashing import in_home
from torchx_pulumi.images.reference import DOCKER_HUB
from torchx_pulumi.model.errors import ImageError

INSECURE: Final = "TORCHX_PULUMI_INSECURE_REGISTRIES"
"""Environment variable: comma-separated registries that use http, in addition to those on loopback."""
_HUB_HOST: Final = "registry-1.docker.io"
_LONGEST: Final = 200
"""Characters of an address that are shown."""


def address_of(registry: str) -> str:
    """Return the URL of a registry, without a path.

    >>> address_of("localhost:5000"), address_of("docker.io")
    ('http://localhost:5000', 'https://registry-1.docker.io')
    """
    if registry == DOCKER_HUB:
        return f"https://{_HUB_HOST}"
    return f"{'http' if is_insecure(registry) else 'https'}://{registry}"


def is_insecure(registry: str) -> bool:
    """Return whether a registry uses http: those on loopback, as for the daemon, and those that the variable lists.

    >>> is_insecure("localhost:5000"), is_insecure("127.0.0.1"), is_insecure("registry.example.com")
    (True, True, False)
    """
    if registry in [name.strip() for name in os.environ.get(INSECURE, "").split(",")]:
        return True
    host = registry.rpartition(":")[0] if re.search(r":\d+$", registry) else registry
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL.

    >>> origin_of("https://Registry.example.com/v2/")
    ('https', 'registry.example.com', 443)
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)


def url_in(registry: str, target: str, base: str = "/") -> str:
    """Return a URL that a registry sent, or that of a path below its address.

    Args:
        registry: The registry.
        target: The URL that it sent, which may be relative.
        base: Path that a relative one begins at.

    Raises:
        ImageError: It is not a URL of http or https.
    """
    home = address_of(registry)
    try:
        url = urljoin(urljoin(home, base), target) if target else ""
        scheme, host, _ = origin_of(url)
    except ValueError:
        scheme, host, url = "", "", target
    if scheme not in ("http", "https") or not host:
        raise ImageError(
            f"registry {registry}: sent the address {url.partition('?')[0][:_LONGEST]!a}, must be one of http or "
            "https; it, or a proxy before it, is not set up correctly; see its logs"
        )
    # A registry behind a proxy that ends TLS may name itself with http.
    is_downgraded = (scheme, "https", host) == ("http", *origin_of(home)[:2])
    return f"https{url[4:]}" if is_downgraded else url


def is_plain(url: str) -> bool:
    """Return whether a URL is a plain http one that is not allowed: neither on loopback nor listed."""
    return urlsplit(url).scheme == "http" and not is_insecure(urlsplit(url).netloc.rpartition("@")[2])


def certificates_of(registry: str) -> tuple[str | None, tuple[str, str] | None]:
    """Return the files that Docker's configuration has for a registry.

    Returns:
        Certificates of its authority, and certificate and key that it gets from its clients. None: there are none.
    """
    folders = (in_home("~/.docker/certs.d") / registry, Path("/etc/docker/certs.d") / registry)
    # A folder that may not be read is as good as none.
    readable = [folder for folder in folders if os.access(folder, os.R_OK | os.X_OK)]
    authorities = [str(folder / "ca.crt") for folder in readable if (folder / "ca.crt").is_file()]
    clients = [
        (str(certificate), str(certificate.with_suffix(".key")))
        for folder in readable
        for certificate in sorted(folder.glob("*.cert"))
        if certificate.with_suffix(".key").is_file()
    ]
    return next(iter(authorities), None), next(iter(clients), None)
