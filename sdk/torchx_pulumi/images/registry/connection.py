"""Requests to registries over pooled connections: retries, authorization, redirects, certificates."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry.addresses import (
    address_of,
    authority_of,
    client_certificate_of,
    is_plain,
    origin_of,
    resolve_address,
)
from torchx_pulumi.images.registry.authorization import Authorizations, Scopes, no_netrc
from torchx_pulumi.images.registry.failures import certificates, refused, unreachable
from torchx_pulumi.images.registry.retries import Retries, after
from torchx_pulumi.model.errors import ImageError

TIMEOUT_S: Final = (10.0, 60.0)
"""Timeouts of a connection attempt and of a response."""
_AT_ONCE: Final = 8
"""Connections to one host that are kept open."""
_REDIRECTS: Final = 5
_REDIRECTING: Final = (301, 302, 303, 307, 308)
_LONGEST_ERROR: Final = 8192
"""Bytes of a body that are read for an error."""
DROPPED: Final = (requests.RequestException, HTTPError)
"""Errors of a connection that broke while a body was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    """A response that was read as a whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    url: str

    def json(self) -> Any:
        """Return the content as JSON.

        Raises:
            ValueError: The content is not JSON.
        """
        try:
            return json.loads(self.content)
        except RecursionError as error:
            raise ValueError("too deeply nested") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRequest:
    """A request to a registry."""

    method: str
    url: str
    """With host, or a path below the registry's address."""
    reference: Reference
    """The repository, whose registry gets the credentials."""
    scopes: Scopes
    what: str
    """What is asked for, for messages."""
    expected: Container[int] = (200,)
    """Statuses that are returned. Others are errors."""
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Any = field(default=None, repr=False)
    """Body: bytes, or an object with `read`, `seek` and `tell` and a length."""
    repeated: bool = True
    """Send it again after errors that may pass. False: the caller does."""
    timeout_s: tuple[float, float] = TIMEOUT_S


