"""What registries have: digests, manifests, blobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

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
from torchx_pulumi.images.registry.connection import RegistryConnection
from torchx_pulumi.images.registry.request import (
    RegistryAnswer,
    RegistryError,
    RegistryRequest,
    pull_scope,
    push_scope,
)
from torchx_pulumi.model.errors import ImageError

ACCEPTED: Final = ", ".join((OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST))
"""Accepted media types. The index comes first, because the daemon stores its digest for a pulled image."""
LARGEST_MANIFEST: Final = 4 << 20
LARGEST_READ: Final = 16 << 20
"""Bytes of the largest blob that is read as a whole."""


class RegistryClient(RegistryConnection):
    """Reads from registries and pushes to them. Many threads may use one client."""

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
            media_type = _media_type_in(answer) or media_type
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
            if error.status not in (401, 403) or not self.authorizations.uses_tokens(request.reference.registry):
                raise
            denied = error
        try:
            return self.send(replace(request, scopes=(push_scope(request.reference),)), limit)
        except RegistryError:
            raise denied from None


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
    """Return the digest in the headers of a response. None: they have none that is valid."""
    found = str(answer.headers.get("Docker-Content-Digest", ""))
    return found if is_local_id(found) else None


def _media_type_in(answer: RegistryAnswer) -> str | None:
    found = answer.json()
    return found.get("mediaType") if isinstance(found, dict) else None
