"""Asks registries for digests over the distribution API, with Docker's credentials and with patience."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.images.reference import DOCKER_HUB, Reference
from torchx_pulumi.images.registry.credentials import Credentials, credentials_for
from torchx_pulumi.images.registry.retrying import RETRIED, Backoff
from torchx_pulumi.model.errors import ImageError

ACCEPTED: Final = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""The index comes first: its digest is what the daemon remembers an image by."""
INSECURE: Final = "TORCHX_PULUMI_INSECURE_REGISTRIES"
"""Variable: registries, separated by commas, that are asked over http beside those on loopback."""
TIMEOUT_S: Final = (10.0, 60.0)
"""Seconds to connect, and to wait for an answer."""
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_HUB_HOST: Final = "registry-1.docker.io"


class RegistryClient:
    """Asks registries; one client may be used by many threads."""

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        credentials: Callable[[str], Credentials | None] = credentials_for,
    ) -> None:
        self._backoff = backoff or Backoff()
        self._credentials = credentials
        self._authorizations: dict[tuple[str, str], Any] = {}

    def digest(self, reference: Reference) -> str | None:
        """Return the digest of an image. None: the registry does not have it.

        Raises:
            ImageError: The registry cannot be reached, refuses, or does not answer as a registry does. `retryable`
                says whether a later try may help.
        """
        url = f"{_address(reference.registry)}/v2/{reference.path}/manifests/{reference.version}"
        for method in ("HEAD", "GET"):
            response = self._ask(method, url, reference)
            if response.status_code == 404:
                return None
            found = response.headers.get("Docker-Content-Digest")
            if found:
                return str(found)
            if method == "GET":
                import hashlib

                return f"sha256:{hashlib.sha256(response.content).hexdigest()}"
        raise AssertionError  # the loop returns

    def _ask(self, method: str, url: str, reference: Reference) -> Any:
        import requests

        failed, challenged = 0, False
        while True:
            try:
                response = _send(
                    method,
                    url,
                    reference.registry,
                    headers={"Accept": ACCEPTED},
                    auth=self._authorizations.get((reference.registry, reference.path), _no_netrc),
                )
            except requests.RequestException as error:
                failed += 1
                if _hopeless(error) or not self._backoff.wait(failed):
                    raise ImageError(_unreachable(reference, error), retryable=True) from error
                continue
            if response.status_code == 401 and not challenged:
                challenged = True
                key = (reference.registry, reference.path)
                self._authorizations[key] = self._authorize(response, reference)
                continue
            if response.status_code in RETRIED:
                failed += 1
                if self._backoff.wait(failed, response.headers):
                    continue
            _check(response, reference, failed)
            return response

    def _authorize(self, response: Any, reference: Reference) -> Any:
        """Answer a challenge."""
        from requests.auth import HTTPBasicAuth

        challenge = response.headers.get("WWW-Authenticate", "")
        scheme, _, rest = challenge.partition(" ")
        known = self._credentials(reference.registry)
        basic = HTTPBasicAuth((known.user or "").encode(), (known.password or "").encode()) if known else None
        if scheme.lower() == "basic":
            if basic is None:
                raise ImageError(_denied(reference, "asks for credentials, and Docker's configuration has none"))
            return basic
        if scheme.lower() != "bearer":
            raise ImageError(
                f"registry {reference.registry}: asks for {scheme!r} authentication, known are Basic, Bearer"
            )
        parameters = dict(_PARAMETER.findall(rest))
        return _Bearer(self._token(parameters, known, basic, reference))

    def _token(self, given: Mapping[str, str], known: Credentials | None, basic: Any, reference: Reference) -> str:
        import requests

        realm = given.get("realm", "")
        scope = given.get("scope") or f"repository:{reference.path}:pull"
        asked = {"service": given.get("service", ""), "scope": scope}
        failed = 0
        while True:
            try:
                if known and known.identity_token:
                    grant = {"grant_type": "refresh_token", "refresh_token": known.identity_token}
                    client = {"client_id": "torchx-pulumi"}
                    answer = _send("POST", realm, reference.registry, data={**asked, **grant, **client}, auth=_no_netrc)
                else:
                    answer = _send("GET", realm, reference.registry, params=asked, auth=basic or _no_netrc)
            except requests.RequestException as error:
                failed += 1
                if _hopeless(error) or not self._backoff.wait(failed):
                    raise ImageError(_unreachable(reference, error), retryable=True) from error
                continue
            if answer.status_code in RETRIED:
                failed += 1
                if self._backoff.wait(failed, answer.headers):
                    continue
            if answer.status_code in (400, 401, 403):
                raise ImageError(_denied(reference, f"its token service answers {answer.status_code}"))
            _check(answer, reference, failed)
            try:
                body = answer.json()
                return str(body.get("token") or body["access_token"])
            except (ValueError, KeyError, AttributeError) as error:
                raise ImageError(f"registry {reference.registry}: its token service gave no token") from error


