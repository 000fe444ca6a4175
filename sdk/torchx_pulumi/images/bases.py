"""Which content an image's name stands for, asked of the pinned name, the registry or the daemon, in that order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from torchx_pulumi.images.reference import Reference, is_local_id, parse_reference
from torchx_pulumi.model.errors import ImageError


class Origin(str, Enum):
    """Who said what a name stands for."""

    PINNED = "pinned"
    """The name itself has the digest."""
    REGISTRY = "registry"
    DAEMON = "daemon"
    """No registry has it: the image's id on the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An image that a build takes from outside."""

    image: str
    """Its name as it was written."""
    digest: str
    """Digest of its manifest; with origin DAEMON the id of the image."""
    origin: Origin


class Registry(Protocol):
    """What is asked of a registry."""

    def digest(self, reference: Reference) -> str | None:
        """Return the digest of an image. None: the registry does not have it."""
        ...


def resolve(image: str, registry: Registry, client: Any = None) -> Base:
    """Find out what an image's name stands for now.

    Args:
        image: Name, or id on the daemon.
        registry: Is asked where the name is not pinned.
        client: docker-py client of the daemon that is asked where the registry has no answer. None: made then.

    Raises:
        ImageError: Nobody knows it.
    """
    if is_local_id(image):
        return Base(image=image, digest=image, origin=Origin.DAEMON)
    reference = parse_reference(image)
    if reference.digest:
        return Base(image=image, digest=reference.digest, origin=Origin.PINNED)
    try:
        digest = registry.digest(reference)
        said = f"registry {reference.registry}: does not have {reference.name}:{reference.version}"
        retryable = False
    except ImageError as error:
        digest, said, retryable = None, str(error), error.retryable
    if digest:
        return Base(image=image, digest=digest, origin=Origin.REGISTRY)
    return _of_daemon(image, said, retryable, client)


def _of_daemon(image: str, said: str, retryable: bool, client: Any) -> Base:
    from torchx_pulumi.images.building.daemon import Daemon

    try:
        daemon = Daemon(client) if client is not None else Daemon.connect()
        try:
            found = daemon.inspect(image)
        finally:
            if client is None:
                daemon.close()
        also = "the Docker daemon does not have it either"
    except ImageError as error:
        found, also = None, str(error)
    if found is None:
        raise ImageError(
            f"base image {image!r} cannot be found, so that no reference can be given to what is built on it:\n"
            f"  - {said}\n  - {also}\ngive a name that the registry has, pin it with @sha256:..., or pull it",
            retryable=retryable,
        )
    pulled = [each.rpartition("@")[2] for each in found.get("RepoDigests") or [] if retryable]
    if len(set(pulled)) == 1:
        # The registry does not answer now; the daemon has what it once gave under this name.
        return Base(image=image, digest=pulled[0], origin=Origin.REGISTRY)
    return Base(image=image, digest=str(found["Id"]), origin=Origin.DAEMON)
