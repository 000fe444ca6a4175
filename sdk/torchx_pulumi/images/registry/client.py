"""The client of registries: reads of manifests and blobs, and requests with urllib3.

Retries, authorization, redirects, certificates and proxies are the same for reading and for pushes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchx_pulumi.images.oci import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    sha256_digest,
)
from torchx_pulumi.images.reference import Reference, is_local_id
from torchx_pulumi.images.registry.addresses import address_of, certificates_of, is_plain, origin_of, url_in
from torchx_pulumi.images.registry.authorization import Authorizations
from torchx_pulumi.images.registry.request import (
    RegistryAnswer,
    RegistryError,
    RegistryRequest,
    pull_scope,
    push_scope,
    refused,
    unreachable,
)
from torchx_pulumi.images.registry.retries import Attempts, Retries
from torchx_pulumi.model.errors import ClusterError, ImageError

if TYPE_CHECKING:
    from torchx_pulumi.kube.proxies import Proxy

ACCEPTED: Final = ", ".join((OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST))
"""Accepted media types. The index comes first, because the daemon stores its digest for a pulled image."""
LARGEST_MANIFEST: Final = 4 << 20
LARGEST_READ: Final = 16 << 20
"""Bytes of the largest blob that is read as a whole."""
_AT_ONCE: Final = 8
"""Connections to one host that are kept open."""
_REDIRECTS: Final = 5
_REDIRECTING: Final = (301, 302, 303, 307, 308)
_LONGEST_ERROR: Final = 8192
"""Bytes of a body that are read for an error."""
_LONGEST_ANSWER: Final = 1 << 20
_AUTHORITIES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables that name a file or folder of authorities, for those who know them of pip and docker-py."""
_HEADERS: Final = {"User-Agent": "torchx-pulumi", "Accept-Encoding": "identity"}
"""Headers of all requests. Compressed transfers would change sizes and digests."""


