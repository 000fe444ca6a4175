"""Authorizations of requests: Basic credentials and Bearer tokens, which a registry asks for with a challenge."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final
from urllib.parse import urlencode

from torchx_pulumi.images.registry.addresses import is_plain, url_in
from torchx_pulumi.images.registry.credentials import FoundLogin, RegistryLogin, login_of
from torchx_pulumi.images.registry.request import RegistryAnswer, RegistryRequest, denied, message_in
from torchx_pulumi.model.errors import ImageError

_PARAMETERS: Final = r'(?:[\s,]*\w+=(?:"[^"]*"|[^\s,"]+))*'
_CHALLENGE: Final = re.compile(rf"(?:^|,)\s*(basic|bearer)\b({_PARAMETERS})", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')
_KEPT: Final = 0.8
"""Part of a token's time after which another one is fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Granted:
    header: str = field(repr=False)
    """Value of `Authorization`."""
    challenge: str
    """Value of `WWW-Authenticate` that it meets."""
    note: str
    """As of `FoundLogin`."""
    until_s: float = inf
    """Monotonic time until which it is used."""


class Authorizations:
    """The authorizations of one client, each for a registry and the scopes of a request. Threads share them."""

    def __init__(self, send: Callable[[RegistryRequest], RegistryAnswer]) -> None:
        self._send = send
        """Sends a request to a token service."""
        self._guard = threading.Lock()
        # What one repository was refused says nothing about another: a challenge is for the scopes that it answered.
        self._granted: dict[tuple[str, tuple[str, ...]], _Granted] = {}
        self._with_tokens: set[str] = set()

    def current(self, request: RegistryRequest) -> str | None:
        """Return the authorization of a request, or None if none is known to be needed.

        Raises:
            ImageError: As of `renewed`.
        """
        with self._guard:
            found = self._granted.get((request.reference.registry, request.scopes))
            if found is None or time.monotonic() < found.until_s:
                return found.header if found else None
            return self._grant(found.challenge, request)

    def renewed(self, challenge: str, refused: str | None, request: RegistryRequest) -> str:
        """Return the authorization that meets the challenge (`WWW-Authenticate`) of a response with status 401.

        `refused` is the authorization of the request that had this response.

        Raises:
            ImageError: There are no credentials, or the token service refuses.
        """
        with self._guard:
            found = self._granted.get((request.reference.registry, request.scopes))
            if found is not None and found.header != refused:
                return found.header  # another thread was first
            return self._grant(challenge, request)

    def uses_tokens(self, registry: str) -> bool:
        """Return whether a registry has asked for a token."""
        return registry in self._with_tokens

    def note(self, request: RegistryRequest) -> str:
        """Return why credentials of the pod could not be read; empty if there was no problem."""
        found = self._granted.get((request.reference.registry, request.scopes))
        return found.note if found else ""

    def _grant(self, challenge: str, request: RegistryRequest) -> str:
        registry = request.reference.registry
        match = _CHALLENGE.search(challenge)
        if match is None:
            scheme = challenge.partition(" ")[0].lower()
            raise ImageError(
                f"registry {registry}: asks for {scheme or 'an unnamed'} authentication, supported are Basic and "
                f"Bearer, asked for {request.what}; see its configuration, or that of a proxy before it"
            )
        # Docker's configuration comes first, then the pull secrets of the pod's account.
        login = FoundLogin(login=login_of(registry))
        if login.login is None:
            from torchx_pulumi.images.registry.pull_secrets import login_of_pod  # it imports the clients of clusters

            login = login_of_pod(request.reference)
        if match[1].lower() == "bearer":
            self._with_tokens.add(registry)
            parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(match[2])}
            header, lasts_s = self._token(parameters, login, request)
        elif login.login is None:
            what = "asks for credentials, and Docker's configuration has none"
            raise denied(request, what, note=login.note)
        else:
            header, lasts_s = _basic(login.login), 0.0
        until_s = time.monotonic() + lasts_s * _KEPT if lasts_s else inf
        granted = _Granted(header=header, challenge=challenge, note=login.note, until_s=until_s)
        self._granted[registry, request.scopes] = granted
        return header

    def _token(self, asked: Mapping[str, str], found: FoundLogin, request: RegistryRequest) -> tuple[str, float]:
        """Return the header with a token, and its seconds, or 0 if it lasts until the registry refuses it."""
        registry, login = request.reference.registry, found.login
        realm = url_in(registry, asked.get("realm", ""))
        if login and is_plain(realm):
            raise ImageError(
                f"registry {registry}: its token service {realm} uses plain http, and would get the "
                "password; name its host in TORCHX_PULUMI_INSECURE_REGISTRIES if that is right"
            )
        answer = self._send(_token_request(realm, asked, login, request))
        if answer.status in (400, 401, 403):
            said = message_in(answer.content)
            for secret in (login.password, login.identity_token) if login else ():
                said = said.replace(secret, "***") if secret else said
            what = f"its token service answers {answer.status}" + (f" ({said})" if said else "")
            raise denied(request, what, status=answer.status, note=found.note)
        try:
            body = answer.json()
            token = str(body.get("token") or body["access_token"])
            lasts_s = float(body.get("expires_in") or 0)
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError):
            token, lasts_s = "", 0
        if not (token.isascii() and token.isprintable() and token):
            raise ImageError(
                f"registry {registry}: its token service {realm} sent no token (it answers {answer.status}), "
                f"asked for {request.what}; see its logs"
            )
        return f"Bearer {token}", lasts_s


