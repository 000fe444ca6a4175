"""Options of the command for its pages: checked before anything starts, without the libraries of the server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchx_pulumi.model.errors import Problem

from torchx_pulumi_fleet.web.access import PageAccess, host_name
from torchx_pulumi_fleet.web.tokens import FileToken, GeneratedToken, Token

HOST = "127.0.0.1"
"""Address without one in `--listen`."""

_LISTEN = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):)?(?P<port>\d{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebWords:
    """The options as they were given."""

    listen: str | None
    token_file: str | None
    no_auth: bool
    allowed_hosts: Sequence[str]
    once: bool
    """The command ends by itself."""

    def given(self) -> list[str]:
        """Return the options that say something about pages, but `--listen`."""
        words = {"--token-file": self.token_file is not None, "--no-auth": self.no_auth}
        return [*(name for name, is_given in words.items() if is_given), *["--allowed-host"][: len(self.allowed_hosts)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A socket that listens, and who may ask there."""

    listener: socket.socket
    access: PageAccess
    url: str
    """URL of the page; with the token where it was generated."""

    @property
    def serves_logs(self) -> bool:
        """Return whether logs are served: never without a token."""
        return self.access.token is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    family: socket.AddressFamily
    address: str
    port: int
    host: str
    """The host as it was given, without brackets."""

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback


def check_web(words: WebWords) -> tuple[list[Problem], Listening | None]:
    """Check the options; return the problems, and the socket. None: no pages are served, or there are problems."""
    if words.listen is None:
        text = "there is no --listen; give it, for example --listen 8080, or leave this out"
        return [Problem(option, text) for option in words.given()], None
    problems = _problems_of_words(words)
    place = _place_of(words.listen)
    if isinstance(place, Problem):
        problems.append(place)
    elif not place.is_loopback and words.token_file is None and not words.no_auth:
        text = (
            f"{words.listen} is reached from other machines, which needs --token-file FILE, or --no-auth, which shows "
            "everything but logs to all who reach it; 127.0.0.1 is reached from this machine only"
        )
        problems.append(Problem("--listen", text))
    token: Token | None = None
    try:
        token = None if words.no_auth else _token_of(words.token_file)
    except ValueError as error:
        problems.append(Problem("--token-file", str(error)))
    if problems or isinstance(place, Problem):
        return problems, None
    try:
        listener = _listen(place)
    except OSError as error:
        text = f"{words.listen} cannot be used: {error.strerror or error}; name another port, or 0 for a free one"
        return [Problem("--listen", text)], None
    port = int(listener.getsockname()[1])
    hosts = frozenset(name for name in map(host_name, [*words.allowed_hosts, place.host]) if name is not None)
    access = PageAccess(token=token, port=port, hosts=hosts)
    return [], Listening(listener=listener, access=access, url=_url(place, port, token))


def _problems_of_words(words: WebWords) -> list[Problem]:
    problems = []
    if words.once:
        text = "with --once there is nothing to serve; leave one of them out"
        problems.append(Problem("--listen", text))
    if words.no_auth and words.token_file is not None:
        problems.append(Problem("--no-auth", "contradicts --token-file; leave one of them out"))
    for name in words.allowed_hosts:
        if host_name(f"{name}:1") is None:
            text = f"found {name!r}, allowed is a host name or an address, without scheme and port"
            problems.append(Problem("--allowed-host", text))
    return problems


def _place_of(listen: str) -> _Place | Problem:
    found = _LISTEN.fullmatch(listen)
    if found is None or int(found["port"]) > 65535:
        text = f"found {listen!r}, allowed is [HOST:]PORT, for example 8080, 0.0.0.0:8080 or [::1]:8080"
        return Problem("--listen", text)
    host, port = (found["host"] or HOST).strip("[]"), int(found["port"])
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return Problem("--listen", f"the host {host!r} is not known: {error.strerror or error}; name an address")
    return _Place(family=family, address=str(address[0]), port=port, host=host)


def _token_of(file: str | None) -> Token:
    if file is None:
        return GeneratedToken()
    if not file.strip():
        raise ValueError("is empty; name a file with the token, or leave the option out on a loopback address")
    return FileToken(Path(file))


def _listen(place: _Place) -> socket.socket:
    # "[::]" takes IPv4 too, as servers of Kubernetes do.
    both = place.address == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((place.address, place.port), family=place.family, dualstack_ipv6=both)


def _url(place: _Place, port: int, token: Token | None) -> str:
    host = f"[{place.host}]" if ":" in place.host else place.host
    query = f"?token={token.text}" if isinstance(token, GeneratedToken) else ""
    return f"http://{host}:{port}/{query}"
