"""Headers that identify the user of a request: credentials and impersonation.

Credentials are in a kubeconfig or a token file, or come from an `exec` plugin. Impersonation is `as`, `as-uid`,
`as-groups` and `as-user-extra` of a kubeconfig's user.
"""

from __future__ import annotations

import base64
import json
import string
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3

from torchx_pulumi.model.errors import ClusterError

EXPIRES_EARLY_S = 10.0
"""A token of an `auth-provider` counts as expired this long before its expiry, because clocks differ."""

REPLACEMENTS = {
    "azure": "kubelogin (`kubelogin convert-kubeconfig`)",
    "gcp": "gke-gcloud-auth-plugin (`gcloud container clusters get-credentials`)",
}
"""Replacements of the providers that Kubernetes 1.26 removed."""

_HEADER_NAME = f"{string.ascii_letters}{string.digits}!#$&'*+-.^_`|~"
"""Characters that are allowed in the name of a header. All others, and `%`, are written as `%XX`."""

Headers = Sequence[tuple[str, str]]
"""Names and values. A name may occur several times, which a mapping cannot hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of one request."""

    authorization: str | None = field(default=None, repr=False)
    """Value of the header `Authorization`. None: the header is not sent."""
    certificate_and_key: bytes | None = field(default=None, repr=False)
    """Client certificate and key of a plugin as PEM. None: those of the kubeconfig, if it has them."""
    expires_at: float | None = field(default=None, compare=False)
    """Seconds since 1970. None: valid until the API server refuses them."""


CredentialSource = Callable[[Credentials | None], Credentials]
"""Returns the credentials to send, given those that the API server refused (None: none were); many threads may call it.

The same ones again: there are no others. It raises a ClusterError if there are no valid credentials.
"""


def credentials_of(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> CredentialSource:
    """Return the source of a user's credentials. As in client-go, the user's own fields take precedence over a plugin.

    Args:
        cluster: The cluster of a kubeconfig, which a plugin may receive.
        user: The user of that kubeconfig.
        where: Name of the cluster in messages.

    Raises:
        ClusterError: The user needs a login method that is not supported.
    """
    if user.get("tokenFile"):
        # It is read for each request, because tokens are renewed in place.
        return lambda _: Credentials(authorization=_token_in(user["tokenFile"], where))
    own = Credentials()
    if user.get("token"):
        own = Credentials(authorization=_bearer(user["token"], "its token", where))
    elif user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        own = Credentials(authorization=f"Basic {base64.b64encode(pair).decode()}")
    elif user.get("client-certificate") or user.get("client-certificate-data"):
        # They are part of the connection.
        pass
    elif user.get("exec"):
        # Most kubeconfigs have no plugin: its module is imported on demand.
        from torchx_pulumi.kube.exec_plugin import plugin_credentials

        return plugin_credentials(user["exec"], cluster, where)
    elif user.get("auth-provider"):
        return _oidc_credentials(user["auth-provider"], where)
    return lambda _: own


def _token_in(path: str, where: str) -> str:
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, OSError) else f"{path!r} is not text in UTF-8"
        raise ClusterError(f"{where} cannot be used: its token file: {reason}") from None
    return _bearer(token, f"its token file {path!r}", where)


def _oidc_credentials(provider: Mapping[str, Any], where: str) -> CredentialSource:
    """Return the token of an `auth-provider`, which kubectl renews in the kubeconfig and this package does not."""
    name, config = provider.get("name"), provider.get("config") or {}
    if name != "oidc":
        instead = f": use {REPLACEMENTS[name]}" if name in REPLACEMENTS else ", use a plugin with `exec`"
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has the auth-provider {name!r}, which Kubernetes 1.26 "
            f"removed{instead}"
        )
    token = str(config.get("id-token") or "")
    expires_at = _expiry(token)

    def current(_: Credentials | None) -> Credentials:
        if expires_at is not None and time.time() + EXPIRES_EARLY_S < expires_at:
            return Credentials(authorization=f"Bearer {token}")
        problem = "has expired" if expires_at is not None else "is missing or cannot be read"
        raise ClusterError(
            f"{where} cannot be used: the id-token of its auth-provider 'oidc' {problem}; any command of "
            "kubectl renews it in the kubeconfig; or use the plugin kubelogin with `exec`, which needs no kubectl"
        )

    return current


def is_header_value(token: str) -> bool:
    """Return whether a token consists of characters that a header can hold, without blanks."""
    return all(32 < ord(letter) < 127 for letter in token)


def _bearer(token: str, what: str, where: str) -> str:
    """Return the value of the header. Other tokens are refused here, because urllib3 would repeat them in its error."""
    if token and is_header_value(token):
        return f"Bearer {token}"
    problem = "has blanks, line breaks or other characters that no request can hold" if token else "is empty"
    raise ClusterError(f"{where} cannot be used: {what} {problem}")


def _expiry(token: str) -> float | None:
    """Return the expiry of a JSON Web Token in seconds since 1970. None: the token does not state it."""
    payload = f"{token}..".split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError):
        return None


def impersonation(user: Mapping[str, Any], where: str) -> Headers:
    """Return the impersonation headers of a kubeconfig's user. Empty: requests are made as the authenticated user.

    Args:
        user: The user of a kubeconfig.
        where: Name of the cluster in messages.

    Raises:
        ClusterError: Groups without a user, or a value that no header can hold.
    """
    headers = list(_impersonation_headers(user))
    if headers and not user.get("as"):
        raise ClusterError(
            f"{where} cannot be used: its kubeconfig has as-uid, as-groups or as-user-extra without `as`, "
            "which names the user to act for; add it, or remove the others"
        )
    for name, value in headers:
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
            raise ClusterError(
                f"{where} cannot be used: the value of {name} in its kubeconfig has a control character; "
                "write it as one line of text"
            )
    # A header holds bytes, which Python writes as Latin-1. The API server reads them as UTF-8.
    return [(name, value.encode().decode("latin-1")) for name, value in headers]


def _impersonation_headers(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if user.get("as"):
        yield "Impersonate-User", user["as"]
    if user.get("as-uid"):
        yield "Impersonate-Uid", user["as-uid"]
    for group in user.get("as-groups") or ():
        # The API server reads two names in one header as one group.
        yield "Impersonate-Group", group
    for key, values in (user.get("as-user-extra") or {}).items():
        for value in values or ():
            yield f"Impersonate-Extra-{quote(str(key), safe=_HEADER_NAME)}", value


def with_headers(headers: Mapping[str, str], more: Headers) -> Any:
    """Return urllib3's `HTTPHeaderDict` of some headers and further ones, each in a line of its own."""
    # urllib3 1 has no public name for the class.
    whole = urllib3.response.HTTPHeaderDict(headers)
    for name, value in more:
        whole.add(name, value)
    return whole