def _token_request(
    realm: str, asked: Mapping[str, str], login: RegistryLogin | None, request: RegistryRequest
) -> RegistryRequest:
    """Return the request for a token: with a login, or without one for what everybody may read."""
    scopes = wanted_scopes(request.scopes, asked.get("scope", ""))
    # Some registries name no service.
    service = {"service": asked["service"]} if asked.get("service") else {}
    token = RegistryRequest(
        method="GET",
        url=f"{realm}{'&' if '?' in realm else '?'}"
        + urlencode([*service.items(), *(("scope", scope) for scope in scopes)]),
        reference=request.reference,
        scopes=(),
        what=request.what,
        expected=(200, 400, 401, 403, 404),
        authorization=_basic(login) if login else "",
        # What needs the token is sent again as a whole.
        repeated=False,
    )
    if login is None or not login.identity_token:
        return token
    grant = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "torchx-pulumi"}
    return replace(
        token,
        method="POST",
        url=realm,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        body=urlencode({**service, "scope": " ".join(scopes), **grant}).encode(),
        authorization="",
    )


def wanted_scopes(needed: Sequence[str], named: str) -> list[str]:
    """Return the scopes of a token, each resource once, as some token services take one scope only.

    Args:
        needed: The scopes of the request.
        named: Those of the challenge, separated by blanks. Where none of them is about the request's repositories, the
            registry has other names for them, and its own are enough.

    >>> wanted_scopes(["repository:app:pull,push"], "repository:app:pull")
    ['repository:app:pull,push']
    >>> wanted_scopes(["repository:app:pull"], "aws")
    ['aws']
    """
    of_challenge = named.split()
    resources = {scope.rpartition(":")[0] for scope in of_challenge}
    if of_challenge and not any(scope.rpartition(":")[0] in resources for scope in needed):
        return of_challenge
    actions: dict[str, list[str]] = {}
    for scope in (*needed, *of_challenge):
        resource, colon, names = scope.rpartition(":")
        actions.setdefault(resource + colon, []).extend(names.split(","))
    return [resource + ",".join(dict.fromkeys(names)) for resource, names in actions.items()]


def _basic(login: RegistryLogin) -> str:
    return "Basic " + base64.b64encode(f"{login.user or ''}:{login.password or ''}".encode()).decode()
