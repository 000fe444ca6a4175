"""The base of an image: its manifest and its configuration, read from the registry and kept by digest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torchx_pulumi.images.bases import Base, DigestSource
from torchx_pulumi.images.content.hashing import cache_folder, write_cache
from torchx_pulumi.images.oci import DOCKER_CONFIG, INDEXES, MANIFESTS, OCI_CONFIG, Descriptor, Manifest
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient
from torchx_pulumi.model.errors import ImageError
from torchx_pulumi.model.text import listed

_MOST_NAMED: Final = 12
"""Platforms that a message lists."""
_DEPTH: Final = 3
"""Indexes within indexes."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

_DESCRIPTOR: Final = {
    "mediaType": str,
    "digest": str,
    "size": int,
    "urls": [str],
    "annotations": dict,
    "platform": dict,
}

_MANIFEST: Final = {"config": _DESCRIPTOR, "layers": [_DESCRIPTOR]}

_INDEX: Final = {"manifests": [_DESCRIPTOR]}

_RUN: Final = {
    "Env": [str],
    "WorkingDir": str,
    "Labels": dict,
    "ExposedPorts": dict,
    "Shell": [str],
}

_CONFIG: Final = {"config": _RUN, "created": str, "history": [dict], "rootfs": {"diff_ids": [str]}}

_NAMES: Final = {str: "a text", int: "a whole number", dict: "an object", list: "a list", type(None): "null"}


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
    reference = replace(parse_reference(base.image), digest=base.digest)
    for _ in range(_DEPTH):
        manifest = _manifest(registry, reference, where)
        content = _json(manifest.content, where)
        if manifest.media_type in MANIFESTS and "config" in content and "layers" in content:
            check_manifest(content, where)
            return _image(registry, BaseImage(reference=reference, manifest=manifest, config={}), platform, where)
        if manifest.media_type not in INDEXES:
            break
        check_index(content, where)
        reference = replace(reference, digest=_choose(content, platform, where))
    raise ImageError(
        f"{where}: its manifest is of the type {manifest.media_type!r}, which is not a container image that can be "
        f"built on; allowed are {', '.join((*MANIFESTS, *INDEXES))}; push it again with a current client"
    )


def _image(registry: RegistryClient, image: BaseImage, platform: str, where: str) -> BaseImage:
    content = _json(image.manifest.content, where)
    found = content["config"]
    if found.get("mediaType") not in (DOCKER_CONFIG, OCI_CONFIG):
        raise ImageError(f"{where}: its configuration is of the type {found.get('mediaType')!r}, so it is no image")
    descriptor = Descriptor(media_type=found["mediaType"], digest=found["digest"], size=found["size"])
    _, text = _cached(
        descriptor.digest, lambda: (descriptor.media_type, registry.read_blob(image.reference, descriptor))
    )
    config = _json(text, where)
    check_config(config, where)
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or []
    if len(diff_ids) != len(content["layers"] or []):
        raise ImageError(
            f"{where}: its manifest has {len(content['layers'] or [])} layers and its configuration {len(diff_ids)}; "
            "the image is damaged, push it again"
        )
    own = _platform_text(config)
    if own and not _fits(config, platform):
        raise ImageError(
            f"{where}: is for {own}, and {platform} is needed; name another image, or set platform to {own}"
        )
    return replace(image, config=config)


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
        if f"sha256:{hashlib.sha256(content).hexdigest()}" == digest:
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


def _choose(index: Mapping[str, Any], platform: str, where: str) -> str:
    """Return the digest of the platform's manifest in an index."""
    manifests = [each for each in index.get("manifests") or [] if each.get("mediaType") in (*MANIFESTS, *INDEXES)]
    fitting = [each for each in manifests if _fits(each.get("platform") or {}, platform)]
    if fitting:
        wanted = _parts(platform)
        exact = [each for each in fitting if _normal(each["platform"]) == wanted]
        return str((exact or fitting)[0]["digest"])
    known = sorted({_platform_text(each.get("platform") or {}) for each in manifests} - {"", "unknown/unknown"})
    raise ImageError(
        f"{where}: has no image for {platform}, only for {listed(known, _MOST_NAMED) or 'no platform'}; name another "
        "image, or set the option platform to one of these"
    )


