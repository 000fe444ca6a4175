"""The proxy for requests to an API server: `proxy-url` of the kubeconfig, else that of the environment.

The rules are those of client-go, which the engine's provider uses too. For the environment they are those of Go's
`golang.org/x/net/http/httpproxy`: upper case before lower case, no proxy for loopback addresses, NO_PROXY with names,
suffixes, addresses, ranges and ports. ALL_PROXY is read as well.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from torchx_pulumi.model.errors import ClusterError

VARIABLES = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
"""Variables that name the proxy, by the scheme of the API server's address."""

EVERY_SCHEME = ("ALL_PROXY", "all_proxy")
"""Variables that name the proxy if those of the scheme are not set.

Go, kubectl and the engine do not read them. A SOCKS address, which desktops set, is ignored.
"""

EXCEPTIONS = ("NO_PROXY", "no_proxy")
"""Variables that list hosts without a proxy."""

SCHEMES = ("http", "https")
"""Supported schemes of proxies."""

PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A proxy for requests."""

    url: str
    """Address without credentials."""
    authorization: str | None = field(default=None, repr=False)
    """Value of the header Proxy-Authorization. None: the proxy needs no credentials."""
    source: str
    """Where it is configured: a variable, or `proxy-url`."""


def proxy_for(server: str, cluster: Mapping[str, Any], environment: Mapping[str, str], where: str) -> Proxy | None:
    """Return the proxy for an API server. None: no proxy is used.

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
    general = [name for name in EVERY_SCHEME if not environment.get(name, "").lower().startswith("socks")]
    source = next((name for name in (*VARIABLES[target.scheme], *general) if environment.get(name)), None)
    if source is None:
        return None
    exceptions = next((environment[name] for name in EXCEPTIONS if environment.get(name)), "")
    if not _is_proxied(target.hostname or "", target.port or PORTS[target.scheme], exceptions):
        return None
    value = environment[source]
    return _proxy(value if "://" in value else f"http://{value}", source, where)


def _is_proxied(host: str, port: int, exceptions: str) -> bool:
    """Return whether the proxy of the environment applies to a host.

    >>> _is_proxied("127.0.0.1", 6443, ""), _is_proxied("localhost", 6443, ""), _is_proxied("10.1.2.3", 443, "")
    (False, False, True)
    >>> _is_proxied("10.1.2.3", 443, "10.0.0.0/8"), _is_proxied("api.example.com", 443, "example.com")
    (False, False)
    """
    host = host.strip().lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    return not any(_matches(entry.strip().lower(), host, address, port) for entry in exceptions.split(","))


def _matches(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Return whether an entry of NO_PROXY matches a host."""
    if entry in ("", "*"):
        return entry == "*"
    network = _network(entry)
    if network is not None:
        return address is not None and address.version == network.version and address in network
    named, wanted_port = _split_port(entry)
    if wanted_port not in (None, "", str(port)):
        return False
    named_address = _address(named)
    if named_address is not None or address is not None:
        return named_address is not None and named_address == address
    suffix = named[1:] if named.startswith("*.") else named
    if not suffix:
        return False
    # `example.com` matches itself and its subdomains, `.example.com` only its subdomains.
    return host.endswith(suffix if suffix.startswith(".") else f".{suffix}") or host == suffix


def _split_port(entry: str) -> tuple[str, str | None]:
    """Return the host and the port of an entry. An IPv6 address with a port is in brackets."""
    found = re.fullmatch(r"\[([^\[\]]*)\]:([^:\[\]]*)|([^:\[\]]*):([^:\[\]]*)", entry)
    if found is None:
        return entry, None
    return (found[1], found[2]) if found[1] is not None else (found[3], found[4])


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    # Go treats an IPv4-mapped IPv6 address as the IPv4 address.
    return getattr(found, "ipv4_mapped", None) or found


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(entry, strict=False) if re.fullmatch(r"[0-9a-f:.]+/\d+", entry) else None
    except ValueError:
        return None


def _proxy(value: str, source: str, where: str) -> Proxy:
    """Parse the address of a proxy. No message repeats it, because it may contain a password."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    problems = list(_problems(parts))
    if problems:
        raise ClusterError(f"{where} cannot be used: its proxy ({source}) {'; '.join(problems)}")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = f"Basic {base64.b64encode(pair).decode()}"
    return Proxy(
        url=f"{parts.scheme}://{host}:{port or PORTS[parts.scheme]}", authorization=authorization, source=source
    )


def _problems(parts: SplitResult) -> Iterator[str]:
    if parts.scheme.startswith("socks"):
        yield (
            "speaks SOCKS, which is not supported; name an HTTP proxy in proxy-url of the kubeconfig or in "
            "HTTPS_PROXY, or list the API server in NO_PROXY where it can be reached without one"
        )
    elif parts.scheme not in SCHEMES or not parts.hostname:
        yield (
            "is not an address of a proxy; write http://host:port or https://host:port, with the characters "
            "/ ? # @ : of a user or password as %2F %3F %23 %40 %3A"
        )
