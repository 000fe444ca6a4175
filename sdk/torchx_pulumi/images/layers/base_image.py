"""The base of an image: its manifest and its configuration, read from the registry and kept by digest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torchx_pulumi.images.bases import Base, DigestSource
from torchx_pulumi.images.content.hashing import cache_folder, write_cache
from torchx_pulumi.images.oci import (
    DOCKER_CONFIG,
    INDEXES,
    MANIFESTS,
    OCI_CONFIG,
    Descriptor,
    Manifest,
    sha256_digest,
)
from torchx_pulumi.images.platforms import Platform
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import listed

_MOST_NAMED: Final = 12
"""Platforms that a message lists."""
_DEPTH: Final = 3
"""Indexes within indexes."""
_RUN_TYPES: Final = {"Env": list, "WorkingDir": str, "Labels": dict, "ExposedPorts": dict, "Shell": list}
"""Parts of the configuration of containers that an image inherits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """A base image for one platform."""

    reference: Reference
    """Repository, and the digest of the manifest for the platform."""
    manifest: Manifest
    config: Mapping[str, Any]
    """The configuration as it is stored."""

    @property
    def layers(self) -> Sequence[Mapping[str, Any]]:
        """Return the descriptors of its layers as they are stored."""
        return json.loads(self.manifest.content)["layers"] or []


def read_base(registry: RegistryClient, base: Base, platform: str) -> BaseImage:
    """Return a base image for a platform.

    Manifests and configurations are kept in the user's cache by digest, so that a known base costs no request.

    Args:
        registry: Client of the registries.
        base: The base with its digest.
        platform: For example `linux/arm64`. The variant may be missing.

    Raises:
        ImageError: The registry does not have the base, it has none for the platform, or it is not an image.
    """
    where = f"base image {base.image!r}"
    if base.source is DigestSource.DAEMON:
        raise ImageError(f"{where}: only the Docker daemon has it; push it to a registry, or set builder to docker")
    reference, wanted = replace(parse_reference(base.image), digest=base.digest), Platform.parse(platform)
    for _ in range(_DEPTH):
        manifest = _manifest(registry, reference, where)
        content = _json(manifest.content, where)
        if manifest.media_type in MANIFESTS and "config" in content and "layers" in content:
            return _image(registry, BaseImage(reference=reference, manifest=manifest, config={}), wanted, where)
        if manifest.media_type not in INDEXES:
            break
        reference = replace(reference, digest=_choose(content, wanted, where))
    raise ImageError(
        f"{where}: its manifest is of the type {manifest.media_type!r}, which is not a container image that can be "
        f"built on; allowed are {', '.join((*MANIFESTS, *INDEXES))}; push it again with a current client"
    )


def _image(registry: RegistryClient, image: BaseImage, wanted: Platform, where: str) -> BaseImage:
    content = _json(image.manifest.content, where)
    (descriptor,) = _descriptors([content["config"]], where, "manifest")
    layers = _descriptors(content["layers"], where, "manifest")
    if descriptor.media_type not in (DOCKER_CONFIG, OCI_CONFIG):
        raise ImageError(f"{where}: its configuration is of the type {descriptor.media_type!r}, so it is not an image")
    _, text = _cached(
        descriptor.digest, lambda: (descriptor.media_type, registry.read_blob(image.reference, descriptor))
    )
    config = _json(text, where)
    diff_ids = _checked(config, where)
    if len(diff_ids) != len(layers):
        raise ImageError(
            f"{where}: its manifest has {len(layers)} layers and its configuration {len(diff_ids)}; "
            "the image is damaged, push it again"
        )
    own = Platform.of(config)
    if own.os and not wanted.runs(own):
        raise ImageError(f"{where}: is for {own}, and {wanted} is needed; name another image, or set platform to {own}")
    return replace(image, config=config)


def _choose(index: Mapping[str, Any], wanted: Platform, where: str) -> str:
    """Return the digest of the platform's manifest in an index."""
    rows = _descriptors(index.get("manifests"), where, "index")
    platforms = {each.digest: Platform.of(each.platform) for each in rows if each.media_type in (*MANIFESTS, *INDEXES)}
    fitting = [digest for digest, each in platforms.items() if wanted.runs(each)]
    if fitting:
        return next((digest for digest in fitting if platforms[digest] == wanted), fitting[0])
    known = sorted({str(each) for each in platforms.values()} - {"", "unknown/unknown"})
    raise ImageError(
        f"{where}: has no image for {wanted}, only for {listed(known, _MOST_NAMED) or 'no platform'}; name another "
        "image, or set the option platform to one of these"
    )


def _manifest(registry: RegistryClient, reference: Reference, where: str) -> Manifest:
    def fetch() -> tuple[str, bytes]:
        found = registry.manifest(reference)
        if found is None:
            raise ImageError(
                f"{where}: {reference.registry} no longer has {reference.name}@{reference.digest}; run again, or name "
                "an image that exists"
            )
        return found.media_type, found.content

    media_type, content = _cached(str(reference.digest), fetch)
    return Manifest(media_type=media_type, content=content)


def _cached(digest: str, fetch: Callable[[], tuple[str, bytes]]) -> tuple[str, bytes]:
    """Return media type and content of a digest from the cache, else from its source."""
    file = cache_folder().with_name("bases") / f"{digest.removeprefix('sha256:')}.json"
    try:
        known = json.loads(file.read_text("utf-8"))
        media_type, content = str(known["media_type"]), str(known["content"]).encode()
        if sha256_digest(content) == digest:
            return media_type, content
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or damaged: it is read again
    media_type, content = fetch()
    # What is not text is not JSON either, which the caller reports.
    with contextlib.suppress(UnicodeDecodeError):
        write_cache(file, [json.dumps({"media_type": media_type, "content": content.decode()}).encode()])
    return media_type, content


def _json(content: bytes, where: str) -> dict[str, Any]:
    try:
        read = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{where}: the registry's answer is not JSON ({error}); push the image again") from error
    if not isinstance(read, dict):
        raise ImageError(f"{where}: the registry's answer is not a JSON object; push the image again")
    return read


def _damaged(where: str, what: str, why: object) -> ImageError:
    return ImageError(f"{where}: its {what} is damaged: {why}; push the image again")


def _descriptors(rows: Any, where: str, what: str) -> list[Descriptor]:
    if not isinstance(rows or [], list):
        raise _damaged(where, what, "it has no list of descriptors")
    try:
        return [Descriptor.read(row) for row in rows or []]
    except ValueError as error:
        raise _damaged(where, what, error) from error


def _checked(config: Mapping[str, Any], where: str) -> list[Any]:
    """Check the parts of a configuration that an image inherits. Return the digests of its uncompressed layers.

    Raises:
        ImageError: A part has another type. As for Go programs, null is the same as absent. No value is shown: a
            configuration may contain secrets.
    """
    types = {"config": dict, "history": list, "rootfs": dict, "created": str}
    wrong = [key for key, kind in types.items() if not isinstance(config.get(key) or kind(), kind)]
    run, rootfs = ({} if key in wrong else config.get(key) or {} for key in ("config", "rootfs"))
    wrong += [f"config.{key}" for key, kind in _RUN_TYPES.items() if not isinstance(run.get(key) or kind(), kind)]
    if not wrong and not all(isinstance(each, str) for each in run.get("Env") or []):
        wrong.append("config.Env")
    diff_ids = rootfs.get("diff_ids") or []
    if not isinstance(diff_ids, list):
        wrong.append("rootfs.diff_ids")
    if wrong:
        raise _damaged(where, "configuration", f"{', '.join(wrong)} is of another type than in an image")
    return list(diff_ids)
