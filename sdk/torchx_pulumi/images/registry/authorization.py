"""Authorizations of requests: Basic credentials and Bearer tokens, which a registry asks for with a challenge."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from requests.auth import HTTPBasicAuth

from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.addresses import is_plain, resolve_address
from torchx_pulumi.images.registry.credentials import FoundLogin, find_login
from torchx_pulumi.images.registry.failures import RefusedRequestError, denied, message_in
from torchx_pulumi.model.errors import ImageError

Authorize = Callable[[Any], Any]
"""`auth` of requests: adds its header to a request."""
Scopes = tuple[str, ...]
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_SCHEMES: Final = ("basic", "bearer")
_SUPPORTED: Final = re.compile(r",\s*(basic|bearer)\b", re.IGNORECASE)
_KEPT: Final = 0.8
"""Part of a token's time after which another one is fetched."""


def no_netrc(request: Any) -> Any:
    """Return a request unchanged. Without an `auth`, requests would read ~/.netrc, which Docker does not use."""
    return request


def pull_scope(reference: Reference) -> str:
    """Return the scope for reading a repository."""
    return f"repository:{reference.path}:pull"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Challenge:
    scheme: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Granted:
    authorize: Authorize
    until_s: float | None
    """Monotonic time until which it is used. None: until the registry refuses it."""


class Authorizations:
    """The authorizations of one client. Threads share them; each is fetched once."""

    def __init__(self, fetch: Callable[..., Any]) -> None:
        self._fetch = fetch
        """Sends a request to a token service: method, URL, repository, options of requests."""
        self._guard = threading.Lock()
        self._challenges: dict[str, _Challenge] = {}
        self._granted: dict[tuple[str, Scopes], _Granted] = {}
        self._notes: dict[str, str] = {}

    def current(self, reference: Reference, scopes: Scopes, asked: str) -> Authorize:
        """Return the authorization for a request. Without a known challenge it adds nothing.

        Raises:
            ImageError: The token service refuses, or does not answer.
        """
        with self._guard:
            found = self._granted.get((reference.registry, scopes))
            if found is not None and (found.until_s is None or time.monotonic() < found.until_s):
                return found.authorize
            challenge = self._challenges.get(reference.registry)
            if challenge is None:
                return no_netrc
            return self._grant(challenge, reference, scopes, asked)

    def renewed(self, header: str, refused: Authorize, reference: Reference, scopes: Scopes, asked: str) -> Authorize:
        """Return the authorization that meets the challenge of a response with status 401.

        Args:
            header: The header `WWW-Authenticate`.
            refused: The authorization of the request.
            reference: The repository.
            scopes: What the request needs.
            asked: What was asked for, for messages.

        Raises:
            ImageError: There are no credentials, or the token service refuses.
        """
        with self._guard:
            found = self._granted.get((reference.registry, scopes))
            if found is not None and found.authorize is not refused:
                return found.authorize  # another thread was first
            scheme, _, rest = header.partition(" ")
            # A registry may offer others as well.
            if other := None if scheme.lower() in _SCHEMES else _SUPPORTED.search(header):
                scheme, rest = other[1], header[other.end() :]
            challenge = _Challenge(scheme=scheme.lower(), parameters=dict(_PARAMETER.findall(rest)))
            self._challenges[reference.registry] = challenge
            return self._grant(challenge, reference, scopes, asked)

    def note(self, reference: Reference) -> str:
        """Return why credentials of the pod could not be read. Empty: no problem."""
        return self._notes.get(reference.registry, "")

    def _grant(self, challenge: _Challenge, reference: Reference, scopes: Scopes, asked: str) -> Authorize:
        found = find_login(reference)
        self._notes[reference.registry] = found.note
        login = found.login
        basic = HTTPBasicAuth((login.user or "").encode(), (login.password or "").encode()) if login else None
        if challenge.scheme == "basic":
            if basic is None:
                what = "asks for credentials, and Docker's configuration has none"
                raise ImageError(denied(reference, what, asked, found.note))
            granted = _Granted(authorize=basic, until_s=None)
        elif challenge.scheme == "bearer":
            granted = self._token(challenge.parameters, found, basic, reference, scopes, asked)
        else:
            raise ImageError(
                f"registry {reference.registry}: asks for {challenge.scheme or 'an unnamed'} authentication, supported "
                f"are Basic and Bearer, asked for {asked}; see its configuration, or that of a proxy before it"
            )
        self._granted[reference.registry, scopes] = granted
        return granted.authorize

    def _token(
        self,
        challenge: Mapping[str, str],
        found: FoundLogin,
        basic: Any,
        reference: Reference,
        scopes: Scopes,
        asked: str,
    ) -> _Granted:
        realm, login = resolve_address("", challenge.get("realm", ""), reference.registry), found.login
        if login and is_plain(realm):
            raise ImageError(
                f"registry {reference.registry}: its token service {realm} uses plain http, and would get the "
                "password; name its host in TORCHX_PULUMI_INSECURE_REGISTRIES if that is right"
            )
        wanted = list(dict.fromkeys([*scopes, *challenge.get("scope", "").split()]))
        service = challenge.get("service", "")
        method, options = "GET", {"params": {"service": service, "scope": wanted}, "auth": basic or no_netrc}
        if login and login.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "torchx-pulumi"}
            data = {"service": service, "scope": " ".join(wanted), **grant}
            method, options = "POST", {"data": data, "auth": no_netrc}
        answer = self._fetch(method, realm, reference, asked, options)
        if answer.status in (400, 401, 403):
            said = message_in(answer.content)
            for secret in (login.password, login.identity_token) if login else ():
                said = said.replace(secret, "***") if secret else said
            what = f"its token service answers {answer.status}" + (f" ({said})" if said else "")
            raise RefusedRequestError(denied(reference, what, asked, found.note), status=answer.status)
        try:
            body = answer.json()
            token = str(body.get("token") or body["access_token"])
            lasts_s = float(body.get("expires_in") or 0)
            token.encode("ascii")
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError):
            token = ""
        if not token or not token.isprintable():
            raise ImageError(
                f"registry {reference.registry}: its token service {realm} sent no token (it answers {answer.status}), "
                f"asked for {asked}; see its logs"
            )

        def add_token(request: Any) -> Any:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        return _Granted(authorize=add_token, until_s=time.monotonic() + lasts_s * _KEPT if lasts_s else None)
