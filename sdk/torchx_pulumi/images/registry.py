"""Digests of images, read from registries over the distribution API with Docker's credentials. No daemon is needed."""

from __future__ import annotations

import email.utils
import hashlib
import ipaddress
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torchx_pulumi.images.reference import DOCKER_HUB, Reference
from torchx_pulumi.model.errors import ImageError

ACCEPTED: Final = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
"""Accepted media types. The index comes first, because the daemon stores its digest for a pulled image."""
INSECURE: Final = "TORCHX_PULUMI_INSECURE_REGISTRIES"
"""Environment variable: comma-separated registries that use http, in addition to those on loopback."""
TIMEOUT_S: Final = (10.0, 60.0)
"""Timeouts of a connection attempt and of a response."""
RETRIED: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP statuses after which a request is sent again."""
LONGEST_WAIT_S: Final = 30.0
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')
_HUB_HOST: Final = "registry-1.docker.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Number of attempts, and the wait between them."""

    tries: int = 5
    """Attempts in total."""
    first_s: float = 0.5
    """Seconds after the first attempt. Each wait is twice the previous one."""
    sleep: Callable[[float], None] = time.sleep
    """Waits for a number of seconds."""

    def wait(self, failed: int, headers: Mapping[str, str] | None = None) -> bool:
        """Wait before the next attempt. Return False if there is none.

        Args:
            failed: Number of failed attempts, from 1.
            headers: Headers of the response. `Retry-After` takes precedence, up to 30 s.
        """
        if failed >= self.tries:
            return False
        retry_after_s = _retry_after_s((headers or {}).get("Retry-After"))
        self.sleep(min(self.first_s * 2 ** (failed - 1) if retry_after_s is None else retry_after_s, LONGEST_WAIT_S))
        return True


def _retry_after_s(value: str | None) -> float | None:
    """Return the seconds of `Retry-After`, which is a number of seconds or a date."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """Credentials for a registry."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    identity_token: str | None = field(default=None, repr=False)
    """Exchanged for an access token, instead of user and password."""


def login_of(registry: str) -> RegistryLogin | None:
    """Return the credentials in Docker's configuration or its credential helper. None: there are none.

    Raises:
        ImageError: The configuration cannot be read, a credential helper fails, or the `docker` package is missing.
    """
    auth = import_docker().auth
    from docker.errors import DockerException

    # docker-py reads the hub's own key of the file for None.
    key = None if registry == DOCKER_HUB else registry
    try:
        config = auth.load_config()
        helper = config.get_credential_store(key)
        if helper and shutil.which(f"docker-credential-{helper}") is None:
            # docker-py would only warn, and fail later with a less clear message.
            raise FileNotFoundError(f"docker-credential-{helper} is not on PATH")
        found = config.resolve_authconfig(key)
    except (DockerException, OSError, ValueError, subprocess.SubprocessError) as error:
        raise ImageError(
            f"credentials of registry {registry}: Docker's configuration or its credential helper failed: {error}; "
            f"see DOCKER_CONFIG or ~/.docker/config.json, then `docker login {registry}`"
        ) from error
    if not found:
        return None
    read = {str(name).lower(): value for name, value in found.items()}
    return RegistryLogin(
        user=read.get("username"), password=read.get("password"), identity_token=read.get("identitytoken")
    )


def import_docker() -> Any:
    """Import docker-py.

    Raises:
        ImageError: It is not installed.
    """
    try:
        import docker
        import docker.auth
    except ImportError as error:
        raise ImageError(
            f"patching an image needs the docker package, which cannot be imported ({error}); "
            "install `torchx-pulumi[docker]`, or give an image that needs no patching and no workspace"
        ) from error
    return docker


