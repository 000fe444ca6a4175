"""Pushes to a registry that refuses, breaks connections, or cannot do all of the protocol."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from torchx_pulumi.images.oci import Descriptor, LayeredImage
from torchx_pulumi.images.reference import Reference, parse_reference
from torchx_pulumi.images.registry import RegistryClient, push_image, uploads
from torchx_pulumi.images.registry import push as push_module
from torchx_pulumi.model.errors import ImageError

from tests.layered_images import MemoryBlob, image_of, layer
from tests.unit.images.fake_registry import FakeRegistry
from tests.unit.images.test_registry import log_in

SMALL = layer(1000, 1)
LARGE = layer(530_000, 2)


@pytest.fixture
def target(registry: FakeRegistry) -> Reference:
    return parse_reference(f"{registry.host}/team/app:1")


@pytest.fixture
def told() -> list[str]:
    return []


def push(client: RegistryClient, image: LayeredImage, target: Reference, told: list[str] | None = None) -> str:
    return push_image(client, image, target, progress=(told if told is not None else []).append)


def size_of(image: LayeredImage) -> int:
    return sum(blob.size for blob in image.new_blobs) + len(image.manifest.content)


def test_what_the_registry_has_is_not_sent_again(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    image = image_of([SMALL, LARGE])
    push(client, image, target)
    assert registry.bodies == size_of(image)
    more = image_of([SMALL, LARGE, layer(10, 3)])
    registry.bodies, registry.asked[:] = 0, []
    push(client, more, replace(target, tag="2"))
    assert registry.bodies == more.new_blobs[2].size + more.new_blobs[3].size + len(more.manifest.content)
    registry.asked.clear()
    push(client, more, replace(target, tag="2"))
    assert [line.partition(" ")[0] for line in registry.asked] == [*["HEAD"] * 4, "PUT", "HEAD"]


def test_a_blob_that_the_registry_loses_before_the_manifest_is_sent_again(
    client: RegistryClient, registry: FakeRegistry, target: Reference, waits: list[float]
) -> None:
    image = image_of([SMALL, LARGE])
    registry.forgets = {SMALL[0].digest}
    assert push(client, image, target) == image.manifest.digest
    assert waits == [0.5]
    assert registry.bodies == size_of(image) + SMALL[0].size + len(image.manifest.content)


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_passing_errors_are_waited_out(
    client: RegistryClient, registry: FakeRegistry, target: Reference, waits: list[float], code: int
) -> None:
    image = image_of([layer(10, 9)])
    registry.failures, registry.retry_after = [code] * 3, "3"
    assert push(client, image, target) == image.manifest.digest
    assert waits == [3.0] * 3


@pytest.mark.parametrize("cut", [0, 1, 100_000, LARGE[0].size - 1])
def test_a_blob_whose_upload_breaks_is_sent_again_from_its_beginning(
    client: RegistryClient, registry: FakeRegistry, target: Reference, waits: list[float], cut: int
) -> None:
    image = image_of([LARGE])
    registry.repository("team/app").blobs[image.new_blobs[-1].digest] = b"".join(image.new_blobs[-1].read())
    registry.cut_uploads = [cut] * 4
    assert push(client, image, target) == image.manifest.digest
    assert registry.repository("team/app").blobs[LARGE[0].digest] == LARGE[0].content
    assert registry.bodies == 4 * cut + LARGE[0].size + len(image.manifest.content)
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_blob_is_sent_five_times_and_the_next_push_sends_what_is_missing(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    image = image_of([LARGE, SMALL])
    # Blobs are sent side by side: only the large one is missing, so that its requests are those that are cut.
    there = {blob.digest: b"".join(blob.read()) for blob in image.new_blobs if blob.digest != LARGE[0].digest}
    registry.repository("team/app").blobs.update(there)
    registry.cut_uploads = [1000] * 5
    said = r"cannot be reached.*Nothing refers to what was pushed so far; the next attempt sends only what is missing$"
    with pytest.raises(ImageError, match=said) as found:
        push(client, image, target)
    assert found.value.retryable
    assert registry.repository("team/app").tags == {}
    assert registry.bodies == 5 * 1000
    assert push(client, image, target) == image.manifest.digest
    assert registry.bodies == 5 * 1000 + LARGE[0].size + len(image.manifest.content)


def test_an_upload_that_the_registry_lost_begins_again(
    client: RegistryClient, registry: FakeRegistry, target: Reference, waits: list[float]
) -> None:
    image = image_of([SMALL])
    registry.lost_uploads = 1
    assert push(client, image, target) == image.manifest.digest
    assert waits


def test_an_answer_that_is_lost_does_not_repeat_the_upload(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    image = image_of([SMALL])
    registry.lost_answers = {"PUT", "POST"}
    assert push(client, image, target) == image.manifest.digest
    assert registry.bodies <= size_of(image) + SMALL[0].size


@pytest.mark.parametrize("missing", ["mounts", "ranges"])
def test_registries_that_cannot_do_all_of_the_protocol_get_the_image(
    client: RegistryClient, registry: FakeRegistry, target: Reference, missing: str
) -> None:
    setattr(registry, missing, False)
    base = replace(target, path="team/base", name=f"{registry.host}/team/base")
    push(client, image_of([LARGE]), base)
    registry.cut_uploads = [None, 5000]
    registry.cut_downloads = [300_000, 100]
    image = image_of([layer(500_000, 5)], base, [LARGE])
    assert push(client, image, target) == image.manifest.digest


def test_mounted_layers_are_not_sent(client: RegistryClient, registry: FakeRegistry, target: Reference) -> None:
    base = replace(target, path="team/base", name=f"{registry.host}/team/base")
    push(client, image_of([LARGE]), base)
    registry.bodies = 0
    image = image_of([SMALL], base, [LARGE])
    push(client, image, target)
    assert registry.bodies == size_of(image)


def test_layers_are_copied_between_registries_with_breaks(client: RegistryClient, target: Reference) -> None:
    with closing(FakeRegistry()) as other:
        base = parse_reference(f"{other.host}/base:1")
        push(client, image_of([LARGE, SMALL]), base)
        other.cut_downloads = [100_000, 0, 300_000, 5]
        image = image_of([layer(10, 7)], base, [LARGE, SMALL])
        assert push(client, image, target) == image.manifest.digest


def test_images_that_are_pushed_side_by_side_send_their_base_once(
    client: RegistryClient, registry: FakeRegistry, target: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2)
    with closing(FakeRegistry()) as other, ThreadPoolExecutor() as pool:
        base = parse_reference(f"{other.host}/base:1")
        push(client, image_of([LARGE]), base)
        images = [image_of([layer(10, number)], base, [LARGE]) for number in (7, 8)]
        begin = uploads.Upload._begin

        def wait(self: uploads.Upload) -> str | None:
            if self._blob.digest == LARGE[0].digest:
                with suppress(threading.BrokenBarrierError):
                    together.wait(0.5)
            return begin(self)

        monkeypatch.setattr(uploads.Upload, "_begin", wait)
        pushes = [pool.submit(push, client, image, replace(target, tag=str(at))) for at, image in enumerate(images)]
        assert [each.result() for each in pushes] == [image.manifest.digest for image in images]
    assert registry.bodies == LARGE[0].size + sum(map(size_of, images))


def test_who_copies_a_huge_base_is_told_to_have_it_in_the_registry(
    registry: FakeRegistry, target: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_module, "_HUGE", LARGE[0].size)
    monkeypatch.setattr(push_module, "_EVERY_S", 0.02)
    told: list[str] = []
    seen = threading.Event()

    def take(line: str) -> None:
        told.append(line)
        if "Copy the base" in line:
            seen.set()

    def pause(_: float) -> None:
        assert seen.wait(20)

    with closing(FakeRegistry()) as other, closing(RegistryClient(pause=pause)) as client:
        base = parse_reference(f"{other.host}/team/base:1")
        push(client, image_of([LARGE]), base)
        image = image_of([], base, [LARGE])
        registry.repository("team/app").blobs[image.new_blobs[0].digest] = b""
        advice = (
            f"0.5 MB of the base are copied from {base.name}, each layer in one request. Copy the base to "
            f"{registry.host} once and name that copy as the base: its layers are then mounted, not sent"
        )
        registry.cut_uploads = [1000] * 5
        with pytest.raises(ImageError, match=rf"cannot be reached .*\. {re.escape(advice)}\. Nothing refers to"):
            push_image(client, image, target, progress=take)
        assert told.count(f"pushing, {advice}") == 1


def test_a_huge_base_of_the_same_registry_is_not_advised(
    client: RegistryClient, registry: FakeRegistry, target: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_module, "_HUGE", 1)
    base = replace(target, path="team/base", name=f"{registry.host}/team/base")
    push(client, image_of([LARGE]), base)
    registry.mounts, registry.quota = False, LARGE[0].size - 1
    with pytest.raises(ImageError, match="quota") as found:
        push(client, image_of([SMALL], base, [LARGE]), target)
    assert "Copy the base" not in str(found.value)


def test_a_base_that_was_deleted_meanwhile_is_told(client: RegistryClient, target: Reference) -> None:
    with closing(FakeRegistry()) as other:
        base = parse_reference(f"{other.host}/base:1")
        with pytest.raises(ImageError, match=r"does not have layer sha256:.*was the base image deleted\?"):
            push(client, image_of([SMALL], base, [LARGE]), target)


def test_layers_that_registries_do_not_store_are_left_out(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    foreign = Descriptor(
        media_type="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        digest=f"sha256:{'0' * 64}",
        size=5,
        urls=["https://example.com/layer"],
    )
    image = replace(image_of([SMALL]), base=target, base_layers=[foreign])
    assert push(client, image, target) == image.manifest.digest


def test_presigned_downloads_get_no_credentials(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    with closing(FakeRegistry()) as other, closing(FakeRegistry()) as storage:
        other.use_tokens()
        log_in(other)
        base = parse_reference(f"{other.host}/base:1")
        push(client, image_of([LARGE]), base)
        other.storage, storage.stored = storage, other.stored
        image = image_of([SMALL], base, [LARGE])
        assert push(client, image, target) == image.manifest.digest
        assert storage.authorizations == [""]


def test_a_token_is_fetched_once_for_a_push_and_once_for_its_mounts(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    policy = registry.use_tokens()
    log_in(registry)
    base = replace(target, path="team/base", name=f"{registry.host}/team/base")
    push(client, image_of([SMALL]), base)
    policy.asked.clear()
    push(client, image_of([layer(5, 6), layer(6, 7)], base, [SMALL]), target)
    assert policy.asked == [
        ["repository:team/app:pull,push"],
        ["repository:team/app:pull,push", "repository:team/base:pull"],
        ["repository:team/app:pull"],
    ]


def test_where_no_token_is_for_two_repositories_layers_are_copied(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    policy = registry.use_tokens(single_scopes=True)
    log_in(registry)
    base = replace(target, path="team/base", name=f"{registry.host}/team/base")
    push(client, image_of([SMALL]), base)
    image = image_of([layer(5, 6)], base, [SMALL])
    assert push(client, image, target) == image.manifest.digest
    assert ["repository:team/app:pull,push"] in policy.asked


def test_tokens_that_expire_are_fetched_again(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    image = image_of([LARGE])
    push(client, image_of([SMALL]), target)
    registry.repository("team/app").blobs[image.new_blobs[1].digest] = b""
    registry.use_tokens()
    registry.token_lives = 3
    log_in(registry)
    image = replace(image, new_blobs=image.new_blobs[:1])
    assert push(client, image, target) == image.manifest.digest


def test_an_identity_token_is_exchanged(client: RegistryClient, registry: FakeRegistry, target: Reference) -> None:
    registry.use_tokens()
    folder = Path(os.environ["DOCKER_CONFIG"])
    folder.mkdir()
    (folder / "config.json").write_text(f'{{"auths": {{"{registry.host}": {{"identitytoken": "identity"}}}}}}')
    image = image_of([SMALL])
    assert push(client, image, target) == image.manifest.digest


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (403, b'{"errors": [{"code": "DENIED", "message": "quota exceeded"}]}', r"DENIED: quota exceeded.*free space"),
        (403, b'{"errors": [{"code": "DENIED", "message": "not yours"}]}', r"\(DENIED: not yours\).*docker login"),
        (413, b"<html>nginx</html>", r"answers 413.*client_max_body_size"),
        (507, b"no room", r"answers 507.*no room.*free space"),
        (500, b'{"errors": [{"code": "UNKNOWN", "message": "no space left on device"}]}', r"no space left.*free space"),
        (404, b'{"errors": [{"code": "NAME_UNKNOWN", "message": "make it first"}]}', r"make it first.*team/app exists"),
    ],
    ids=["quota", "denied", "proxy", "full", "disk", "unknown"],
)  # fmt: skip
def test_refusals_show_what_the_registry_says(
    client: RegistryClient, registry: FakeRegistry, target: Reference, code: int, body: bytes, said: str
) -> None:
    registry.failure_body = body
    registry.refuse_uploads = code
    with pytest.raises(ImageError, match=said) as found:
        push(client, image_of([SMALL]), target)
    assert "Nothing refers to what was pushed so far" in str(found.value)
    assert registry.repository("team/app").tags == {}


def test_a_quota_ends_a_push_and_is_told(client: RegistryClient, registry: FakeRegistry, target: Reference) -> None:
    registry.quota = 300_000
    with pytest.raises(ImageError, match=r"DENIED: quota of the project is exceeded\), .*free space in it"):
        push(client, image_of([LARGE]), target)


def test_a_registry_that_changes_manifests_returns_its_digest(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    registry.recompresses = True
    image = image_of([SMALL])
    assert push(client, image, target) == registry.repository("team/app").tags["1"] != image.manifest.digest


def test_content_that_cannot_be_read_ends_the_push(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    class Changed(MemoryBlob):
        def read(self) -> Iterator[bytes]:
            yield b"x"
            raise ImageError("train.py: changed after it was hashed; run again")

    class Short(MemoryBlob):
        def read(self) -> Iterator[bytes]:
            yield b"x"

    for kind, said in ((Changed, "train.py: changed after it was hashed"), (Short, "ended after 1 of")):
        image = image_of([(kind(SMALL[0].content), SMALL[1])])
        with pytest.raises(ImageError, match=said):
            push(client, image, target)
    assert registry.repository("team/app").tags == {}


def test_what_takes_long_is_told_again_and_again(
    client: RegistryClient, registry: FakeRegistry, target: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchx_pulumi.images.registry.push._EVERY_S", 0.05)
    told: list[str] = []
    seen = threading.Event()

    class Slow(MemoryBlob):
        def read(self) -> Iterator[bytes]:
            yield self.content[:500]
            assert seen.wait(20)
            yield self.content[500:]

    def take(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            seen.set()

    image = image_of([(Slow(SMALL[0].content), SMALL[1])])
    push_image(client, image, target, progress=take)
    total = f"{size_of(image) - len(image.manifest.content)}"
    assert told[0].startswith("pushing, 1 of 2 blobs, ")
    assert told[0].endswith(f"of {int(total) / 1000:.1f} kB")
    assert told[-1] == f"pushed, {image.manifest.digest}"


def test_waits_are_told(registry: FakeRegistry, target: Reference) -> None:
    told: list[str] = []
    seen = threading.Event()

    def take(line: str) -> None:
        told.append(line)
        seen.set()

    def pause(_: float) -> None:
        assert seen.wait(20)

    registry.refuse_uploads, registry.refusals = 503, 1
    with closing(RegistryClient(pause=pause)) as client:
        push_image(client, image_of([SMALL]), target, progress=take)
    assert "trying again in 0 s: it answered 503" in told[0] or "answers 503" in told[0]


def test_a_blob_whose_storage_may_only_be_read_is_there(
    client: RegistryClient, registry: FakeRegistry, target: Reference
) -> None:
    image = image_of([SMALL])
    push(client, image, target)
    registry.bodies, registry.redirects_heads = 0, True
    with closing(FakeRegistry()) as storage:
        registry.storage = storage
        assert push(client, image, target) == image.manifest.digest
        assert storage.asked == []
    assert registry.bodies == len(image.manifest.content)
