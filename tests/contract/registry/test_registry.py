"""What reading and pushing find in a registry: the same in the fake and in real ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from torchx_pulumi.images.oci import OCI_CONFIG, Descriptor, LayeredImage
from torchx_pulumi.images.reference import Reference
from torchx_pulumi.images.registry import RegistryClient, push_image
from torchx_pulumi.model.errors import ImageError

from tests.layered_images import descriptor, image_of, layer
from tests.token_service import TokenPolicy


def silent(_: str) -> None:
    """Say nothing."""


def pushed(client: RegistryClient, target: Reference, *sizes: int) -> LayeredImage:
    image = image_of([layer(size, seed) for seed, size in enumerate(sizes or (1000,))])
    assert push_image(client, image, target, progress=silent) == image.manifest.digest
    return image


def test_what_was_pushed_is_read(client: RegistryClient, target: Reference) -> None:
    image = pushed(client, target)
    assert client.digest(target) == image.manifest.digest
    assert client.manifest(target) == image.manifest
    assert client.manifest(replace(target, digest=image.manifest.digest)) == image.manifest
    config = image.new_blobs[-1]
    found = client.read_blob(target, Descriptor(media_type=OCI_CONFIG, digest=config.digest, size=config.size))
    assert json.loads(found)["os"] == "linux"


def test_what_is_absent_is_none(client: RegistryClient, target: Reference) -> None:
    pushed(client, replace(target, tag="other"))
    assert client.digest(target) is None
    assert client.manifest(target) is None
    with pytest.raises(ImageError, match=r"answers 404.*BLOB_UNKNOWN.*blob sha256:0{64}"):
        client.read_blob(target, Descriptor(media_type=OCI_CONFIG, digest=f"sha256:{'0' * 64}", size=1))


def test_a_push_by_digest_sets_no_tag(client: RegistryClient, target: Reference) -> None:
    image = image_of([layer(1000)])
    named = replace(target, tag=None, digest=image.manifest.digest)
    assert push_image(client, image, named, progress=silent) == image.manifest.digest
    assert client.digest(target) is None
    assert client.manifest(named) == image.manifest


def test_a_large_layer_is_sent_in_one_request(client: RegistryClient, target: Reference) -> None:
    pushed(client, target, 8_000_077)


def test_the_layers_of_a_base_in_the_same_registry_are_mounted(client: RegistryClient, target: Reference) -> None:
    base = replace(target, path=f"{target.path}/base", name=f"{target.name}/base")
    first = layer(1000, 1)
    push_image(client, image_of([first]), base, progress=silent)
    image = image_of([layer(1000, 2)], base, [first])
    assert push_image(client, image, target, progress=silent) == image.manifest.digest
    assert client.read_blob(target, descriptor(first[0])) == first[0].content


def test_content_that_is_not_what_its_digest_says_is_refused(client: RegistryClient, target: Reference) -> None:
    class Wrong:
        digest, size = f"sha256:{'0' * 64}", 10

        def read(self):  # type: ignore[no-untyped-def]
            yield b"0123456789"

    image = image_of([layer(10)])
    with pytest.raises(ImageError, match="DIGEST_INVALID"):
        push_image(client, replace(image, new_blobs=[Wrong(), *image.new_blobs]), target, progress=silent)
    assert client.digest(target) is None


def test_a_manifest_whose_layer_is_missing_is_refused(client: RegistryClient, target: Reference) -> None:
    image = image_of([layer(10)])
    with pytest.raises(ImageError, match="BLOB_UNKNOWN"):
        push_image(client, replace(image, new_blobs=image.new_blobs[1:]), target, progress=silent)
    assert client.digest(target) is None


@pytest.mark.parametrize("denial", [None, 401, 403], ids=["token-without-access", "unauthorized", "forbidden"])
def test_the_first_push_makes_a_repository_that_may_not_be_read_before(
    client: RegistryClient, target: Reference, policy: TokenPolicy, denial: int | None
) -> None:
    policy.denial = denial
    assert client.digest(target) is None
    assert not client.has_blob(target, f"sha256:{'0' * 64}")
    image = pushed(client, target)
    assert client.digest(target) == image.manifest.digest
    assert policy.asked[0] == [f"repository:{target.path}:pull"]


def test_each_token_is_for_one_repository_where_the_service_takes_one_scope(
    client: RegistryClient, target: Reference, policy: TokenPolicy
) -> None:
    policy.single_scopes = True
    base = replace(target, path=f"{target.path}/base", name=f"{target.name}/base")
    first = layer(1000, 1)
    push_image(client, image_of([first]), base, progress=silent)
    image = image_of([layer(1000, 2)], base, [first])
    assert push_image(client, image, target, progress=silent) == image.manifest.digest
    assert client.read_blob(target, descriptor(first[0])) == first[0].content


@pytest.mark.parametrize("denial", [None, 401, 403], ids=["token-without-access", "unauthorized", "forbidden"])
def test_one_forbidden_repository_does_not_close_the_others(
    client: RegistryClient, target: Reference, policy: TokenPolicy, denial: int | None
) -> None:
    secret = replace(target, path=f"{target.path}/secret", name=f"{target.name}/secret")
    policy.forbidden, policy.denial = {secret.path}, denial
    for action in (client.digest, lambda where: pushed(client, where)):
        with pytest.raises(ImageError, match=f"asked for .*{secret.name}.*account that may use {secret.path}"):
            action(secret)
        image = pushed(client, target)
        assert client.digest(target) == image.manifest.digest
