"""The proxy for requests to an API server: `proxy-url` of the kubeconfig, else that of the environment.

The rules are those of client-go, which the engine's provider uses too. For the environment they are those of Go's
`golang.org/x/net/http/httpproxy`: upper case before lower case, no proxy for loopback addresses, NO_PROXY with names,
suffixes, addresses, ranges and ports. ALL_PROXY is read as well.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import unquote, urlsplit

from torchx_pulumi.kube.kubeconfig import Fields
from torchx_pulumi.model.errors import ClusterError

ALL = ("ALL_PROXY", "all_proxy")
"""Variables that Go, kubectl and the engine do not read. A SOCKS address in them, which desktops set, is ignored."""

VARIABLES = {"https": ("HTTPS_PROXY", "https_proxy", *ALL), "http": ("HTTP_PROXY", "http_proxy", *ALL)}
"""Variables that name the proxy, by the scheme of the API server's address."""

EXCEPTIONS = ("NO_PROXY", "no_proxy")
"""Variables that list hosts without a proxy."""

PORTS = {"http": 80, "https": 443}
"""Supported schemes of proxies, and of API servers, with their ports."""

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy for requests."""

    url: str
    """Address without credentials."""
    authorization: str | None = field(default=None, repr=False)
    """Value of the header Proxy-Authorization. None: the proxy needs no credentials."""
    source: str
    """Place of its configuration: a variable, or `proxy-url`."""


def proxy_for(server: str, cluster: Fields, environment: Mapping[str, str], where: str) -> Proxy | None:
    """Return the proxy for an API server, or None if no proxy is used.

    Args:
        server: Address of the API server.
        cluster: The cluster of a kubeconfig. Its `proxy-url` takes precedence, and NO_PROXY does not apply to it.
        environment: Environment variables.
        where: Name of the cluster in messages.

    Raises:
        ClusterError: The proxy is not valid, or its scheme is not supported.
    """
    if cluster.get("proxy-url"):
        return _proxy(str(cluster["proxy-url"]), "proxy-url", where)
    target = urlsplit(server)
    named = [name for name in VARIABLES[target.scheme] if environment.get(name)]
    source = next((name for name in named if name not in ALL or environment[name][:5].lower() != "socks"), None)
    if source is None:
        return None
    host, port = (target.hostname or "").strip(), target.port or PORTS[target.scheme]
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return None
    exceptions = next((environment[name] for name in EXCEPTIONS if environment.get(name)), "")
    if any(_matches(entry.strip().lower(), host, address, port) for entry in exceptions.split(",")):
        return None
    value = environment[source]
    return _proxy(value if "://" in value else f"http://{value}", source, where)


def _matches(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Return whether an entry of NO_PROXY matches a host."""
    if entry in ("", "*"):
        return entry == "*"
    if "/" in entry:
        with suppress(ValueError):
            # Python also reads masks as in 10.0.0.0/255.0.0.0, Go does not.
            is_range = address is not None and re.fullmatch(r"[0-9a-f:.]+/\d+", entry) is not None
            return is_range and address in ip_network(entry, strict=False)
        return False
    # An IPv6 address with a port is in brackets.
    parts = re.fullmatch(r"\[([^\[\]]*)\]:([^:\[\]]*)|([^:\[\]]*):([^:\[\]]*)", entry)
    named, wanted_port = (parts[1] or parts[3] or "", parts[2] or parts[4]) if parts else (entry, None)
    if wanted_port and wanted_port != str(port):
        return False
    named_address = _address(named)
    if named_address is not None or address is not None:
        return named_address == address
    # `example.com` matches itself and its subdomains, `.example.com` and `*.example.com` only its subdomains.
    suffix = named.removeprefix("*") if named.startswith("*.") else named
    return bool(suffix) and (host == suffix or host.endswith(suffix if suffix.startswith(".") else f".{suffix}"))


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # Go treats an IPv4-mapped IPv6 address as the IPv4 address.
    return getattr(found, "ipv4_mapped", None) or found


def _proxy(value: str, source: str, where: str) -> Proxy:
    """Parse the address of a proxy. No message repeats it, because it may contain a password."""
    refused = f"{where} cannot be used: its proxy ({source})"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme.startswith("socks"):
        raise ClusterError(
            f"{refused} speaks SOCKS, which is not supported; name an HTTP proxy in proxy-url of the kubeconfig or in "
            "HTTPS_PROXY, or list the API server in NO_PROXY where it can be reached without one"
        )
    if parts.scheme not in PORTS or not parts.hostname:
        raise ClusterError(
            f"{refused} is not an address of a proxy; write http://host:port or https://host:port, with the "
            "characters / ? # @ : of a user or password as %2F %3F %23 %40 %3A"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(
        url=f"{parts.scheme}://{host}:{port or PORTS[parts.scheme]}", authorization=authorization, source=source
    )