def _send(method: str, url: str, registry: str, **given: Any) -> Any:
    """Send one request over a connection that is closed after it: a plan asks once or twice."""
    import requests

    with requests.Session() as session:
        return session.request(method, url, timeout=TIMEOUT_S, verify=_certificate(registry) or True, **given)


class _Bearer:
    """Puts a token on a request; requests takes any callable."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _no_netrc(request: Any) -> Any:
    """Leave a request as it is: without any auth, requests would look into ~/.netrc, which is not Docker's."""
    return request


def _address(registry: str) -> str:
    if registry == DOCKER_HUB:
        return f"https://{_HUB_HOST}"
    return f"{'http' if is_insecure(registry) else 'https'}://{registry}"


def is_insecure(registry: str) -> bool:
    """Say whether a registry is asked over http: those on loopback, as the daemon does, and those that are named.

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


def _certificate(registry: str) -> str | None:
    """Return the registry's own certificate authority, where Docker's configuration has one."""
    for folder in (Path("~/.docker/certs.d").expanduser(), Path("/etc/docker/certs.d")):
        file = folder / registry / "ca.crt"
        if file.is_file():
            return str(file)
    return None


def _hopeless(error: BaseException) -> bool:
    """Say whether another try would only fail the same way: a name that is none, a certificate that is wrong."""
    text = str(error)
    return any(
        word in text for word in ("Name or service not known", "CERTIFICATE_VERIFY_FAILED", "getaddrinfo failed")
    )


def _check(response: Any, reference: Reference, failed: int) -> None:
    code = response.status_code
    if code in (200, 404):
        return
    if code in (401, 403):
        raise ImageError(_denied(reference, f"answers {code}"))
    asked = f" after {failed} tries" if failed > 1 else ""
    what = "is limiting the rate of requests" if code == 429 else f"answers {code} {response.reason}"
    raise ImageError(
        f"registry {reference.registry}: {what}{asked}, asked for {reference.name}:{reference.version}; "
        f"{'log in with a higher limit or wait' if code == 429 else 'see its logs'}, then run again",
        retryable=code in RETRIED,
    )


def _denied(reference: Reference, what: str) -> str:
    login = "docker login" if reference.registry == DOCKER_HUB else f"docker login {reference.registry}"
    return (
        f"registry {reference.registry}: {what}, asked for {reference.name}:{reference.version}; "
        f"run `{login}` with an account that may use {reference.path}"
    )


def _unreachable(reference: Reference, error: BaseException) -> str:
    # Libraries wrap the reason in the names of their objects; the system's own words are inside.
    found = re.search(
        r"\[Errno -?\d+\] ([^'\")]+)|(timed out|CERTIFICATE_VERIFY_FAILED|Connection aborted)", str(error)
    )
    reason = (found[1] or found[2]).strip() if found else str(error)
    return (
        f"registry {reference.registry}: cannot be reached ({reason}), asked for {reference.name}:{reference.version}; "
        "see that it runs and that this machine may reach it, then run again"
    )
