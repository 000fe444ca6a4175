"""Images that unit tests of layers compose: a base in memory, and what an image consists of."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchx_pulumi.images.content.hashing import hash_files
from torchx_pulumi.images.content.tree import read_tree
from torchx_pulumi.images.layers import BaseImage, compose
from torchx_pulumi.images.oci import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, LayeredImage, Manifest
from torchx_pulumi.images.reference import parse_reference

BASE_LAYER = f"sha256:{'a' * 64}"


def make_base(
    config: Mapping[str, Any] | None = None, *, layers: int = 1, media_types: tuple[str, str, str] | None = None
) -> BaseImage:
    """Return a base with a working directory and a command."""
    manifest_type, config_type, layer_type = media_types or (OCI_MANIFEST, OCI_CONFIG, OCI_LAYER)
    own = {"Env": ["PATH=/bin", "MODE=base"], "WorkingDir": "/base", "Cmd": ["sh"], "Labels": {"of": "base"}}
    stored = {
        "architecture": "amd64",
        "os": "linux",
        "created": "2024-01-02T03:04:05Z",
        "container_config": {"Cmd": ["old"]},
        "config": {**own, **(config or {})},
        "history": [{"created_by": "base"}] * layers,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{'d' * 64}"] * layers},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": {"mediaType": config_type, "size": 2, "digest": f"sha256:{'c' * 64}"},
        "layers": [{"mediaType": layer_type, "size": 7, "digest": BASE_LAYER}] * layers,
    }
    return BaseImage(
        reference=parse_reference(f"registry.example.com/base@sha256:{'b' * 64}"),
        manifest=Manifest(media_type=manifest_type, content=json.dumps(manifest).encode()),
        config=stored,
    )


def build(
    workspace: Path, text: str, base: BaseImage | None = None, build_args: Mapping[str, str] | None = None, **more: Any
) -> LayeredImage:
    """Compose an image of a workspace. Without a base, it begins with `FROM scratch`."""
    if "entries" not in more:
        more = {"entries": hash_files(read_tree(str(workspace)).entries), **more}
    given = {
        "text": text,
        "where": "Dockerfile",
        "build_args": build_args or {},
        "labels": {},
        "platform": "linux/amd64",
        **more,
    }
    return compose(base, **given)


def config_of(image: LayeredImage) -> dict[str, Any]:
    """Return the configuration of an image."""
    return json.loads(b"".join(image.new_blobs[-1].read()))  # type: ignore[no-any-return]


def layers_of(image: LayeredImage) -> list[list[tarfile.TarInfo]]:
    """Return the members of the new layers."""
    made = []
    for blob in image.new_blobs[:-1]:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(b"".join(blob.read())))) as archive:
            made.append(archive.getmembers())
    return made


def paths_of(image: LayeredImage) -> list[str]:
    """Return the paths of all new layers, folders with `/` at the end."""
    return [each.name + ("/" if each.isdir() else "") for layer in layers_of(image) for each in layer]
