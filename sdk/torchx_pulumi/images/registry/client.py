"""What registries have: digests, manifests, small blobs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
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
from torchx_pulumi.model.errors import ImageError

if TYPE_CHECKING:
    from torchx_pulumi.images.registry.connection import RegistryAnswer, RegistryConnection

ACCEPTED: Final = ", ".join((OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST))
"""Accepted media types. The index comes first, because the daemon stores its digest for a pulled image."""
LARGEST_MANIFEST: Final = 4 << 20
LARGEST_READ: Final = 16 << 20
"""Bytes of the largest blob that is read as a whole."""
CHUNK: Final = 16 << 20


class RegistryClient:
    """Reads from registries and pushes to them. Many threads may use one client."""

    def __init__(
        self,
        *,
        tries: int = 5,
        first_wait_s: float = 0.5,
        pause: Callable[[float], None] = time.sleep,
        chunk: int = CHUNK,
    ) -> None:
        """Make a client. No request is sent.

        Args:
            tries: Attempts of each request in total, after errors that may pass.
            first_wait_s: Seconds after the first attempt; each wait is twice the previous one, at most 30 s.
                `Retry-After` takes precedence.
            pause: Waits for a number of seconds.
            chunk: Bytes of a chunk of an upload, and of the largest blob that is sent as a whole.
        """
        self._policy = (tries, first_wait_s, pause)
        self._chunk = chunk
        self._connection: RegistryConnection | None = None
        self._guard = threading.Lock()

    @property
    def connection(self) -> RegistryConnection:
        """Return the pooled connections, made by the first request.

        Raises:
            ImageError: The package `requests` is not installed.
        """
        with self._guard:
            if self._connection is None:
                try:
                    from torchx_pulumi.images.registry.connection import RegistryConnection
                    from torchx_pulumi.images.registry.retries import Retries
                except ImportError as error:
                    if error.name not in ("requests", "urllib3"):
                        raise
                    raise ImageError(
                        f"asking a registry needs the requests package, which cannot be imported ({error}); "
                        "install `torchx-pulumi[docker]`"
                    ) from error
                self._connection = RegistryConnection(Retries.of(*self._policy), self._chunk)
            return self._connection

    def close(self) -> None:
        """Close the kept connections. Later requests open others."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()

    def digest(self, reference: Reference) -> str | None:
        """Return the digest of an image. None: the registry does not have it.

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
        """Return a manifest or an index. None: the registry does not have it.

        Raises:
            ImageError: As of `digest`; or it is larger than 4 MiB, or is not what its digest says.
        """
        answer = self._manifest("GET", reference)
        if answer.status == 404:
            return None
        media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if not media_type or media_type in ("application/json", "text/plain", "application/octet-stream"):
            media_type = _media_type_in(answer.content) or media_type
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
        from torchx_pulumi.images.registry.authorization import pull_scope
        from torchx_pulumi.images.registry.connection import RegistryRequest

        what = f"blob {descriptor.digest} of {repository.name}"
        if descriptor.size > LARGEST_READ:
            raise ImageError(
                f"{what}: has {descriptor.size} bytes, and at most {LARGEST_READ} are read; this is no "
                "configuration of an image; name another base image"
            )
        request = RegistryRequest(
            method="GET",
            url=f"/v2/{repository.path}/blobs/{descriptor.digest}",
            reference=repository,
            scopes=(pull_scope(repository),),
            what=what,
        )
        content = self.connection.send(request, LARGEST_READ).content
        if sha256_digest(content) != descriptor.digest:
            raise ImageError(
                f"registry {repository.registry}: sent {sha256_digest(content)} ({len(content)} bytes), asked for "
                f"{what}; its copy is damaged, or a proxy changed it; see its logs"
            )
        return content

    def has_blob(self, repository: Reference, digest: str) -> bool:
        """Return whether a repository has a blob.

        Raises:
            ImageError: As of `digest`.
        """
        from torchx_pulumi.images.registry.authorization import pull_scope
        from torchx_pulumi.images.registry.uploads import has_blob

        return has_blob(self.connection, repository, (pull_scope(repository),), digest)

    def _manifest(self, method: str, reference: Reference) -> RegistryAnswer:
        from torchx_pulumi.images.registry.authorization import pull_scope
        from torchx_pulumi.images.registry.connection import RegistryRequest

        request = RegistryRequest(
            method=method,
            url=f"/v2/{reference.path}/manifests/{reference.version}",
            reference=reference,
            scopes=(pull_scope(reference),),
            what=_named(reference),
            expected=(200, 404),
            headers={"Accept": ACCEPTED},
        )
        return self.connection.send(request, LARGEST_MANIFEST)


def _named(reference: Reference) -> str:
    return f"{reference.name}{'@' if reference.digest else ':'}{reference.version}"


def _digest_in(answer: RegistryAnswer) -> str | None:
    """Return the digest in the headers of a response. None: they have none that is valid."""
    found = str(answer.headers.get("Docker-Content-Digest", ""))
    return found if is_local_id(found) else None


def _media_type_in(content: bytes) -> str | None:
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found.get("mediaType") if isinstance(found, dict) else None