class RegistryClient:
    """Reads digests from registries. Many threads may use one client."""

    def __init__(self, *, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._authorizations: dict[tuple[str, str], Any] = {}

    def digest(self, reference: Reference) -> str | None:
        """Return the digest of an image. None: the registry does not have it.

        Raises:
            ImageError: The registry cannot be reached, denies access, or returns an error. `retryable` says whether a
                later attempt may succeed.
        """
        url = f"{_address(reference.registry)}/v2/{reference.path}/manifests/{reference.version}"
        response = self._get_manifest("HEAD", url, reference)
        if response.status_code != 404 and not response.headers.get("Docker-Content-Digest"):
            response = self._get_manifest("GET", url, reference)
        if response.status_code == 404:
            return None
        found = response.headers.get("Docker-Content-Digest")
        return str(found) if found else f"sha256:{hashlib.sha256(response.content).hexdigest()}"

    def _get_manifest(self, method: str, url: str, reference: Reference) -> Any:
        key, headers = (reference.registry, reference.path), {"Accept": ACCEPTED}
        auth = self._authorizations.get(key, _no_netrc)
        response = self._request(method, url, reference, (200, 401, 404), headers=headers, auth=auth)
        if response.status_code == 401:
            auth = self._authorizations[key] = self._authorize(response, reference)
            response = self._request(method, url, reference, (200, 404), headers=headers, auth=auth)
        return response

    def _request(self, method: str, url: str, reference: Reference, expected: Container[int], **options: Any) -> Any:
        """Send a request over a new connection, again after errors that may pass.

        Raises:
            ImageError: No response, or one whose status is not expected.
        """
        import requests

        failed, registry = 0, reference.registry
        with requests.Session() as session:
            while True:
                try:
                    certificate = _certificate(registry) or True
                    response = session.request(method, url, timeout=TIMEOUT_S, verify=certificate, **options)
                except requests.RequestException as error:
                    failed += 1
                    if _is_permanent(error) or not self._backoff.wait(failed):
                        raise ImageError(_unreachable(reference, error), retryable=True) from error
                    continue
                if response.status_code in RETRIED:
                    failed += 1
                    if self._backoff.wait(failed, response.headers):
                        continue
                if response.status_code not in expected:
                    raise _error_of(response, reference, failed)
                return response

    def _authorize(self, response: Any, reference: Reference) -> Any:
        """Return the `auth` of requests that meets the challenge of a response."""
        from requests.auth import HTTPBasicAuth

        scheme, _, rest = response.headers.get("WWW-Authenticate", "").partition(" ")
        login = login_of(reference.registry)
        basic = HTTPBasicAuth((login.user or "").encode(), (login.password or "").encode()) if login else None
        if scheme.lower() == "basic":
            if basic is None:
                raise ImageError(_denied(reference, "asks for credentials, and Docker's configuration has none"))
            return basic
        if scheme.lower() != "bearer":
            raise ImageError(
                f"registry {reference.registry}: asks for {scheme!r} authentication, supported are Basic and Bearer"
            )
        token = self._token(dict(_PARAMETER.findall(rest)), login, basic, reference)

        def add_token(request: Any) -> Any:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        return add_token

    def _token(
        self, challenge: Mapping[str, str], login: RegistryLogin | None, basic: Any, reference: Reference
    ) -> str:
        scope = challenge.get("scope") or f"repository:{reference.path}:pull"
        query = {"service": challenge.get("service", ""), "scope": scope}
        method, options = "GET", {"params": query, "auth": basic or _no_netrc}
        if login and login.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": login.identity_token, "client_id": "torchx-pulumi"}
            method, options = "POST", {"data": {**query, **grant}, "auth": _no_netrc}
        response = self._request(method, challenge.get("realm", ""), reference, (200, 400, 401, 403, 404), **options)
        if response.status_code in (400, 401, 403):
            raise ImageError(_denied(reference, f"its token service answers {response.status_code}"))
        try:
            body = response.json()
            return str(body.get("token") or body["access_token"])
        except (ValueError, KeyError, AttributeError) as error:
            raise ImageError(f"registry {reference.registry}: its token service sent no token") from error


def _no_netrc(request: Any) -> Any:
    """Return a request unchanged. Without an `auth`, requests would read ~/.netrc, which Docker does not use."""
    return request


def _address(registry: str) -> str:
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


def _certificate(registry: str) -> str | None:
    """Return the file of the registry's certificate authority in Docker's configuration. None: there is none."""
    for folder in (Path("~/.docker/certs.d").expanduser(), Path("/etc/docker/certs.d")):
        file = folder / registry / "ca.crt"
        if file.is_file():
            return str(file)
    return None


def _is_permanent(error: BaseException) -> bool:
    """Return whether another attempt would fail the same way: an unknown host, or an untrusted certificate."""
    text = str(error)
    return any(
        word in text for word in ("Name or service not known", "CERTIFICATE_VERIFY_FAILED", "getaddrinfo failed")
    )


def _error_of(response: Any, reference: Reference, failed: int) -> ImageError:
    code = response.status_code
    if code in (401, 403):
        return ImageError(_denied(reference, f"answers {code}"))
    tries = f" after {failed} tries" if failed > 1 else ""
    what = "is limiting the rate of requests" if code == 429 else f"answers {code} {response.reason}"
    return ImageError(
        f"registry {reference.registry}: {what}{tries}, asked for {reference.name}:{reference.version}; "
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
    # Libraries wrap the system's message in the names of their objects.
    found = re.search(
        r"\[Errno -?\d+\] ([^'\")]+)|(timed out|CERTIFICATE_VERIFY_FAILED|Connection aborted)", str(error)
    )
    reason = (found[1] or found[2]).strip() if found else str(error)
    return (
        f"registry {reference.registry}: cannot be reached ({reason}), asked for {reference.name}:{reference.version}; "
        "check that it runs and that this machine may reach it, then run again"
    )