class RegistryConnection:
    """Sends requests. Many threads may use it."""

    def __init__(self, retries: Retries, chunk: int) -> None:
        self.retries = retries
        self.chunk = chunk
        """Bytes of a chunk of an upload, and of the largest blob that is sent as a whole."""
        self._again = _session(retries)
        self._once = _session(retries.new(total=0))
        self._guard = threading.Lock()
        self._authorizations = Authorizations(self._fetch_token)

    def close(self) -> None:
        """Close the kept connections."""
        self._again.close()
        self._once.close()

    def send(self, request: RegistryRequest, limit: int = 1 << 20) -> RegistryAnswer:
        """Send a request and read its response, again after errors that may pass.

        Args:
            request: The request.
            limit: Bytes of the longest body.

        Raises:
            ImageError: No response, a status that is not expected, or a longer body. `retryable` says whether a later
                attempt may succeed.
        """
        retries = self.retries
        while True:
            with self.open(request) as response:
                try:
                    content = _read(response, limit, request)
                except DROPPED as error:
                    broken = ImageError(unreachable(request.reference, error, request.what), retryable=True)
                    if not request.repeated:
                        raise broken from error
                    retries = after(broken, retries)
                else:
                    url = str(response.url)
                    return RegistryAnswer(
                        status=response.status_code, headers=response.headers, content=content, url=url
                    )
            retries.sleep()

    @contextlib.contextmanager
    def open(self, request: RegistryRequest) -> Iterator[requests.Response]:
        """Send a request and yield its response, whose body is not read yet.

        Raises:
            ImageError: As of `send`.
        """
        with contextlib.closing(self._authorized(request)) as response:
            if response.status_code not in request.expected:
                history = getattr(getattr(response.raw, "retries", None), "history", ())
                content = b""
                with contextlib.suppress(*DROPPED):
                    content = next(response.iter_content(_LONGEST_ERROR), b"")
                raise refused(
                    response.status_code,
                    response.reason,
                    content,
                    request.reference,
                    request.what,
                    len(history) + 1,
                    self._authorizations.note(request.reference),
                    response.headers,
                )
            yield response

    def _authorized(self, request: RegistryRequest) -> requests.Response:
        """Send a request with the credentials of its registry, follow redirects, and return the response."""
        home = address_of(request.reference.registry)
        registry = request.reference.registry
        url = _secured(resolve_address(f"{home}/", request.url, registry), home)
        for _ in range(_REDIRECTS):
            if is_plain(url) and origin_of(home)[0] == "https":
                raise ImageError(
                    f"registry {registry}: redirects to plain http ({origin_of(url)[1]}), asked for {request.what}; "
                    "name that host in TORCHX_PULUMI_INSECURE_REGISTRIES if that is right"
                )
            own = origin_of(url) == origin_of(home)
            if own:
                response = self._with_credentials(request, url)
            else:
                # Presigned addresses: storage refuses a second authorization, and must not see ours.
                response = self._transmit(request, url, no_netrc, own=False)
            target = response.headers.get("Location")
            is_redirect = response.status_code in _REDIRECTING and response.status_code not in request.expected
            if not is_redirect or not target or request.method not in ("GET", "HEAD"):
                return response
            response.close()
            url = _secured(resolve_address(url, target, registry), home)
        raise ImageError(
            f"registry {registry}: redirects more than {_REDIRECTS} times, asked for {request.what}; see its logs"
        )

    def _with_credentials(self, request: RegistryRequest, url: str) -> requests.Response:
        authorize = self._authorizations.current(request.reference, request.scopes, request.what)
        response = self._transmit(request, url, authorize, own=True)
        if response.status_code != 401:
            return response
        response.close()
        authorize = self._authorizations.renewed(
            response.headers.get("WWW-Authenticate", ""), authorize, request.reference, request.scopes, request.what
        )
        return self._transmit(request, url, authorize, own=True)

    def _transmit(self, request: RegistryRequest, url: str, authorize: Any, *, own: bool) -> requests.Response:
        registry, session = request.reference.registry, self._again if request.repeated else self._once
        if hasattr(request.data, "seek"):
            request.data.seek(0)
        try:
            return session.request(
                request.method,
                url,
                data=request.data,
                headers=dict(request.headers),
                auth=authorize,
                timeout=request.timeout_s,
                allow_redirects=False,
                stream=True,
                verify=(authority_of(registry) if own else None) or True,
                cert=client_certificate_of(registry) if own else None,
            )
        except requests.RequestException as error:
            raise ImageError(unreachable(request.reference, error, request.what), retryable=True) from error
        except OSError as error:
            raise ImageError(certificates(request.reference, error, request.what)) from error

    def _fetch_token(self, method: str, realm: str, reference: Reference, what: str, options: Mapping[str, Any]) -> Any:
        own = origin_of(realm)[:2] == origin_of(address_of(reference.registry))[:2]
        verify = (authority_of(reference.registry) if own else None) or True
        request = RegistryRequest(method=method, url=realm, reference=reference, scopes=(), what=what)
        try:
            response = self._again.request(
                method, realm, timeout=TIMEOUT_S, allow_redirects=False, stream=True, verify=verify, **options
            )
            with contextlib.closing(response):
                if response.status_code not in (200, 400, 401, 403, 404):
                    raise refused(response.status_code, response.reason, b"", reference, what, 1)
                content = _read(response, 1 << 20, request)
        except DROPPED as error:
            raise ImageError(unreachable(reference, error, what), retryable=True) from error
        except OSError as error:
            raise ImageError(certificates(reference, error, what)) from error
        return RegistryAnswer(status=response.status_code, headers=response.headers, content=content, url=realm)


def _secured(url: str, home: str) -> str:
    """Return a URL with https if its registry uses it: one behind a proxy may name itself with http."""
    scheme, host, _ = origin_of(url)
    if scheme == "http" and home.startswith("https://") and host == origin_of(home)[1]:
        return f"https{url[4:]}"
    return url


def _read(response: requests.Response, limit: int, request: RegistryRequest) -> bytes:
    """Return the body of a response.

    Raises:
        ImageError: It is longer than the limit.
        requests.RequestException: The connection broke.
    """
    content = bytearray()
    for piece in response.iter_content(1 << 16):
        content += piece
        if len(content) > limit:
            raise ImageError(
                f"registry {request.reference.registry}: sent more than {limit} bytes, asked for {request.what}; "
                "this is no answer of a registry; check the address"
            )
    length = response.headers.get("Content-Length")
    # urllib3 1.26 takes a body that ends early for a whole one.
    if request.method != "HEAD" and length and length.isdigit() and len(content) < int(length):
        raise requests.ConnectionError("Connection aborted")
    return bytes(content)


class _Session(requests.Session):
    def get_redirect_target(self, _response: requests.Response) -> None:
        """Return None: redirects are followed here. requests reads their addresses even if it must not follow them."""


def _session(retries: Retries) -> requests.Session:
    session = _Session()
    adapter = HTTPAdapter(pool_connections=_AT_ONCE, pool_maxsize=_AT_ONCE, max_retries=retries)
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    # Compressed transfers would change sizes and digests.
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "torchx-pulumi"})
    return session
