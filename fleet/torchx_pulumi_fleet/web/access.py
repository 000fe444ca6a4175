"""Who may ask: names in the Host header, origins, tokens and cookies. Pure but for the clock and the token's file.

The threat model is in docs/controller-access.md.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from torchx_pulumi_fleet.web.tokens import COOKIE_S, Token, is_same, is_valid_cookie, make_cookie

OPEN = ("/healthz", "/readyz")
"""Paths that anybody may ask, under any name: a kubelet sends the address of the pod."""

ENTRANCES = ("/", "/login")
"""Paths that answer without a token, with a form that asks for it."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
"""Names that no other site can have."""

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?", re.ASCII)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is known of a request before it is answered."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case names."""
    address: str
    """Address of this machine at which the connection arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAccess:
    """The rules of one server."""

    token: Token | None
    """None: no token is needed (`--no-auth`)."""
    port: int
    """Port of the server; part of the cookie's name, as cookies of one host are shared by its ports."""
    hosts: frozenset[str] = frozenset()
    """Further names under which it is reached, in lower case."""
    now: Callable[[], float] = time.time

    def refusal(self, asked: Asked) -> Refusal | None:
        """Return why a request is refused, also with a token. None: it is not, and may still need a token."""
        if asked.path in OPEN:
            return None
        name = host_name(asked.headers.get("host", ""))
        if name is None:
            return Refusal(status=400, message="the header Host is missing or not a host name")
        if name not in {*LOOPBACK_NAMES, *self.hosts, _plain_address(asked.address)}:
            allowed = "its own address, localhost" + "".join(f", {host}" for host in sorted(self.hosts))
            text = f"unknown name in the Host header; allowed are {allowed} (--allowed-host adds one)"
            return Refusal(status=421, message=text)
        if not _is_same_origin(asked):
            return Refusal(status=403, message="requests from pages of other origins are refused")
        return None

    def may(self, asked: Asked) -> bool:
        """Return whether a request has a valid token or cookie, or needs none."""
        if self.token is None or asked.path in OPEN:
            return True
        token = self.token.current()
        scheme, _, given = asked.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return is_same(given.strip().encode(errors="replace"), token)
        return any(is_valid_cookie(value, token, self.now()) for value in self._cookies_of(asked))

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token."""
        return self.token is not None and is_same(given.encode(errors="replace"), self.token.current())

    def cookie(self, *, secure: bool) -> str:
        """Return the header `Set-Cookie` for somebody who gave the token.

        Args:
            secure: The request came by HTTPS.
        """
        if self.token is None:
            return ""
        value = make_cookie(self.token.current(), self.now())
        ending = "; Secure" if secure else ""
        return f"{self.cookie_name}={value}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Strict{ending}"

    @property
    def cookie_name(self) -> str:
        """Return the cookie's name."""
        return f"torchx-pulumi-{self.port}"

    def _cookies_of(self, asked: Asked) -> Iterator[str]:
        # Cookies of other servers on this host come too, of any shape, and for a path also of this name.
        for pair in asked.headers.get("cookie", "").split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.cookie_name:
                yield value


def host_name(header: str) -> str | None:
    """Return the name in a header `Host`, in lower case, without port and brackets. None: it is not one.

    >>> host_name("LocalHost:80"), host_name("[::1]:80"), host_name("a b")
    ('localhost', '::1', None)
    """
    found = _HOST.fullmatch(header)
    return None if found is None else _plain_address(found[1].strip("[]").rstrip(".").lower())


def _plain_address(text: str) -> str:
    """Return an IP address in its usual form; of an IPv4 one in IPv6 the IPv4 one; any other text as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_same_origin(asked: Asked) -> bool:
    origin = asked.headers.get("origin")
    if origin is not None:
        own = asked.headers.get("host", "").lower()
        if origin.lower() not in {f"{scheme}://{own.removesuffix(port)}" for scheme, port in _DEFAULT_PORTS.items()}:
            return False
    site = asked.headers.get("sec-fetch-site", "none")
    if site in ("none", "same-origin"):
        return True
    # A link on another page leads here, but another page neither embeds nor reads this one. Another port of the same
    # host is "same-site": it may belong to another user.
    mode, target = asked.headers.get("sec-fetch-mode"), asked.headers.get("sec-fetch-dest", "document")
    return mode == "navigate" and target == "document" and asked.method in ("GET", "HEAD")
