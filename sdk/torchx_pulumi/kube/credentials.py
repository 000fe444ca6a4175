"""The credentials of a request: what a kubeconfig's user holds, a token's file, or what a plugin answers."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torchx_pulumi.model.errors import ClusterError

EXPIRES_EARLY_S = 10.0
"""A token of an `auth-provider` counts as expired this long before it is: clocks differ."""

REPLACEMENTS = {
    "azure": "kubelogin (`kubelogin convert-kubeconfig`)",
    "gcp": "gke-gcloud-auth-plugin (`gcloud container clusters get-credentials`)",
}
"""What took the place of the providers that Kubernetes 1.26 removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Credentials as they are now."""

    authorization: str | None = field(default=None, repr=False)
    """Value of the header. None: it is not sent."""
    certificate_and_key: bytes | None = field(default=None, repr=False)
    """A plugin's client certificate and key as PEM. None: the kubeconfig's own, if it has one."""


class Credentials(Protocol):
    """A source of credentials, safe to use from many threads."""

    def current(self) -> Held:
        """Return what to send.

        Raises:
            ClusterError: The credentials cannot be had.
        """
        ...

    def renewed(self, refused: Held) -> Held | None:
        """Return other credentials than those that the API server refused. None: there are no others.

        Raises:
            ClusterError: They cannot be renewed.
        """
        ...


def credentials_of(cluster: Mapping[str, Any], user: Mapping[str, Any], where: str) -> Credentials:
    """Return the source of a user's credentials; like client-go, what the user itself holds wins over a plugin.

    Args:
        cluster: The cluster of a kubeconfig, of which a plugin may be told.
        user: The user of that kubeconfig.
        where: What messages call the cluster.

    Raises:
        ClusterError: The user needs a way to log in that is not supported.
    """
    if user.get("tokenFile"):
        return TokenFile(Path(user["tokenFile"]), where)
    if user.get("token"):
        return Fixed(Held(authorization=_bearer(user["token"], "its token", where)))
    if user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        return Fixed(Held(authorization=f"Basic {base64.b64encode(pair).decode()}"))
    if user.get("client-certificate") or user.get("client-certificate-data"):
        return Fixed(Held())
    if user.get("exec"):
        # What starts programs is loaded where one is to be started.
        from torchx_pulumi.kube.exec_plugin import Plugin

        return Plugin(user["exec"], cluster, where)
    if user.get("auth-provider"):
        return Provider(user["auth-provider"], where)
    return Fixed(Held())


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that stay as they are."""

    held: Held

    def current(self) -> Held:
        """Return them."""
        return self.held

    def renewed(self, refused: Held) -> Held | None:  # noqa: ARG002 - there is nothing to compare with
        """Return None: there are no others."""
        return None


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, which is read for each request: tokens are renewed in place."""

    path: Path
    where: str

    def current(self) -> Held:
        """Return what the file holds now."""
        try:
            token = self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error if isinstance(error, OSError) else f"{str(self.path)!r} is no text in UTF-8"
            raise ClusterError(f"{self.where} cannot be used: its token file: {reason}") from None
        return Held(authorization=_bearer(token, f"its token file {str(self.path)!r}", self.where))

    def renewed(self, refused: Held) -> Held | None:
        """Return what the file holds by now, if that is something else."""
        now = self.current()
        return now if now != refused else None


class Provider:
    """The token of an `auth-provider`, which kubectl renews and this does not."""

    def __init__(self, provider: Any, where: str) -> None:
        provider = provider if isinstance(provider, Mapping) else {}
        name, config = provider.get("name"), provider.get("config") or {}
        if name != "oidc":
            instead = f": use {REPLACEMENTS[name]}" if name in REPLACEMENTS else ", use a plugin with `exec`"
            raise ClusterError(
                f"{where} cannot be used: its kubeconfig has the auth-provider {name!r}, which Kubernetes 1.26 "
                f"removed{instead}"
            )
        self._token = str(config.get("id-token") or "")
        self._where = where
        self._expires_at = _expiry(self._token)

    def current(self) -> Held:
        """Return the token while it is valid."""
        if self._expires_at is not None and time.time() + EXPIRES_EARLY_S < self._expires_at:
            return Held(authorization=f"Bearer {self._token}")
        problem = "has expired" if self._expires_at is not None else "is missing or cannot be read"
        raise ClusterError(
            f"{self._where} cannot be used: the id-token of its auth-provider 'oidc' {problem}; any command of "
            "kubectl renews it in the kubeconfig; or use the plugin kubelogin with `exec`, which needs no kubectl"
        )

    def renewed(self, refused: Held) -> Held | None:  # noqa: ARG002 - there is nothing to compare with
        """Return None: there are no others."""
        return None


def _bearer(token: str, what: str, where: str) -> str:
    """Return the value of the header; what no request can hold is refused here, since others would repeat it."""
    if token and all(32 < ord(letter) < 127 for letter in token):
        return f"Bearer {token}"
    problem = "has blanks, line breaks or other characters that no request can hold" if token else "is empty"
    raise ClusterError(f"{where} cannot be used: {what} {problem}")


def _expiry(token: str) -> float | None:
    """Return the time at which a JSON Web Token expires, in seconds since 1970. None: it does not say."""
    payload = f"{token}..".split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError):
        return None
