"""Images as registries store them: descriptors, manifests, and the parts of an image that is pushed. Data only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from torchx_pulumi.images.reference import DIGEST, Reference

OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
INDEXES: Final = (OCI_INDEX, DOCKER_INDEX)
"""Media types of a list of manifests for several platforms."""
MANIFESTS: Final = (OCI_MANIFEST, DOCKER_MANIFEST)
"""Media types of the manifest of one image."""


def sha256_digest(content: bytes) -> str:
    """Return the digest of content, `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A reference to a blob or a manifest."""

    media_type: str
    digest: str
    """`sha256:` and 64 hex digits."""
    size: int
    """Bytes."""
    urls: Sequence[str] = ()
    """Addresses of a layer that registries do not store (media types `foreign` and `nondistributable`)."""
    platform: dict[str, Any] = field(default_factory=dict)
    """`os`, `architecture` and `variant` of a manifest in an index. Empty: not given."""

    @classmethod
    def read(cls, stored: Any) -> Descriptor:
        """Read a descriptor as registries store it.

        Raises:
            ValueError: A part is missing or of another type. No value is shown.
        """
        try:
            read = cls(
                media_type=stored["mediaType"],
                digest=stored["digest"],
                size=stored["size"],
                urls=tuple(stored.get("urls") or ()),
                platform=dict(stored.get("platform") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"a descriptor is not valid ({type(error).__name__})") from error
        is_text = isinstance(read.media_type, str) and isinstance(read.digest, str)
        if not (is_text and re.fullmatch(DIGEST, read.digest) and type(read.size) is int and read.size >= 0):
            raise ValueError("a descriptor has no media type, digest or size")
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or an index, with the bytes that its digest is computed from."""

    media_type: str
    content: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """Return the digest of the bytes."""
        return sha256_digest(self.content)


class Blob(Protocol):
    """Content that is uploaded. It may be read several times, and is never held in memory as a whole."""

    @property
    def digest(self) -> str:
        """Digest of the whole content."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def read(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 1 MiB.

        Raises:
            ImageError: The content cannot be read, or no longer has the digest.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredImage:
    """An image that is a base and new layers, ready to be pushed."""

    manifest: Manifest
    """Its manifest. The digest of the manifest is the digest of the image."""
    base: Reference | None
    """Repository that has the base's layers. None: the image has no base (`FROM scratch`)."""
    base_layers: Sequence[Descriptor]
    """Layers of the base, in order."""
    new_blobs: Sequence[Blob] = field(repr=False)
    """The new layers and the configuration."""


@dataclass(frozen=True, kw_only=True)
class BytesBlob:
    """A small blob in memory: the configuration."""

    content: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """Return the digest of the content."""
        return sha256_digest(self.content)

    @property
    def size(self) -> int:
        """Return the bytes of the content."""
        return len(self.content)

    def read(self) -> Iterator[bytes]:
        """Yield the content."""
        for begin in range(0, len(self.content), 1 << 20):
            yield self.content[begin : begin + (1 << 20)]