class RegistryClient:
    """Reads from registries and pushes to them, over pooled connections. Many threads may use one client."""

    def __init__(
        self,
        *,
        tries: int = 5,
        first_wait_s: float = 0.5,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Make a client. No request is sent.

        Args:
            tries: Attempts of each request in total, after errors that may pass.
            first_wait_s: Seconds after the first attempt; each wait is twice the previous one, at most 30 s.
                `Retry-After` takes precedence.
            pause: Waits for a number of seconds.
        """
        self.retries = Retries(tries=tries, first_wait_s=first_wait_s, pause=pause)
        self._guard = threading.Lock()
        self._managers: dict[tuple[Any, ...], Any] = {}
        """Pools by proxy and certificates."""
        self._authorizations = Authorizations(self.send)

    def close(self) -> None:
        """Close the kept connections. Later requests open others."""
        with self._guard:
            for manager in self._managers.values():
                manager.clear()

    def digest(self, reference: Reference) -> str | None:
        """Return the digest of an image, or None if the registry does not have it.

        Raises:
            ImageError: The registry cannot be reached, denies access, or returns an error. `retryable` says whether a
                later attempt may succeed.
        """
        answer = self._manifest("HEAD", reference)
        if answer.status != 404 and not _digest_in(answer):
            answer = self._manifest("GET", reference)
        if answer.status == 404:
            return None
        return _digest_in(answer) or sha256_digest(answer.content)

    def manifest(self, reference: Reference) -> Manifest | None:
        """Return a manifest or an index, or None if the registry does not have it.

        Raises:
            ImageError: As of `digest`; or it is larger than 4 MiB, or is not what its digest says.
        """
        answer = self._manifest("GET", reference)
        if answer.status == 404:
            return None
        media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if not media_type or media_type in ("application/json", "text/plain", "application/octet-stream"):
            written = answer.json()
            media_type = (written.get("mediaType") if isinstance(written, dict) else None) or media_type
        found = Manifest(media_type=media_type, content=answer.content)
        named = reference.digest or _digest_in(answer)
        if named and named != found.digest:
            raise ImageError(
                f"registry {reference.registry}: sent a manifest with digest {found.digest} for {named}, asked for "
                f"{_named(reference)}; it, or a proxy before it, changed the content; see its logs"
            )
        return found

    def read_blob(self, repository: Reference, descriptor: Descriptor) -> bytes:
        """Return a small blob, for example the configuration of an image.

        Args:
            repository: The repository that has it.
            descriptor: Its digest and size.

        Raises:
            ImageError: As of `digest`; or the registry does not have it, it is larger than 16 MiB, or it is not what
                its digest says.
        """
        request = blob_request("GET", repository, descriptor.digest)
        content = self.send(request, LARGEST_READ).content
        if sha256_digest(content) != descriptor.digest:
            raise ImageError(
                f"registry {repository.registry}: sent {sha256_digest(content)} ({len(content)} bytes), asked for "
                f"{request.what}; its copy is damaged, or a proxy changed it; see its logs"
            )
        return content

    def has_blob(self, repository: Reference, digest: str) -> bool:
        """Return whether a repository has a blob.

        Raises:
            ImageError: As of `digest`.
        """
        return self._read(blob_request("HEAD", repository, digest)).status != 404

    def _manifest(self, method: str, reference: Reference) -> RegistryAnswer:
        request = RegistryRequest(
            method=method,
            url=f"/v2/{reference.path}/manifests/{reference.version}",
            reference=reference,
            scopes=(pull_scope(reference),),
            what=_named(reference),
            expected=(200, 404),
            headers={"Accept": ACCEPTED},
        )
        return self._read(request, LARGEST_MANIFEST)

    def _read(self, request: RegistryRequest, limit: int = LARGEST_READ) -> RegistryAnswer:
        """Send a request, once more with the permission to push if a token that may only read is denied.

        Token services deny `pull` of a repository that does not exist, and grant `pull,push`, which makes it.
        """
        try:
            return self.send(request, limit)
        except RegistryError as error:
            if error.status not in (401, 403) or not self._authorizations.uses_tokens(request.reference.registry):
                raise
            denied = error
        try:
            return self.send(replace(request, scopes=(push_scope(request.reference),)), limit)
        except RegistryError:
            raise denied from None

    def send(self, request: RegistryRequest, limit: int = _LONGEST_ANSWER) -> RegistryAnswer:
        """Send a request and read its response, again after errors that may pass.

        Args:
            request: The request.
            limit: Bytes of the longest body.

        Raises:
            ImageError: No response, a status that is not expected, or a longer body. `retryable` says whether a later
                attempt may succeed.
        """
        attempts = Attempts(self.retries)
        while True:
            try:
                with self.open(request, attempts.failed + 1) as response:
                    content = _read(response, request, limit)
                    return RegistryAnswer(status=response.status, headers=response.headers, content=content)
            except ImageError as error:
                if not request.repeated:
                    raise
                attempts.wait(error)

    @contextlib.contextmanager
    def open(self, request: RegistryRequest, attempt: int = 1) -> Iterator[Any]:
        """Send a request and yield urllib3's response, whose body is not read yet; see `read_pieces`.

        Messages have the number of the attempt, if it is not the first one.

        Raises:
            ImageError: As of `send`.
        """
        with contextlib.closing(self._followed(request)) as response:
            if response.status not in request.expected:
                content = b""
                with contextlib.suppress(ImageError):
                    content = next(read_pieces(response, request, _LONGEST_ERROR), b"")
                raise refused(response, content, request, attempt, self._authorizations.note(request))
            yield response

    def _followed(self, request: RegistryRequest) -> Any:
        """Send a request with the authorization of its registry, follow redirects, and return the response."""
        registry = request.reference.registry
        home = address_of(registry)
        url = url_in(registry, request.url)
        if request.authorization is not None:
            return self._transmit(request, url, request.authorization)
        for _ in range(_REDIRECTS):
            if is_plain(url) and origin_of(home)[0] == "https":
                raise ImageError(
                    f"registry {registry}: redirects to plain http ({origin_of(url)[1]}), asked for {request.what}; "
                    "name that host in TORCHX_PULUMI_INSECURE_REGISTRIES if that is right"
                )
            # Presigned addresses: storage refuses a second authorization, and must not see ours.
            is_home = origin_of(url) == origin_of(home)
            response = self._authorized(request, url) if is_home else self._transmit(request, url, None)
            target = response.headers.get("Location")
            is_redirect = response.status in _REDIRECTING and response.status not in request.expected
            if not is_redirect or not target or request.method not in ("GET", "HEAD"):
                return response
            response.close()
            url = url_in(registry, target, url)
        raise ImageError(
            f"registry {registry}: redirects more than {_REDIRECTS} times, asked for {request.what}; see its logs"
        )

    def _authorized(self, request: RegistryRequest, url: str) -> Any:
        authorization = self._authorizations.current(request)
        response = self._transmit(request, url, authorization)
        if response.status != 401:
            return response
        response.close()
        challenge = response.headers.get("WWW-Authenticate", "")
        return self._transmit(request, url, self._authorizations.renewed(challenge, authorization, request))

    def _transmit(self, request: RegistryRequest, url: str, authorization: str | None) -> Any:
        import urllib3

        connect_s, read_s = request.timeout_s
        headers = {**_HEADERS, **request.headers}
        if authorization:
            headers["Authorization"] = authorization
        manager = self._manager(request, url)
        with _translated(request):
            return manager.urlopen(
                request.method,
                url,
                body=request.body() if callable(request.body) else request.body,
                headers=headers,
                timeout=urllib3.Timeout(connect=connect_s, read=read_s),
                retries=False,
                redirect=False,
                preload_content=False,
                enforce_content_length=True,
            )

    def _manager(self, request: RegistryRequest, url: str) -> Any:
        """Return the pools for a URL: each proxy and each choice of certificates has its own.

        Raises:
            ImageError: The proxy of the environment is not valid, or its file of authorities does not exist.
        """
        import certifi

        registry, proxy = request.reference.registry, None
        if any(name.lower().endswith("_proxy") for name in os.environ):
            from torchx_pulumi.kube.proxies import proxy_for  # its package is as large as ours

            try:
                proxy = proxy_for(url, {}, os.environ, f"registry {registry}")
            except ClusterError as error:
                raise ImageError(f"{error}, asked for {request.what}") from error
        is_own = origin_of(url)[:2] == origin_of(address_of(registry))[:2]
        authority, client = certificates_of(registry) if is_own else (None, None)
        named = authority or next(filter(None, map(os.environ.get, _AUTHORITIES)), "")
        if named and url.startswith("https:") and not Path(named).exists():
            raise ImageError(
                f"registry {registry}: no certificates of authorities, invalid path: {named}, asked for "
                f"{request.what}; see {' and '.join(_AUTHORITIES)}, and the folders certs.d of Docker's configuration"
            )
        wanted = (proxy, named or certifi.where(), client)
        with self._guard:
            if wanted not in self._managers:
                self._managers[wanted] = _manager(*wanted)
            return self._managers[wanted]


def blob_request(method: str, repository: Reference, digest: str) -> RegistryRequest:
    """Return a request for a blob. A HEAD also expects that it is absent."""
    return RegistryRequest(
        method=method,
        url=f"/v2/{repository.path}/blobs/{digest}",
        reference=repository,
        scopes=(pull_scope(repository),),
        what=f"blob {digest} of {repository.name}",
        # A redirect is to where the blob is stored, often to an address for GET only.
        expected=(200, 302, 303, 307, 404) if method == "HEAD" else (200, 206),
    )


def _named(reference: Reference) -> str:
    return f"{reference.name}{'@' if reference.digest else ':'}{reference.version}"


def _digest_in(answer: RegistryAnswer) -> str | None:
    """Return the valid digest in the headers of a response, or None without one."""
    found = str(answer.headers.get("Docker-Content-Digest", ""))
    return found if is_local_id(found) else None


def _manager(proxy: Proxy | None, authorities: str, client: tuple[str, str] | None) -> Any:
    import urllib3

    options: dict[str, Any] = {
        "maxsize": _AT_ONCE,
        "cert_reqs": "CERT_REQUIRED",
        "ca_cert_dir" if Path(authorities).is_dir() else "ca_certs": authorities,
    }
    if client:
        options["cert_file"], options["key_file"] = client
    if proxy is None:
        return urllib3.PoolManager(**options)
    headers = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else None
    return urllib3.ProxyManager(proxy.url, proxy_headers=headers, **options)


def read_pieces(response: Any, request: RegistryRequest, size: int) -> Iterator[bytes]:
    """Yield the body of a response in pieces of at most `size` bytes.

    Raises:
        ImageError: The connection broke.
    """
    with _translated(request):
        yield from response.stream(size)


def _read(response: Any, request: RegistryRequest, limit: int) -> bytes:
    content = bytearray()
    for piece in read_pieces(response, request, 1 << 16):
        content += piece
        if len(content) > limit:
            raise ImageError(
                f"registry {request.reference.registry}: sent more than {limit} bytes, asked for {request.what}; "
                "a container registry does not answer like this; check the address"
            )
    return bytes(content)


@contextlib.contextmanager
def _translated(request: RegistryRequest) -> Iterator[None]:
    from urllib3.exceptions import HTTPError, ProxyError

    try:
        yield
    except HTTPError as error:
        raise unreachable(request, error, by_proxy=isinstance(error, ProxyError)) from error
