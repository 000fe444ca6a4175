"""Adds a layer to an image in a registry over its HTTP API. For registries on this machine without log-in."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from tools.images.errors import ImageError
from tools.images.oci import LAYER, MANIFEST, Descriptor, files_tar

_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar"
_REFERENCE: Final = re.compile(r"(?P<host>[^/]+:\d+)/(?P<name>[a-z0-9][a-z0-9._/-]*):(?P<tag>[\w][\w.-]{0,127})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image in a registry."""

    host: str
    """`host:port`."""
    name: str
    """Repository."""
    tag: str
    """Tag."""

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read `host:port/name:tag`.

        Raises:
            ImageError: it is not of that form.
        """
        if (match := _REFERENCE.fullmatch(text)) is None:
            raise ImageError(f"image reference {text!r}: must be host:port/name:tag")
        return cls(**match.groupdict())


def add_layer(base_ref: str, files: Mapping[str, bytes | Path], new_ref: str) -> str:
    """Make a new image of an existing one and some files, and push it.

    Args:
        base_ref: `host:port/name:tag`; stays as it is.
        files: content, or a file to take it from, by absolute path in the image.
        new_ref: `host:port/name:tag` on the same registry; overwritten if it exists.

    Returns:
        The new image's digest. The same base and files give the same one.

    Raises:
        ImageError: a reference or path is wrong, there is no such base, or the registry fails.
    """
    base, new = Reference.parse(base_ref), Reference.parse(new_ref)
    if base.host != new.host:
        raise ImageError(f"{new_ref}: must be on the same registry as its base, {base.host}")
    manifest = json.loads(_request(base, "GET", f"manifests/{base.tag}", accept=(MANIFEST, _DOCKER_MANIFEST)))
    config = json.loads(_request(base, "GET", f"blobs/{manifest['config']['digest']}"))
    layer = files_tar(files)
    kind = _DOCKER_LAYER if manifest.get("mediaType") == _DOCKER_MANIFEST else LAYER
    config["rootfs"]["diff_ids"].append(_digest(layer))
    config.setdefault("history", []).append({"created_by": "tools/images add_layer"})
    content = json.dumps(config, sort_keys=True).encode()
    for old in [manifest["config"], *manifest["layers"]]:
        _mount(base, new, old["digest"])
    _push(new, layer)
    _push(new, content)
    manifest["config"] = _describe(manifest["config"]["mediaType"], content).as_json()
    manifest["layers"].append(_describe(kind, layer).as_json())
    text = json.dumps(manifest, sort_keys=True).encode()
    _request(new, "PUT", f"manifests/{new.tag}", body=text, content_type=manifest.get("mediaType", MANIFEST))
    return _digest(text)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _describe(media_type: str, content: bytes) -> Descriptor:
    return Descriptor(media_type=media_type, digest=_digest(content), size_bytes=len(content))


def _mount(base: Reference, new: Reference, digest: str) -> None:
    """Make a blob of the base known in the new image's repository."""
    if base.name != new.name:
        _send(new, "POST", f"blobs/uploads/?mount={digest}&from={base.name}", body=b"")


def _push(image: Reference, content: bytes) -> None:
    digest = _digest(content)
    location = _send(image, "POST", "blobs/uploads/", body=b"").headers["Location"]
    target = urljoin(f"http://{image.host}/", location)
    separator = "&" if "?" in target else "?"
    _send(image, "PUT", f"{target}{separator}digest={digest}", body=content, content_type="application/octet-stream")


def _request(image: Reference, method: str, path: str, **options: Any) -> bytes:
    return _send(image, method, path, **options).content


@dataclass(frozen=True, slots=True)
class _Answer:
    headers: http.client.HTTPMessage
    content: bytes


def _send(
    image: Reference,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    content_type: str | None = None,
    accept: tuple[str, ...] = (),
) -> _Answer:
    url = path if path.startswith("http") else f"http://{image.host}/v2/{image.name}/{path}"
    request = urllib.request.Request(url, data=body, method=method)  # noqa: S310  http only, see above
    if content_type:
        request.add_header("Content-Type", content_type)
    if accept:
        request.add_header("Accept", ", ".join(accept))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return _Answer(answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:300]
        raise ImageError(f"registry {image.host}: {method} {path} of {image.name}: {error.code}: {text}") from None
    except OSError as error:
        raise ImageError(f"registry {image.host} cannot be reached: {error}") from error
