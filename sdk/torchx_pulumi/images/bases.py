"""Digests of base images: from the pinned name, the registry or the daemon, in that order."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torchx_pulumi.images.building.daemon import Daemon
from torchx_pulumi.images.reference import is_local_id, parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError


class DigestSource(str, Enum):
    """Source of an image's digest."""

    PINNED = "pinned"
    """The digest is part of the name."""
    REGISTRY = "registry"
    DAEMON = "daemon"
    """No registry has the image. The digest is its id on the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """An external image of a build."""

    image: str
    """Name as the user wrote it."""
    digest: str
    """Digest of the manifest. With source DAEMON: the id of the image."""
    source: DigestSource
    uses_role_image: bool | None = None
    """Whether its ONBUILD instructions use the name of the role's image, if known."""


def uses_role_image(config: Mapping[str, Any] | None) -> bool:
    """Return whether the ONBUILD instructions of a base use the name of the role's image.

    Args:
        config: The part `config` of its configuration.
    """
    return any(re.search(r"\bIMAGE\b", line) for line in (config or {}).get("OnBuild") or [])


def resolve(image: str, registry: RegistryClient, client: Any = None) -> Base:
    """Return the current digest of an image.

    Args:
        image: Name, or id on the daemon.
        registry: Client that is asked if the name is not pinned.
        client: docker-py client that is asked if no registry has the image. None: created on demand.

    Raises:
        ImageError: Neither the registry nor the daemon has the image.
    """
    if is_local_id(image):
        return Base(image=image, digest=image, source=DigestSource.DAEMON)
    reference = parse_reference(image)
    if reference.digest:
        return Base(image=image, digest=reference.digest, source=DigestSource.PINNED)
    try:
        digest = registry.digest(reference)
        problem = f"registry {reference.registry}: does not have {reference.name}:{reference.version}"
        retryable = False
    except ImageError as error:
        digest, problem, retryable = None, str(error), error.retryable
    if digest:
        return Base(image=image, digest=digest, source=DigestSource.REGISTRY)
    return _of_daemon(image, problem, retryable, client)


@contextlib.contextmanager
def connected(client: Any) -> Iterator[Daemon]:
    """Yield the daemon of a caller's docker-py client, or one that is closed at the end.

    Raises:
        ImageError: The daemon cannot be reached.
    """
    daemon = Daemon(client) if client is not None else Daemon.connect()
    try:
        yield daemon
    finally:
        if client is None:
            daemon.close()


def _of_daemon(image: str, problem: str, retryable: bool, client: Any) -> Base:
    also = "the Docker daemon does not have it either"
    try:
        with connected(client) as daemon:
            found = daemon.inspect(image)
    except ImageError as error:
        found, also = None, str(error)
    if found is None:
        raise ImageError(
            f"base image {image!r} cannot be found, so the patched image has no reference:\n"
            f"  - {problem}\n  - {also}\ngive a name that the registry has, pin it with @sha256:..., or pull it",
            retryable=retryable,
        )
    takes_name = uses_role_image(found.get("Config"))
    pulled = [each.rpartition("@")[2] for each in found.get("RepoDigests") or [] if retryable]
    if len(set(pulled)) == 1:
        # The registry does not answer now. The daemon has the digest that it sent before.
        return Base(image=image, digest=pulled[0], source=DigestSource.REGISTRY, uses_role_image=takes_name)
    return Base(image=image, digest=str(found["Id"]), source=DigestSource.DAEMON, uses_role_image=takes_name)