def _fits(found: Mapping[str, Any], platform: str) -> bool:
    wanted, own = _parts(platform), _normal(found)
    if own == wanted:
        return True
    # A processor runs what was built for an earlier variant of it.
    return own[:2] == wanted[:2] and own[1] in ("arm", "amd64") and own[2] < wanted[2]


def _parts(platform: str) -> tuple[str, str, str]:
    os, architecture, variant = [*platform.split("/"), "", ""][:3]
    return _normal({"os": os, "architecture": architecture, "variant": variant})


def _normal(platform: Mapping[str, Any]) -> tuple[str, str, str]:
    os, architecture = str(platform.get("os") or ""), str(platform.get("architecture") or "")
    variant = str(platform.get("variant") or "")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(architecture, architecture)
    if architecture == "arm":
        return os, architecture, variant or "v7"
    return os, architecture, "" if (architecture, variant) in (("arm64", "v8"), ("amd64", "v1")) else variant


def _platform_text(platform: Mapping[str, Any]) -> str:
    return "/".join(str(platform[key]) for key in ("os", "architecture", "variant") if platform.get(key))


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Check the parts of a manifest that are read.

    Raises:
        ImageError: A part has another type, or a descriptor is incomplete.
    """
    problems = list(_misfits(manifest, _MANIFEST, ""))
    if not problems:
        rows = {
            "config": manifest["config"],
            **{f"layers[{at}]": row for at, row in enumerate(manifest["layers"] or [])},
        }
        problems = [problem for at, row in rows.items() for problem in _incomplete(row, at)]
    _raise(problems, "its manifest", where)


def check_index(index: Mapping[str, Any], where: str) -> None:
    """Check the parts of an index that are read.

    Raises:
        ImageError: As of `check_manifest`.
    """
    problems = list(_misfits(index, _INDEX, ""))
    if not problems:
        for at, row in enumerate(index.get("manifests") or []):
            problems += _incomplete(row, f"manifests[{at}]")
    _raise(problems, "its index", where)


def check_config(config: Mapping[str, Any], where: str) -> None:
    """Check the parts of a configuration that an image inherits.

    Raises:
        ImageError: A part has another type.
    """
    _raise(list(_misfits(config, _CONFIG, "")), "its configuration", where)


def _raise(problems: list[str], what: str, where: str) -> None:
    if problems:
        raise ImageError(f"{where}: {what} is damaged: {'; '.join(problems[:5])}; push the image again")


def _misfits(value: Any, shape: Any, at: str) -> Iterator[str]:
    """Yield a text for each part of another type. As for Go programs, null is the same as absent in an object."""
    wanted: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, wanted) or isinstance(value, bool):
        found = _NAMES.get(type(value), f"a {type(value).__name__}")
        # No value is shown: a configuration may contain secrets.
        yield f"{at} is {found}, must be {_NAMES[wanted]}"
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            if value.get(key) is not None:
                yield from _misfits(value[key], inner, f"{at}.{key}" if at else key)
    elif isinstance(shape, list):
        for index, each in enumerate(value):
            yield from _misfits(each, shape[0], f"{at}[{index}]")


def _incomplete(row: Any, at: str) -> list[str]:
    """Return what a descriptor lacks."""
    if row is None:
        return [f"{at} is null, must be an object"]
    problems = []
    if not row.get("mediaType"):
        problems.append(f"{at} has no mediaType")
    digest = row.get("digest")
    if digest is None or not _DIGEST.fullmatch(digest):
        problems.append(f"{at}.digest is {digest!a}, must be sha256: and 64 hex digits")
    if row.get("size") is None or row["size"] < 0:
        problems.append(f"{at}.size is {row.get('size')}, must be 0 or more")
    return problems
