"""Base images as registries store them: platforms of an index, what is kept, and what is not an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torchx_pulumi.images.bases import Base, DigestSource
from torchx_pulumi.images.content.hashing import cache_folder
from torchx_pulumi.images.layers import BaseImage, read_base
from torchx_pulumi.images.oci import (
    DOCKER_INDEX,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    sha256_digest,
)
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.model.errors import ImageError


class FakeRegistry:
    """Manifests and blobs by digest."""

    def __init__(self) -> None:
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []

    def manifest(self, reference: Reference) -> Manifest | None:
        self.asked.append(str(reference.digest))
        return self.manifests.get(str(reference.digest))

    def read_blob(self, repository: Reference, descriptor: Descriptor) -> bytes:
        self.asked.append(descriptor.digest)
        return self.blobs[descriptor.digest]

    def add(self, media_type: str, content: Any) -> str:
        made = Manifest(media_type=media_type, content=json.dumps(content).encode())
        self.manifests[made.digest] = made
        return made.digest

    def add_image(self, platform: str, *, layers: int = 1, diff_ids: int = 1, config_type: str = OCI_CONFIG) -> str:
        os, architecture, variant = [*platform.split("/"), ""][:3]
        rootfs = {"type": "layers", "diff_ids": ["sha256:x"] * diff_ids}
        config = json.dumps({"os": os, "architecture": architecture, "variant": variant, "rootfs": rootfs}).encode()
        digest = sha256_digest(config)
        self.blobs[digest] = config
        layer = {"mediaType": OCI_LAYER, "digest": f"sha256:{'a' * 64}", "size": 1}
        stored = {"mediaType": config_type, "digest": digest, "size": len(config)}
        return self.add(OCI_MANIFEST, {"config": stored, "layers": [layer] * layers})

    def add_index(self, media_type: str, *platforms: str) -> str:
        return self.add(media_type, {"manifests": [self.row(each) for each in platforms]})

    def row(self, platform: str) -> dict[str, Any]:
        os, architecture, variant = [*platform.split("/"), ""][:3]
        found = {"os": os, "architecture": architecture, **({"variant": variant} if variant else {})}
        return {"mediaType": OCI_MANIFEST, "digest": self.add_image(platform), "size": 1, "platform": found}


def read(registry: FakeRegistry, digest: str, platform: str = "linux/amd64") -> BaseImage:
    base = Base(image="registry.example.com/base:1", digest=digest, source=DigestSource.REGISTRY)
    return read_base(registry, base, platform)


def chosen(image: BaseImage) -> str:
    return "/".join(str(image.config[key]) for key in ("os", "architecture", "variant") if image.config.get(key))


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_INDEX])
@pytest.mark.parametrize(
    ("platform", "found"),
    [
        ("linux/amd64", "linux/amd64"),
        ("linux/x86_64", "linux/amd64"),
        ("linux/amd64/v3", "linux/amd64"),
        ("linux/arm64", "linux/arm64/v8"),
        ("linux/arm64/v8", "linux/arm64/v8"),
        ("linux/arm", "linux/arm/v7"),
        ("linux/arm/v6", "linux/arm/v6"),
        ("windows/amd64", "windows/amd64"),
    ],
)
def test_the_manifest_of_a_platform(media_type: str, platform: str, found: str) -> None:
    registry = FakeRegistry()
    rows = ("unknown/unknown", "windows/amd64", "linux/arm/v6", "linux/arm/v7", "linux/arm64/v8", "linux/amd64")
    image = read(registry, registry.add_index(media_type, *rows), platform)
    assert chosen(image) == found
    assert image.reference.digest == image.manifest.digest
    assert image.reference.path == "base"


def test_an_absent_platform_is_an_error_that_lists_the_others() -> None:
    registry = FakeRegistry()
    digest = registry.add_index(OCI_INDEX, "linux/arm64", "linux/amd64", "unknown/unknown")
    with pytest.raises(ImageError, match=r"has no image for linux/s390x, only for linux/amd64, linux/arm64; name"):
        read(registry, digest, "linux/s390x")


def test_an_image_of_another_platform_is_an_error() -> None:
    registry = FakeRegistry()
    with pytest.raises(ImageError, match="is for linux/arm64, and linux/amd64 is needed"):
        read(registry, registry.add_image("linux/arm64"))


def test_a_known_base_costs_no_request() -> None:
    registry = FakeRegistry()
    digest = registry.add_index(OCI_INDEX, "linux/amd64")
    first = read(registry, digest)
    assert len(registry.asked) == 3
    assert read(registry, digest) == first
    assert len(registry.asked) == 3


def test_a_damaged_cache_is_read_again() -> None:
    registry = FakeRegistry()
    digest = registry.add_image("linux/amd64")
    first = read(registry, digest)
    files = list(cache_folder().with_name("bases").iterdir())
    for file, text in zip(files, ["{", '{"media_type": "x", "content": "{}"}'], strict=True):
        Path(file).write_text(text)
    assert read(registry, digest) == first
    assert len(registry.asked) == 4


def test_a_base_that_is_gone_is_an_error() -> None:
    with pytest.raises(ImageError, match=r"registry\.example\.com no longer has .*base@sha256:bbb"):
        read(FakeRegistry(), f"sha256:{'b' * 64}")


def test_a_base_of_the_daemon_is_an_error() -> None:
    base = Base(image="mine", digest=f"sha256:{'b' * 64}", source=DigestSource.DAEMON)
    with pytest.raises(ImageError, match="only the Docker daemon has it"):
        read_base(FakeRegistry(), base, "linux/amd64")


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("application/vnd.docker.distribution.manifest.v1+prettyjws", {"schemaVersion": 1}),
        (OCI_MANIFEST, {"schemaVersion": 2}),
        ("application/json", {}),
    ],
)
def test_what_is_no_image_is_an_error(media_type: str, content: Any) -> None:
    registry = FakeRegistry()
    with pytest.raises(ImageError, match="which is not a container image that can be built on"):
        read(registry, registry.add(media_type, content))


def test_an_artifact_is_an_error() -> None:
    registry = FakeRegistry()
    digest = registry.add_image("linux/amd64", config_type="application/vnd.cncf.helm.config.v1+json")
    with pytest.raises(ImageError, match=r"of the type 'application/vnd\.cncf\.helm\.config\.v1\+json', so it is no"):
        read(registry, digest)


def test_an_image_whose_parts_do_not_match_is_an_error() -> None:
    registry = FakeRegistry()
    with pytest.raises(ImageError, match="its manifest has 2 layers and its configuration 1"):
        read(registry, registry.add_image("linux/amd64", layers=2))


def test_what_is_not_json_is_an_error() -> None:
    registry = FakeRegistry()
    broken = Manifest(media_type=OCI_MANIFEST, content=b"\xff{")
    registry.manifests[broken.digest] = broken
    with pytest.raises(ImageError, match="is not JSON"):
        read(registry, broken.digest)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"config": "x"}, "config"),
        ({"config": {"Env": 5}}, r"config\.Env"),
        ({"config": {"Env": ["A=secret", None]}}, r"config\.Env"),
        ({"config": {"Labels": ["a"]}}, r"config\.Labels"),
        ({"rootfs": {"diff_ids": 5}}, r"rootfs\.diff_ids"),
        ({"history": 5}, "history"),
    ],
)
def test_a_configuration_of_other_types_is_an_error(part: dict[str, Any], named: str) -> None:
    registry = FakeRegistry()
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:x"]}, **part}).encode()
    stored = {"mediaType": OCI_CONFIG, "digest": sha256_digest(config), "size": len(config)}
    registry.blobs[sha256_digest(config)] = config
    layer = {"mediaType": OCI_LAYER, "digest": f"sha256:{'a' * 64}", "size": 1}
    with pytest.raises(ImageError, match=f"its configuration is damaged: {named} is of another type") as raised:
        read(registry, registry.add(OCI_MANIFEST, {"config": stored, "layers": [layer]}))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "part",
    [
        {"config": []},
        {"config": None},
        {"layers": 5},
        {"layers": [5]},
        {"layers": [{}]},
        {"layers": [{"mediaType": "x", "digest": "sha256:../..", "size": 1}]},
        {"layers": [{"mediaType": "x", "digest": f"sha256:{'a' * 64}", "size": -1}]},
    ],
)
def test_a_manifest_of_other_types_is_an_error(part: dict[str, Any]) -> None:
    registry = FakeRegistry()
    config = {"mediaType": OCI_CONFIG, "digest": f"sha256:{'c' * 64}", "size": 2}
    with pytest.raises(ImageError, match="its manifest is damaged: "):
        read(registry, registry.add(OCI_MANIFEST, {"config": config, "layers": [], **part}))


@pytest.mark.parametrize("rows", [5, [None], [{"mediaType": OCI_MANIFEST, "platform": [1]}], [{"digest": "x"}]])
def test_an_index_of_other_types_is_an_error(rows: Any) -> None:
    registry = FakeRegistry()
    with pytest.raises(ImageError, match="its index is damaged: "):
        read(registry, registry.add(OCI_INDEX, {"manifests": rows}))
