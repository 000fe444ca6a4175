"""Names of images and repositories."""

from __future__ import annotations

import pytest
from torchx_pulumi.images.reference import parse_reference, parse_repository
from torchx_pulumi.model.errors import ImageError

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "path", "version"),
    [
        ("busybox", "docker.io", "library/busybox", "latest"),
        ("team/app:1", "docker.io", "team/app", "1"),
        ("docker.io/busybox:1", "docker.io", "library/busybox", "1"),
        ("localhost/app", "localhost", "app", "latest"),
        ("localhost:5000/app:1", "localhost:5000", "app", "1"),
        ("registry.example.com/a/b/c:v1", "registry.example.com", "a/b/c", "v1"),
        (f"registry.example.com/a:1@{DIGEST}", "registry.example.com", "a", DIGEST),
        ("[::1]:5000/app:1", "[::1]:5000", "app", "1"),
    ],
)
def test_a_reference_is_read_as_docker_reads_it(text: str, registry: str, path: str, version: str) -> None:
    found = parse_reference(text)
    assert (found.registry, found.path, found.version) == (registry, path, version)


@pytest.mark.parametrize("text", ["", "App:1", "a b", "app@sha256:12", "app:", "a//b", "registry.example.com/"])
def test_what_is_no_image_is_refused(text: str) -> None:
    with pytest.raises(ImageError, match="image "):
        parse_reference(text)


@pytest.mark.parametrize("text", ["team/app", "localhost:5000/app", "registry.example.com:443/a/b", "app"])
def test_a_repository_has_a_port_and_no_tag(text: str) -> None:
    assert parse_repository(text).name == text


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("registry.example.com/app:1", "write 'registry.example.com/app'"),
        ("localhost:5000/app:1", "write 'localhost:5000/app'"),
        (f"app/x@{DIGEST}", "write 'app/x'"),
        ("app:latest", "write 'app'"),
        ("https://registry.example.com/app", "write 'registry.example.com/app'"),
        ("Team/App", "did you mean 'team/app'"),
        ("", "name a repository"),
        ("localhost:5000", "write localhost:5000/NAME"),
    ],
)
def test_a_repository_that_is_none_is_refused_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(ImageError) as caught:
        parse_repository(text)
    assert hint in str(caught.value)
