"""Small images for tests of pushes, made without a builder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchx_pulumi.images.oci import OCI_CONFIG, OCI_LAYER, OCI_MANIFEST, Descriptor, LayeredImage, Manifest
from torchx_pulumi.images.reference import Reference

PIECE = 1 << 20


@dataclass(frozen=True)
class MemoryBlob:
    """A blob of the test's own."""

    content: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self) -> Iterator[bytes]:
        for begin in range(0, len(self.content), PIECE):
            yield self.content[begin : begin + PIECE]


def layer(size: int, seed: int = 0) -> tuple[MemoryBlob, str]:
    """Return a layer with a file of random bytes, and the digest of its tar."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        info = tarfile.TarInfo(f"file-{seed}")
        info.size = size
        tar.addfile(info, io.BytesIO(random.Random(seed).randbytes(size)))
    content = written.getvalue()
    return MemoryBlob(gzip.compress(content, 0, mtime=0)), f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(blob: MemoryBlob, media_type: str = OCI_LAYER) -> Descriptor:
    return Descriptor(media_type=media_type, digest=blob.digest, size=blob.size)


def image_of(
    new: Sequence[tuple[MemoryBlob, str]],
    base: Reference | None = None,
    base_layers: Sequence[tuple[MemoryBlob, str]] = (),
    labels: Mapping[str, str] | None = None,
) -> LayeredImage:
    """Return an image of new layers on layers that the base's repository has."""
    both = [*base_layers, *new]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": dict(labels)} if labels else {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in both]},
        "history": [{"created_by": "test"} for _ in both],
    }
    configuration = MemoryBlob(json.dumps(config).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": OCI_CONFIG, "digest": configuration.digest, "size": configuration.size},
        "layers": [{"mediaType": OCI_LAYER, "digest": blob.digest, "size": blob.size} for blob, _ in both],
    }
    return LayeredImage(
        manifest=Manifest(media_type=OCI_MANIFEST, content=json.dumps(manifest).encode()),
        base=base,
        base_layers=[descriptor(blob) for blob, _ in base_layers],
        new_blobs=[*(blob for blob, _ in new), configuration],
    )
